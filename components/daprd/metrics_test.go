package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// scrape returns what daprd's metrics endpoint has of Isthmus: values by series.
func (m *mesh) scrape(d *sandbox.Daprd) map[string]float64 {
	m.t.Helper()
	res, err := http.Get("http://" + d.Metrics + "/")
	if err != nil {
		m.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: %s, %v", res.Status, text, err)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndex(line, " "); strings.HasPrefix(line, "dapr_isthmus_") {
			if all[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err != nil {
				m.t.Error(err)
			}
		}
	}
	return all
}

func TestDaprdExportsWhatBecameOfCalls(t *testing.T) {
	const (
		calls    = `dapr_isthmus_calls_total{callee="orders",callee_namespace="shop",cluster="west"}`
		notFound = `dapr_isthmus_lookups_refused_total{callee="",callee_namespace="",outcome="not found"}`
		revision = `dapr_isthmus_view_revision`
		age      = `dapr_isthmus_view_age_seconds`
	)
	m := newMesh(t)
	m.instance("orders")
	caller := m.daprd(sandbox.DaprdOptions{Name: "caller", App: checkout})
	m.waitUntil("a call succeeds", func() bool {
		_, err := caller.Invoke(t.Context(), "orders", "list", nil)
		return err == nil
	})
	before := m.scrape(caller)
	for _, unknown := range []string{"ordres", "order", "oders", "odrers"} {
		if _, err := caller.Invoke(t.Context(), unknown, "list", nil); err == nil {
			t.Errorf("a call of %s succeeds", unknown)
		}
	}
	after := m.scrape(caller)
	if after[calls] < 1 || after[notFound] != before[notFound]+4 || after[revision] < 1 || after[age] != 0 {
		t.Errorf("%v, want a call and 4 refused lookups more than in %v", after, before)
	}
}
