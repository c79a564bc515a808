package objects

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func export(app, allow string) string {
	return fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppExport","metadata":{"namespace":"shop","name":%q},"spec":{"allow":[%s]}}`, app, allow)
}

func clusterNamed(name string) string {
	return strings.Replace(east, `"east"`, fmt.Sprintf("%q", name), 1)
}

// exportsOf is what an answer says of other clusters, such as "east shop/cart withdrawn -shop/*".
func exportsOf(a *v1alpha1.ApplyResponse) string {
	var all []string
	for _, e := range a.GetExports() {
		line := e.GetCluster() + " " + e.GetApp().GetId() + " " + e.GetResult()
		for _, r := range e.GetRemoved() {
			line += " -" + r
		}
		for _, r := range e.GetAdded() {
			line += " +" + r
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

func TestADryRunTellsWhoLosesAnExport(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(east, clusterNamed("north"), export("orders", `{"cluster":"east","namespace":"shop","app":"web"},{"cluster":"north"}`), export("cart", `{"cluster":"*"}`))
	for what, test := range map[string]struct {
		objects []string
		want    string
	}{
		"another caller":     {[]string{export("orders", `{"cluster":"east","namespace":"shop"},{"cluster":"north"}`)}, "east orders changed -shop/web +shop/*"},
		"one cluster less":   {[]string{export("orders", `{"cluster":"north"}`)}, "east orders withdrawn -shop/web"},
		"nobody":             {[]string{export("cart", ``)}, "east cart withdrawn -*/*, local cart withdrawn -*/*, north cart withdrawn -*/*"},
		"a new export":       {[]string{export("pay", `{"cluster":"east"}`)}, "east pay exported +*/*"},
		"a new cluster":      {[]string{clusterNamed("south")}, "south cart exported +*/*"},
		"what changes none":  {[]string{strings.Replace(east, "203.0.113.7", "203.0.113.9", 1)}, ""},
		"an unknown cluster": {[]string{export("pay", `{"cluster":"esat"}`)}, ""},
	} {
		answer, err := s.apply(true, test.objects...)
		if got := exportsOf(answer); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, test.want)
		}
	}
	answer, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{DryRun: true, Keys: []*v1alpha1.ObjectKey{{Kind: "AppExport", Namespace: "shop", Name: "cart"}, {Kind: "Cluster", Name: "north"}}})
	if got, want := exportsOf(answer), "east cart withdrawn -*/*, local cart withdrawn -*/*, north cart withdrawn -*/*, north orders withdrawn -*/*"; err != nil || got != want {
		t.Errorf("deleted: %q, %v; want %q", got, err, want)
	}
}

func TestADryRunCountsWhatBecomesOfLookups(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(east, selection("checkout", "orders"), selection("web", "ledger"))
	s.runs("orders", "ledger")
	routed := strings.Replace(selection("checkout", "orders"), `{"app":"orders"}`, `{"app":"orders","routes":[{"cluster":"local","weight":%d},{"cluster":"east","weight":%d}]}`, 1)
	for what, test := range map[string]struct {
		object string
		counts *v1alpha1.EffectCounts
		shown  string
	}{
		"nothing that a caller sees": {fmt.Sprintf(routed, 2, 0), &v1alpha1.EffectCounts{}, ""},
		"a route that is not there":  {fmt.Sprintf(routed, 1, 9), &v1alpha1.EffectCounts{}, ""},
		"the app is taken away":      {selection("checkout", "ledger"), &v1alpha1.EffectCounts{Fail: 1, Back: 1}, "checkout>orders ok>denied, checkout>ledger denied>ok"},
		"a route that is not usable": {fmt.Sprintf(routed, 0, 1), &v1alpha1.EffectCounts{Fail: 1}, "checkout>orders ok>unavailable"},
		"two that fail otherwise":    {selection("checkout", "orders", "pay"), &v1alpha1.EffectCounts{Other: 1}, "checkout>pay denied>unavailable"},
	} {
		answer, err := s.apply(true, test.object)
		if got := effects(answer); err != nil || answer.GetCounts().String() != test.counts.String() || got != test.shown {
			t.Errorf("%s: %v %q, %v; want %v %q", what, answer.GetCounts(), got, err, test.counts, test.shown)
		}
	}
}

// runs lets apps have an instance here.
func (s *service) runs(ids ...string) {
	s.t.Helper()
	if _, err := s.topology.Apply(s.t.Context(), topology.Change{Instances: []topology.InstanceChange{instancesOf(ids)}}); err != nil {
		s.t.Fatal(err)
	}
}

func TestSharesOfALookupDecideWhetherItGoesElsewhere(t *testing.T) {
	decision := func(shares ...float64) *catalog.Decision {
		d := &catalog.Decision{Outcome: catalog.OK}
		for i, share := range shares {
			d.Routes = append(d.Routes, catalog.RouteDecision{RouteSpec: catalog.RouteSpec{Cluster: fmt.Sprint("c", i)}, Share: share})
		}
		return d
	}
	for _, c := range []struct {
		before, after *catalog.Decision
		differs       bool
	}{
		{decision(100), decision(100), false},
		{decision(100), decision(100, 0), false},
		{decision(50, 50), decision(50.001, 49.999), false},
		{decision(50, 50), decision(90, 10), true},
		{decision(100, 0), decision(0, 100), true},
	} {
		if what, differs := compare(c.before, c.after); differs != c.differs || what != elsewhere {
			t.Errorf("%v to %v: %v, %v", c.before.Routes, c.after.Routes, what, differs)
		}
	}
}

func TestAnalyzeAndApplyWarnAlike(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.runs("orders", "checkout")
	wrong := selection("checkout", "oders")
	const warning = "AppEndpoints shop/checkout: spec.endpoints[0].app: no app shop/oders runs here, and no other cluster exports one; did you mean shop/orders? [unknown-app]"
	found, err := s.Analyze(t.Context(), &v1alpha1.AnalyzeRequest{Objects: [][]byte{[]byte(wrong)}})
	if err != nil || found.GetObjects() != 1 || len(found.GetFindings()) != 1 || found.GetFindings()[0].GetLevel() != "warning" {
		t.Fatalf("%v, %v; want one warning", found, err)
	}
	dry, err := s.apply(true, wrong)
	if err != nil || len(dry.GetWarnings()) != 1 || dry.GetWarnings()[0] != warning {
		t.Errorf("a dry run warns of %q, %v; want %q", dry.GetWarnings(), err, warning)
	}
	if stored, err := s.Analyze(t.Context(), &v1alpha1.AnalyzeRequest{}); err != nil || len(stored.GetFindings()) != 0 {
		t.Errorf("%v, %v; want nothing, since nothing was written", stored, err)
	}
	if answer := s.mustApply(wrong); len(answer.GetWarnings()) != 1 || answer.GetWarnings()[0] != warning {
		t.Errorf("an apply warns of %q, want %q", answer.GetWarnings(), warning)
	}
	if stored, err := s.Analyze(t.Context(), &v1alpha1.AnalyzeRequest{}); err != nil || len(stored.GetFindings()) != 1 {
		t.Errorf("%v, %v; want one warning of what is stored", stored, err)
	}
	if later := s.mustApply(selection("checkout", "invoices")); len(later.GetWarnings()) != 0 {
		t.Errorf("an app that is still to come: %q", later.GetWarnings())
	}
	if _, err := s.Analyze(t.Context(), &v1alpha1.AnalyzeRequest{Objects: [][]byte{[]byte(`{"kind":"Cluster"}`)}}); err == nil {
		t.Error("an object without a name was taken")
	}
}

func TestManyWarningsAreCounted(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.runs("orders")
	var callees []string
	for i := range mostWarnings + 5 {
		callees = append(callees, fmt.Sprintf("orders%c", 'a'+i))
	}
	answer := s.mustApply(selection("checkout", callees...))
	if n := len(answer.GetWarnings()); n != mostWarnings+1 || answer.GetWarnings()[n-1] != "5 more; isthmus analyze lists them" {
		t.Errorf("%d warnings, the last of them %q", n, answer.GetWarnings()[n-1])
	}
}

func instancesOf(ids []string) topology.InstanceChange {
	c := topology.InstanceChange{Source: "test"}
	for i, id := range ids {
		c.Put = append(c.Put, catalog.Instance{ID: "1", App: catalog.App{Namespace: "shop", ID: id}, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)}), 50002)})
	}
	return c
}
