package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func ids(apps *catalog.AppSet) string {
	var all []string
	for a := range apps.All() {
		all = append(all, a.ID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestInterest is in what a selection, a default or a guest may lead to, as of each change.
func TestInterest(t *testing.T) {
	top := running(t, west)
	interest, err := top.Need(t.Context(), "east")
	if err != nil {
		t.Fatal(err)
	}
	defer interest.Close()
	if _, ok := interest.View(); ok {
		t.Error("there is an interest before the store's full set")
	}
	fallback := func(namespace string, endpoints ...catalog.Endpoint) *catalog.AppEndpoints {
		return &catalog.AppEndpoints{App: catalog.App{Namespace: namespace, ID: catalog.DefaultName}, Endpoints: endpoints}
	}
	relative := catalog.Endpoint{App: catalog.App{Namespace: catalog.DefaultName, ID: "mail"}}
	everywhere := fallback(catalog.DefaultName, relative)
	for _, step := range []struct {
		what   string
		change Change
		want   string
		used   bool
	}{
		{"exports of which none is selected", says("east", has("orders", 1), has("ledger", 2), has("mail", 1)), "", false},
		{"the full set, with a cluster and a selection", full(reaches("east", "10.9.0.1:15443"), selects("checkout", calls("orders"))), "orders", true},
		{"a route to another cluster", objects(selects("checkout", calls("orders", via("north", 0, 1)), calls("ledger", via("east", 0, 1)))), "ledger", true},
		{"a route to it by which it exports nothing", objects(selects("checkout", calls("orders", via("north", 0, 1)), calls("vault", via("east", 0, 1)))), "", true},
		{"a route to another cluster alone", objects(selects("checkout", calls("orders", via("north", 0, 1)))), "", false},
		{"the route as before", objects(selects("checkout", calls("orders", via("north", 0, 1)), calls("ledger", via("east", 0, 1)))), "ledger", true},
		{"a second caller without routes", objects(selects("cart", calls("orders"))), "ledger orders", true},
		{"the first one's end", deletes(selects("checkout").Key()), "orders", true},
		{"an app that calls itself", objects(selects("ledger", calls("ledger"))), "orders", true},
		{"a default", objects(fallback("shop", calls("ledger"))), "ledger orders", true},
		{"a default for all, of the follower's namespace", objects(everywhere), "ledger mail orders", true},
		{"its end", deletes(everywhere.Key()), "ledger orders", true},
		{"an export that goes", Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{app("orders")}}}}, "ledger", true},
		{"and comes back", says("east", has("orders", 0)), "ledger orders", true},
		{"the end of the other default", deletes(fallback("shop").Key()), "orders", true},
		{"the cluster as a guest", objects(&catalog.Cluster{Name: "east", Tunnel: catalog.TunnelAccept, Guest: &catalog.Guest{Apps: []catalog.App{app("orders")}}}), "ledger mail orders", true},
		{"the cluster as none", objects(reaches("east", "10.9.0.1:15443")), "orders", true},
	} {
		top.must(t, step.change)
		need, _ := interest.View()
		if need == nil {
			continue
		}
		if ids(need.Apps) != step.want || need.Used != step.used {
			t.Errorf("after %s: %q, used %v; want %q, %v", step.what, ids(need.Apps), need.Used, step.want, step.used)
		}
	}
	var during string
	if _, err := top.Try(t.Context(), ObjectChange{Put: []catalog.Object{selects("cart", calls("mail"))}}, func(f Facts) { during = ids(f.g.interests.kept["east"].Apps) }); err != nil {
		t.Fatal(err)
	}
	if need, _ := interest.View(); during != "mail" || ids(need.Apps) != "orders" {
		t.Errorf("what was only tried leads to %q and then %q", during, ids(need.Apps))
	}
	again, err := top.Need(t.Context(), "east")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if need, ok := again.View(); !ok || ids(need.Apps) != "orders" {
		t.Errorf("who comes later gets %v", need)
	}
}

// TestWhatIsOnlyNamedHasNoRoute, and the route comes with the rest.
func TestWhatIsOnlyNamedHasNoRoute(t *testing.T) {
	top := running(t, west)
	top.must(t, full(reaches("east", "10.9.0.1:15443"), selects("checkout", calls("orders"))))
	need, err := top.Need(t.Context(), "east")
	if err != nil {
		t.Fatal(err)
	}
	defer need.Close()
	named := PeerExport{App: app("orders"), Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1, Named: true}
	top.must(t, says("east", named))
	if d := top.Resolve(app("checkout"), app("orders")); d.Outcome != catalog.NotReady {
		t.Errorf("only named: %+v", d)
	}
	top.must(t, says("east", has("orders", 1)))
	if d := top.Resolve(app("checkout"), app("orders")); d.Cluster != "east" {
		t.Errorf("known: %+v", d)
	}
	top.must(t, deletes(selects("checkout").Key()))
	top.must(t, says("east", named))
	effects, err := top.Try(t.Context(), ObjectChange{Put: []catalog.Object{selects("cart", calls("orders"))}}, func(Facts) {})
	if err != nil || !slices.ContainsFunc(effects.Lookups, func(e Effect) bool { return e.App == app("orders") && e.After.Cluster == "east" }) {
		t.Errorf("a trial has %+v, %v; want what it will be once the rest has come", effects.Lookups, err)
	}
}

// TestAViewByAnInterest has all of some exports and the names of others, in every order of changes;
// and one that goes on from another interest's is the same as one from nothing.
func TestAViewByAnInterest(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := NewGraph(west)
		g.Apply(full(reaches("east", "10.9.0.1:15443")))
		apps := []string{"a", "b", "c", "d"}
		var by *catalog.AppSet
		for step := range 40 {
			id := apps[r.IntN(len(apps))]
			switch r.IntN(4) {
			case 0:
				g.Apply(runs(id, fmt.Sprint(step), fmt.Sprintf("10.0.0.%d:50002", step+1)))
			case 1:
				g.Apply(objects(exports(id, catalog.Allow{Cluster: "east"})))
			case 2:
				g.Apply(deletes(exports(id).Key()))
			default:
				by = by.With([]catalog.App{app(id)}, []catalog.App{app(apps[r.IntN(len(apps))])})
			}
			interest := &Interest{Apps: by}
			was := g.Peer("east", interest)
			for a, e := range g.Peer("east", nil).Exports.All() {
				got, told := was.Exports.Get(a)
				switch {
				case !told, by.Has(a) && !got.same(e):
					t.Fatalf("seed %d, step %d: %s is told as %+v, and is %+v", seed, step, a, got, e)
				case !by.Has(a) && (!got.Named || got.Ready != min(e.Ready, 1) || !slices.Equal(got.Allow, e.Allow) || len(got.Addresses)+len(got.Instances) > 0):
					t.Fatalf("seed %d, step %d: %s is no interest, and is told as %+v", seed, step, a, got)
				}
			}
			if all := g.Peer("east", nil).Exports.Len(); was.Exports.Len() != all {
				t.Fatalf("seed %d, step %d: %d exports are told of %d", seed, step, was.Exports.Len(), all)
			}
		}
	}
}

// TestAnOfferHasNoNode until the app is of use here, and again when it is no more; and it is known all
// the same.
func TestAnOfferHasNoNode(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(reaches("east", "10.9.0.1:15443"), reaches("north", "10.9.0.2:15443")))
	named := func(id string) PeerExport {
		return PeerExport{App: app(id), Allow: []catalog.Allow{{Cluster: "west", App: "checkout"}}, Ready: 1, Named: true}
	}
	g.Apply(says("east", named("orders"), named("ledger"), named("mail")))
	g.Apply(says("north", named("orders"), named("mail")))
	known := func(when string, nodes, offers int) {
		t.Helper()
		if got := len(g.clusters["east"].offers) + len(g.clusters["north"].offers); len(g.apps) != nodes || got != offers {
			t.Errorf("%s: %d nodes and %d offers; want %d and %d", when, len(g.apps), got, nodes, offers)
		}
		f := Facts{g}
		exporters := f.Exporters(app("orders"))
		slices.Sort(exporters)
		exported, allowed := f.Exports("north", app("orders"), app("checkout"))
		_, others := f.Exports("north", app("orders"), app("cart"))
		apps := slices.SortedFunc(f.Apps(), catalog.App.Compare)
		if !slices.Equal(exporters, []string{"east", "north"}) || !exported || !allowed || others || !slices.Equal(slices.Compact(apps), []catalog.App{app("ledger"), app("mail"), app("orders")}) {
			t.Errorf("%s: exported by %v, to checkout %v %v, to cart %v; apps %v", when, exporters, exported, allowed, others, apps)
		}
		if reports := g.imports.reports(app("checkout"), app("mail")); !reports[0].Exported || !reports[1].Allowed {
			t.Errorf("%s: reported as %+v", when, reports)
		}
	}
	known("at first", 0, 5)
	g.Apply(objects(selects("checkout", calls("orders", via("north", 0, 1)))))
	known("selected", 2, 3)
	g.Apply(deletes(selects("checkout").Key()))
	known("selected no more", 0, 5)
	g.Apply(objects(&catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: catalog.DefaultName}, Endpoints: []catalog.Endpoint{calls("mail")}}))
	known("in a default", 1, 3)
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true, Put: []PeerExport{named("ledger")}}}})
	if len(g.clusters["east"].offers) != 1 || len(g.remotesOf(app("mail"))) != 1 {
		t.Errorf("after a full set of one: %v; mail by %v", g.clusters["east"].offers, g.remotesOf(app("mail")))
	}
	g.Apply(deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: catalog.DefaultName}))
	for _, name := range []string{"east", "north"} {
		g.Apply(Change{Peers: []PeerChange{{Cluster: name, Full: true, Lease: Forgotten}}})
		g.Apply(deletes(reaches(name).Key()))
	}
	if len(g.apps)+len(g.clusters) > 0 {
		t.Errorf("in the end there are %d nodes and %d clusters", len(g.apps), len(g.clusters))
	}
}

// TestALookupAwaitsWhatAClusterIsAskedFor, in each state of the cluster, and for so long.
func TestALookupAwaitsWhatAClusterIsAskedFor(t *testing.T) {
	named := PeerExport{App: app("orders"), Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1, Named: true}
	lease := func(l Lease, exports ...PeerExport) Change {
		return Change{Peers: []PeerChange{{Cluster: "east", Put: exports, Lease: l}}}
	}
	everywhere, there, served := calls("orders"), calls("orders", via("east", 0, 1)), calls("orders", via("east", 0, 1))
	served.WhenStale = catalog.Serve
	instead := runs("orders", "1", "10.0.0.1:50002")
	for name, c := range map[string]struct {
		before     []Change
		endpoint   catalog.Endpoint
		unfollowed bool // no link asks the cluster
		want, late catalog.Outcome
	}{
		"it is heard, and has said the name":           {[]Change{lease(Fresh, named)}, everywhere, false, catalog.NotReady, catalog.Unavailable},
		"likewise, by a route that names it":           {[]Change{lease(Fresh, named)}, there, false, catalog.NotReady, catalog.Unavailable},
		"it is damped":                                 {[]Change{lease(Fresh, named), lease(Damped)}, there, false, catalog.NotReady, catalog.Unavailable},
		"its lease has run out":                        {[]Change{lease(Fresh, named), lease(Expired)}, there, false, catalog.Stale, catalog.Stale},
		"likewise, where it is served":                 {[]Change{lease(Fresh, named), lease(Expired)}, served, false, catalog.Unavailable, catalog.Unavailable},
		"it rests":                                     {[]Change{lease(Resting, named)}, everywhere, false, catalog.NotReady, catalog.Unavailable},
		"it rests, and said no such name":              {[]Change{lease(Resting)}, there, false, catalog.NotReady, catalog.Unavailable},
		"it rests, and did not answer when last asked": {[]Change{lease(Resting, named), lease(Silent)}, there, false, catalog.Unavailable, catalog.Unavailable},
		"it rests, and answered again":                 {[]Change{lease(Resting, named), lease(Silent), lease(Resting)}, there, false, catalog.NotReady, catalog.Unavailable},
		"it was never heard":                           {nil, there, false, catalog.NotReady, catalog.Unavailable},
		"it was never heard, and does not answer":      {[]Change{lease(Silent)}, there, false, catalog.Unavailable, catalog.Unavailable},
		"nothing asks it":                              {nil, there, true, catalog.Unavailable, catalog.Unavailable},
		"another way is ready":                         {[]Change{lease(Fresh, named), instead}, everywhere, false, catalog.OK, catalog.OK},
		"it exports no such app":                       {[]Change{lease(Fresh)}, there, false, catalog.Unavailable, catalog.Unavailable},
	} {
		g := NewGraph(west)
		g.Apply(full(reaches("east", "10.9.0.1:15443")))
		if !c.unfollowed {
			g.interests.keep("east")
		}
		for _, change := range c.before {
			g.Apply(change)
		}
		outcome := func(after Change) catalog.Outcome {
			g.Apply(after)
			e, _ := g.viewOf(app("checkout")).Entries.Get(app("orders"))
			return e.Outcome()
		}
		at := func(now time.Duration) Change { return Change{Now: now} }
		selected := objects(selects("checkout", c.endpoint))
		selected.Now = 10 * second
		if got, then, late := outcome(selected), outcome(at(12*second-1)), outcome(at(12*second)); got != c.want || then != c.want || late != c.late {
			t.Errorf("%s: a new selection has %v, %v and later %v; want %v and later %v", name, got, then, late, c.want, c.late)
		}
		if _, due := g.NextStep(); due {
			t.Errorf("%s: something is still awaited", name)
		}
		if got := outcome(lease(Fresh, has("orders", 1))); c.want != catalog.OK && got != catalog.OK {
			t.Errorf("%s: after the answer %v", name, got)
		}
	}
}

// TestAChangeOfInterestLooksAtWhatDiffers from the interest of the same stream, whatever other streams
// of the peer are interested in.
func TestAChangeOfInterestLooksAtWhatDiffers(t *testing.T) {
	g := NewGraph(Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true})
	objects := []catalog.Object{&catalog.Cluster{Name: "east", Gateways: []string{"gw:1"}}}
	var apps []catalog.App
	for i := range 2000 {
		apps = append(apps, app(fmt.Sprintf("app-%d", i)))
		objects = append(objects, &catalog.AppExport{App: apps[i], Allow: []catalog.Allow{{Cluster: "east"}}})
	}
	g.Apply(Change{Objects: &ObjectChange{Full: true, Put: objects}})
	var none *catalog.AppSet
	g.Peer("east", &Interest{none.With(apps[:1000], nil)})
	own := &Interest{none.With(apps[1000:1999], nil)}
	before := g.Peer("east", own)
	next := &Interest{own.Apps.With(apps[1999:], nil)}
	all := testing.AllocsPerRun(1, func() {
		delete(g.exports.peers, next.Key("east"))
		g.Peer("east", next)
	})
	differs := testing.AllocsPerRun(1, func() {
		delete(g.exports.peers, next.Key("east"))
		g.peer("east", next, own)
	})
	if differs*10 > all {
		t.Errorf("one app more takes %.0f allocations, and a first view %.0f", differs, all)
	}
	now := g.exports.peers[next.Key("east")]
	for edit := range now.Exports.Diff(&before.Exports, func(a, b *PeerExport) bool { return a == b }) {
		if edit.App != apps[1999] {
			t.Errorf("%s is another one", edit.App)
		}
	}
}

// TestANodeThatIsMadeAnewKeepsItsTunnel, in whichever order its change is looked at.
func TestANodeThatIsMadeAnewKeepsItsTunnel(t *testing.T) {
	for range 40 {
		g := NewGraph(Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true})
		orders := app("orders")
		x := &catalog.AppEndpoints{App: app("x"), Endpoints: []catalog.Endpoint{{App: orders}}}
		y := &catalog.AppEndpoints{App: app("y"), Endpoints: []catalog.Endpoint{{App: orders}}}
		export := PeerExport{App: orders, Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1, Named: true}
		g.Apply(Change{Objects: &ObjectChange{Full: true, Put: []catalog.Object{&catalog.Cluster{Name: "north", Tunnel: catalog.TunnelAccept}, x}}})
		g.Apply(Change{Peers: []PeerChange{{Cluster: "north", Lease: Fresh, Put: []PeerExport{export}}}})
		g.Apply(Change{Objects: &ObjectChange{Delete: []catalog.Key{x.Key()}, Put: []catalog.Object{y}}})
		tunnels := g.exports.gateway.Tunnels["north"].Apps
		if _, ok := tunnels.Get(orders); !ok {
			t.Fatal("the gateway passes no calls on to it")
		}
	}
}
