package topology

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// checkAccess holds the callers that a guard lets in to those whom lookups lead here.
func checkAccess(t *testing.T, g *Graph, what string) {
	t.Helper()
	ids := []string{"a", "b", "c", "d", "e"}
	for _, to := range ids {
		callee := g.apps[app(to)]
		if callee == nil || !callee.present() {
			continue // nobody is there to guard
		}
		access := g.accesses.keep(app(to), 0)
		for _, from := range ids {
			caller := g.apps[app(from)]
			if from == to || caller == nil || len(caller.instances) == 0 {
				continue
			}
			e, _ := g.viewOf(app(from)).Entries.Get(app(to))
			leads := e != nil && slices.ContainsFunc(e.Routes, func(r catalog.Route) bool { return r.Local })
			if s := caller.selection; s != nil && s.Declared {
				leads = leads && declaredBy(s, app(from), app(to)) || withoutItsWord(g, s, app(from), app(to))
			}
			if admits := access.Declared.Has(app(from)) || access.Undeclared.Has(app(from)); admits != leads {
				t.Fatalf("%s: lookups lead %s to %s here: %t; the guard lets it in: %t", what, from, to, leads, admits)
			}
		}
	}
}

// declaredBy tells whether pods declare a call, or the app is the callee itself.
func declaredBy(s *catalog.AppEndpoints, caller, callee catalog.App) bool {
	return caller == callee || slices.ContainsFunc(s.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee && !e.SelfDeclared })
}

// withoutItsWord tells whether the guard lets in a call that sidecars alone declare, as it would if
// they declared nothing.
func withoutItsWord(g *Graph, s *catalog.AppEndpoints, caller, callee catalog.App) bool {
	if d := g.defaultOf(caller); d != nil {
		return slices.ContainsFunc(s.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee && e.SelfDeclared }) &&
			slices.ContainsFunc(d.For(caller).Endpoints, func(e catalog.Endpoint) bool { return e.App == callee && g.accesses.leadsHere(&e) })
	}
	return g.cfg.Open && !slices.ContainsFunc(s.Endpoints, func(e catalog.Endpoint) bool { return !e.SelfDeclared })
}

func TestWhoMayCallFollowsObjects(t *testing.T) {
	top := running(t, west)
	s, err := top.Access(t.Context(), app("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, ok := s.View(); ok {
		t.Fatal("it is known before the store was read")
	}
	top.must(t, full())
	says := func(want string) {
		t.Helper()
		a, ok := s.View()
		if !ok {
			t.Fatal("nothing is known after the store was read")
		}
		if got := fmt.Sprint(slices.SortedFunc(a.Declared.All(), catalog.App.Compare), slices.SortedFunc(a.Undeclared.All(), catalog.App.Compare), a.Remote.All()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	says("[] [] []")
	top.must(t, runs("checkout", "1", "10.0.0.1:50002"))
	says("[] [shop/checkout] []")
	top.must(t, objects(selects("checkout", calls("ledger"))))
	says("[] [] []")
	top.must(t, objects(selects("checkout", calls("orders"))))
	says("[shop/checkout] [] []")
	top.must(t, objects(selects("checkout", calls("orders", via("east", 0, 1)))))
	says("[] [] []")
	top.must(t, objects(selects("checkout", calls("orders", via("east", 0, 1), via("local", 1, 0)))))
	says("[shop/checkout] [] []")
	top.must(t, objects(exports("orders", catalog.Allow{Cluster: "*", Namespace: "*", App: "web"})))
	says("[shop/checkout] [] []")
	top.must(t, objects(&catalog.Cluster{Name: "east", Trust: catalog.Trust{Domain: "east.example"}}))
	says("[shop/checkout] [] [{east east.example  web}]")
	top.must(t, objects(&catalog.Cluster{Name: "east", Trust: catalog.Trust{Domain: "east.example", AppDomain: "apps.east"}}))
	says("[shop/checkout] [] [{east apps.east  web}]")
	top.must(t, deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}))
	top.must(t, deletes(catalog.Key{Kind: catalog.KindCluster, Name: "east"}))
	says("[] [shop/checkout] []")
}

// BenchmarkChangesOfCallers is what one changed selection costs a callee that others follow, by
// how many callers it has.
func BenchmarkChangesOfCallers(b *testing.B) {
	for _, callers := range []int{10, 10_000} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			g := NewGraph(west)
			var all []catalog.Object
			for i := range callers {
				all = append(all, selects(fmt.Sprint("caller-", i), calls("orders")))
			}
			g.Apply(full(all...))
			g.accesses.keep(app("orders"), 0)
			b.ReportAllocs()
			for i := range b.N {
				to := []string{"orders", "ledger"}[(i+1)%2]
				g.Apply(objects(selects("caller-1", calls(to))))
			}
		})
	}
}
