package topology

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
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
	if d := g.defaults.follow(caller); d != nil {
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

// TestAcrossNamespacesTheCalleeConsents has apps of three namespaces select, export, start and stop
// at random. The guard lets in whom lookups lead here and, from another namespace, the callee's
// AppExport allows; what follows the changes is what would be computed from nothing.
func TestAcrossNamespacesTheCalleeConsents(t *testing.T) {
	var apps []catalog.App
	for _, namespace := range []string{"shop", "tenant", "bank"} {
		for _, id := range []string{"a", "b"} {
			apps = append(apps, catalog.App{Namespace: namespace, ID: id})
		}
	}
	consented := map[bool]int{}
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 11))
		cfg := Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: seed%2 == 0, SelectionIsConsent: seed%8 == 7, Declared: Declared{Annotations: true, Sidecars: true}}
		g := NewGraph(cfg)
		pick := func() catalog.App { return apps[r.IntN(len(apps))] }
		one := func(of ...string) string { return of[r.IntN(len(of))] }
		exports := map[catalog.App][]catalog.Allow{}
		g.Apply(full(&catalog.Cluster{Name: "east", Trust: catalog.Trust{Domain: "east.example"}}))
		for _, a := range apps {
			g.accesses.keep(a, 0)
		}
		for step := range 120 {
			a := pick()
			switch r.IntN(7) {
			case 0, 1:
				s := &catalog.AppEndpoints{App: a}
				for range r.IntN(4) {
					s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: pick()})
				}
				g.Apply(objects(s))
			case 2:
				g.Apply(deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: a.Namespace, Name: a.ID}))
			case 3:
				e := &catalog.AppExport{App: a}
				for range r.IntN(3) {
					e.Allow = append(e.Allow, catalog.Allow{
						Cluster: one("", "*", "local", "west", "east"), Namespace: one("", "*", "shop", "tenant"), App: one("", "*", "a", "b"),
					})
				}
				exports[a] = e.Allow
				g.Apply(objects(e))
			case 4:
				delete(exports, a)
				g.Apply(deletes(catalog.Key{Kind: catalog.KindAppExport, Namespace: a.Namespace, Name: a.ID}))
			case 5:
				i := catalog.Instance{ID: "1", App: a, Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:50002", 1+slices.Index(apps, a)))}
				rank := []Rank{Scheduled, Live}[r.IntN(2)]
				if r.IntN(2) == 0 {
					i.Calls, _ = catalog.ParseCalls(a.Namespace, pick().ID+"."+pick().Namespace)
				}
				g.Apply(Change{Instances: []InstanceChange{{Source: fmt.Sprint(rank), Rank: rank, Put: []catalog.Instance{i}}}})
			case 6:
				for _, rank := range []Rank{Scheduled, Live} {
					g.Apply(Change{Instances: []InstanceChange{{Source: fmt.Sprint(rank), Rank: rank, Delete: []InstanceKey{{App: a, ID: "1"}}}}})
				}
			}
			if step%4 == 0 {
				if _, err := g.Try(ObjectChange{Put: []catalog.Object{&catalog.AppExport{App: a, Allow: []catalog.Allow{{}}}}}, func(Facts) {}); err != nil {
					t.Fatal(err)
				}
			}
			callees := map[catalog.App]Callee{}
			for _, to := range apps {
				access := g.accesses.followed[to]
				if whole := g.accesses.whole(to, 0); !access.Same(whole) {
					t.Fatalf("seed %d, step %d: %s: followed %v, from nothing %v", seed, step, to, access, whole)
				}
				callees[to] = g.accesses.callee(to, 0)
				for _, from := range apps {
					caller := g.apps[from]
					if from == to || caller == nil || len(caller.instances) == 0 {
						continue
					}
					consent := cfg.SelectionIsConsent || from.Namespace == to.Namespace || slices.ContainsFunc(exports[to], func(e catalog.Allow) bool {
						return e.Cluster != "east" && (e.Namespace == "" || e.Namespace == "*" || e.Namespace == from.Namespace) && (e.App == "" || e.App == "*" || e.App == from.ID)
					})
					selects := g.accesses.selects(to, from) || g.accesses.undeclared.all.Has(from)
					_, in := access.Judge(true, catalog.Principal{Domain: "west.example", App: from})
					if in != (selects && consent) {
						t.Fatalf("seed %d, step %d: %s selects %s: %t; consent %t; let in %t", seed, step, from, to, selects, consent, in)
					}
					c := callees[to]
					if lacks := c.Lacks(from); (lacks == "") != in {
						t.Fatalf("seed %d, step %d: %s calls %s: let in %t, lacks %q", seed, step, from, to, in, lacks)
					}
					if from.Namespace != to.Namespace && selects {
						consented[consent]++
					}
				}
				outward := slices.ContainsFunc(exports[to], func(e catalog.Allow) bool { return e.Cluster == "" || e.Cluster == "*" || e.Cluster == "east" })
				if _, there := g.exports.gateway.Backends.Get(to); there != outward {
					t.Fatalf("seed %d, step %d: the gateway leads to %s: %t, want %t", seed, step, to, there, outward)
				}
				if export, there := g.Peer("east", nil).Exports.Get(to); there != outward || there && slices.ContainsFunc(export.Allow, func(a catalog.Allow) bool { return a.Cluster != "east" }) {
					t.Fatalf("seed %d, step %d: east is told of %s: %v, want %t", seed, step, to, export, outward)
				}
			}
		}
	}
	if consented[true] < 100 || consented[false] < 100 {
		t.Errorf("calls across namespaces by consent: %v", consented)
	}
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
