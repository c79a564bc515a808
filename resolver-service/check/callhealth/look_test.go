package callhealth_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// looks takes in the view of one caller, whose selection holds orders with these routes, as they are.
func (w *world) looks(specs []catalog.RouteSpec, routes ...catalog.Route) []callhealth.Wanted {
	s := &catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{{App: orders, Routes: specs}}}
	e := catalog.NewEntry(orders, catalog.Rule{Selection: s}, routes)
	view := &catalog.View{Entries: catalog.NewTable([]catalog.Edit[*catalog.Entry]{{App: orders, Value: e}})}
	return w.Look([]topology.ViewUpdate{{App: checkout, View: view}}, nil, nil, nil, w.now)
}

func local(ready ...string) catalog.Route {
	r := catalog.LocalRoute(ready, 0)
	r.Cluster, r.Weight = "west", 1
	return r
}

func remote(state catalog.RouteState) catalog.Route {
	return catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "east", Weight: 1, Priority: 1}, State: state}
}

// TestACalleeThatNobodyOffers is a fault once somebody has offered it.
func TestACalleeThatNobodyOffers(t *testing.T) {
	w := newWorld()
	for i, step := range []struct {
		what  string
		route catalog.Route
		want  string
	}{
		{"it is still to come", local(), ""},
		{"it is there", local("10.0.0.1:1"), ""},
		{"it is gone", local(), "fail callees-offered >orders: nobody offers it any more, for 1s, and shop/checkout may call it: no route to shop/orders is ready: west (no ready instance of shop/orders); " +
			"if it runs in another cluster, it takes an AppExport there that lets the caller have it; before it: AppEndpoints shop/checkout was deleted at 11:59:58Z"},
		{"it is back", local("10.0.0.1:1"), ""},
	} {
		w.looks(nil, step.route)
		if got := strings.Join(w.faults(), "\n"); got != step.want {
			t.Errorf("%d: %s: got %s", i, step.what, got)
		}
		w.now = w.now.Add(2 * time.Second)
	}
}

// TestWhatIsWantedOfOtherClusters has a row for each selection, with the clusters that are told.
func TestWhatIsWantedOfOtherClusters(t *testing.T) {
	explicit := []catalog.RouteSpec{{Cluster: "east", Weight: 1}}
	for what, test := range map[string]struct {
		specs  []catalog.RouteSpec
		routes []catalog.Route
		want   []string
	}{
		"nobody has it":                       {nil, []catalog.Route{local()}, []string{"east", "north"}},
		"no cluster at all has it":            {nil, nil, []string{"east", "north"}},
		"it runs here":                        {nil, []catalog.Route{local("10.0.0.1:1")}, nil},
		"another cluster exports it":          {nil, []catalog.Route{local(), remote(catalog.Empty)}, nil},
		"the named cluster does not":          {explicit, []catalog.Route{remote(catalog.NotExported)}, []string{"east"}},
		"the named cluster was not heard yet": {explicit, []catalog.Route{remote(catalog.Unheard)}, nil},
		"only this cluster is named":          {[]catalog.RouteSpec{{Cluster: "local", Weight: 1}}, []catalog.Route{local()}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			wanted := newWorld().looks(test.specs, test.routes...)
			var got []string
			for _, cluster := range []string{"east", "north"} {
				for _, a := range callhealth.WantedFrom(wanted, cluster) {
					if a.GetApp().GetId() != "orders" || a.GetCaller().GetId() != "checkout" {
						t.Errorf("%s is told of %v", cluster, a)
					}
					got = append(got, cluster)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("told %q, want %q", got, test.want)
			}
		})
	}
}

// TestAppsThatAreDead has instances whose health fails, and what a peer asks for in vain.
func TestAppsThatAreDead(t *testing.T) {
	w := newWorld()
	since := w.now.Add(-40 * time.Second)
	unwell := []callhealth.Unwell{{App: orders, Why: "the app refuses connections", Since: since}, {App: cart, Why: "the app's health check has failed 3 times", Since: since}}
	asked := []callhealth.Asked{{Cluster: "east", Caller: checkout, App: cart, Why: "no AppExport shop/cart"}}
	w.Look(nil, unwell, map[catalog.App]int{orders: 1, cart: 3}, asked, w.now)
	got := strings.Join(w.faults(), "\n")
	want := `fail app-health >orders: 1 of 1 instances can't take calls, for 40s: the app refuses connections
warn app-health >cart: 1 of 3 instances can't take calls, for 40s: the app's health check has failed 3 times
warn export-missing checkout>cart: cluster east asks for shop/cart, which runs here, for shop/checkout: no AppExport shop/cart`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	fix := ""
	for _, f := range w.Faults(w.now) {
		if f.GetCheck() == callhealth.ExportMissing {
			fix = f.GetFix()
		}
	}
	if want := "write AppExport shop/cart with {cluster: east, namespace: shop, app: checkout} in its spec.allow"; !strings.Contains(fix, want) {
		t.Errorf("fix %q", fix)
	}
}
