package nameresolution_test

import (
	"maps"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// refused are the refused calls that a replica counts, by caller, by what refused, and outcome.
func (s *service) refused() map[[3]string]float64 {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[[3]string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "isthmus_refused_calls_total" {
				continue
			}
			label := map[string]string{}
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			found[[3]string{label["caller"], label["by"], label["outcome"]}] += m.GetCounter().GetValue()
		}
	}
	return found
}

// TestRefusedCallsAreReported has lookups refused at the caller, and calls at the callee.
func TestRefusedCallsAreReported(t *testing.T) {
	s := guarded(t, free(t), catalog.GuardEnforce, stream.Config{})
	s.declares(checkout, orders)
	caller, callee := sidecar(t, checkout, 50003, s.address), sidecar(t, ledger, 50002, s.address)
	for range 3 {
		if _, err := caller.ResolveID(t.Context(), ledger); outcome(t, err) != catalog.Denied {
			t.Fatal(err)
		}
	}
	if _, err := caller.Find(t.Context(), ledger); outcome(t, err) != catalog.Denied {
		t.Fatal(err)
	}
	if _, err := caller.ResolveID(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	becomes(t, callee, checkout, catalog.Denied)
	want := map[[3]string]float64{{"checkout", "lookup", "denied"}: 4, {"checkout", "guard", "denied"}: 1}
	await(t, "the reports", func() bool { return maps.Equal(s.refused(), want) })
}
