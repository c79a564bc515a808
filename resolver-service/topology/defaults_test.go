package topology

import (
	"context"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func defaults(namespace string, endpoints ...catalog.Endpoint) *catalog.AppEndpoints {
	s := selects(catalog.DefaultName, endpoints...)
	s.App.Namespace = namespace
	for i := range s.Endpoints {
		s.Endpoints[i].App.Namespace = namespace
	}
	return s
}

func defaultKey(namespace string) catalog.Key {
	return catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: namespace, Name: catalog.DefaultName}
}

func TestAppsWithoutASelectionFollowADefault(t *testing.T) {
	top := running(t, west)
	east := &catalog.Cluster{Name: "east", Gateways: []string{"10.9.0.1:15443"}}
	top.must(t, full(east))
	top.must(t, runs("checkout", "1", "10.0.0.1:50002"))
	top.must(t, runs("orders", "1", "10.0.0.2:50002"))
	top.must(t, says("east", has("ledger", 1)))
	top.must(t, lease("east", Fresh))
	ask := func(caller, callee, want string) {
		t.Helper()
		if got := show(top.Resolve(app(caller), app(callee))); got != want {
			t.Errorf("%s asks for %s: %s, want %s", caller, callee, got, want)
		}
	}
	remote := "ok ledger.shop.east.isthmus.internal:15443 east"
	ask("checkout", "orders", "ok 10.0.0.2:50002 west")
	ask("checkout", "ledger", "not found")

	top.must(t, objects(defaults(catalog.DefaultName, calls("ledger"))))
	ask("checkout", "ledger", remote)
	ask("checkout", "orders", "denied")
	ask("nobody-runs", "ledger", remote)
	ask("checkout", "checkout", "ok 10.0.0.1:50002 west")
	if d := top.Resolve(app("checkout"), app("ledger")); d.Rule != "AppEndpoints */*, spec.endpoints[0] (line 0)" {
		t.Errorf("the rule is %q", d.Rule)
	}

	top.must(t, objects(defaults("shop", calls("orders"), calls("checkout"))))
	ask("checkout", "orders", "ok 10.0.0.2:50002 west")
	ask("checkout", "ledger", "denied")
	ask("checkout", "checkout", "ok 10.0.0.1:50002 west")

	top.must(t, objects(selects("checkout", calls("ledger"))))
	ask("checkout", "ledger", remote)
	ask("checkout", "orders", "denied")
	ask("orders", "checkout", "ok 10.0.0.1:50002 west")

	top.must(t, deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}))
	ask("checkout", "ledger", "denied")
	top.must(t, deletes(defaultKey("shop")))
	ask("checkout", "ledger", remote)
	top.must(t, deletes(defaultKey(catalog.DefaultName)))
	ask("checkout", "ledger", "not found")
	ask("nobody-runs", "orders", "ok 10.0.0.2:50002 west")
}

// TestNobodyWhoFollowsADefaultSeesEverything has apps subscribe that no instance is known of.
func TestNobodyWhoFollowsADefaultSeesEverything(t *testing.T) {
	top := running(t, west)
	top.must(t, full(defaults("shop", calls("orders"))))
	top.must(t, runs("orders", "1", "10.0.0.2:50002"))
	top.must(t, runs("ledger", "1", "10.0.0.3:50002"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 200 {
		s := top.Subscribe(app("stranger"))
		view, err := s.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, sees := view.Entries.Get(app("ledger")); sees || view.Open {
			t.Fatal("a stranger sees an app that the default does not hold")
		}
		if owns, _ := s.Owns(); !owns {
			t.Fatal("a follower of a default has no view of its own")
		}
		s.Close()
	}
	s := top.Subscribe(app("stranger"))
	defer s.Close()
	view, err := s.Next(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	top.must(t, deletes(defaultKey("shop")))
	for view != nil && !view.Open {
		if view, err = s.Next(ctx, view); err != nil {
			t.Fatal(err)
		}
	}
	top.must(t, objects(defaults("shop", calls("ledger"))))
	for view.Open {
		if view, err = s.Next(ctx, view); err != nil {
			t.Fatal(err)
		}
	}
	if _, sees := view.Entries.Get(app("ledger")); !sees {
		t.Error("the follower does not see the new default's app")
	}
}

// BenchmarkChangesOfADefault is a changed default that ten apps follow, among 10,000 that have a
// selection of their own.
func BenchmarkChangesOfADefault(b *testing.B) {
	g := NewGraph(west)
	var all []catalog.Object
	for i := range 10_000 {
		all = append(all, selects("app-"+string(rune('a'+i%26))+time.Duration(i).String(), calls("orders")))
	}
	g.Apply(full(all...))
	for i := range 10 {
		g.Apply(runs("follower-"+string(rune('a'+i)), "1", "10.0.1."+string(rune('0'+i))+":50002"))
	}
	b.ReportAllocs()
	for i := range b.N {
		g.Apply(objects(defaults("shop", calls([]string{"orders", "ledger"}[i%2]))))
	}
}
