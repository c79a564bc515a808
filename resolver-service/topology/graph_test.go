package topology

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

var west = Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}

func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

func selects(caller string, endpoints ...catalog.Endpoint) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: app(caller), Endpoints: endpoints}
}

func calls(callee string, routes ...catalog.RouteSpec) catalog.Endpoint {
	return catalog.Endpoint{App: app(callee), Routes: routes}
}

func via(cluster string, priority, weight uint32) catalog.RouteSpec {
	return catalog.RouteSpec{Cluster: cluster, Priority: priority, Weight: weight}
}

func exports(id string, allow ...catalog.Allow) *catalog.AppExport {
	return &catalog.AppExport{App: app(id), Allow: allow}
}

func reaches(name string, gateways ...string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Gateways: gateways}
}

func objects(put ...catalog.Object) Change { return Change{Objects: &ObjectChange{Put: put}} }

func full(put ...catalog.Object) Change { return Change{Objects: &ObjectChange{Full: true, Put: put}} }

func deletes(keys ...catalog.Key) Change { return Change{Objects: &ObjectChange{Delete: keys}} }

func runs(id, instance, address string) Change {
	return Change{Instances: []InstanceChange{{Source: "test", Put: []catalog.Instance{at(id, instance, address)}}}}
}

func at(id, instance, address string) catalog.Instance {
	return catalog.Instance{ID: instance, App: app(id), Address: netip.MustParseAddrPort(address)}
}

func stops(id, instance string) Change {
	return Change{Instances: []InstanceChange{{Source: "test", Delete: []InstanceKey{{app(id), instance}}}}}
}

func says(cluster string, put ...PeerExport) Change {
	return Change{Peers: []PeerChange{{Cluster: cluster, Put: put, Lease: Fresh}}}
}

func has(id string, ready uint32) PeerExport {
	return PeerExport{App: app(id), Allow: []catalog.Allow{{}}, Ready: ready}
}

func lease(cluster string, l Lease) Change {
	return Change{Peers: []PeerChange{{Cluster: cluster, Lease: l}}}
}

// viewOf is what an app is served.
func (g *Graph) viewOf(a catalog.App) *catalog.View {
	if n := g.apps[a]; n != nil && n.view != nil {
		return n.view
	}
	return g.views.open
}

// show is a decision in one line: "outcome address cluster".
func show(d catalog.Decision) string {
	s := d.Outcome.String()
	if d.Outcome == catalog.OK {
		s += " " + d.Address + " " + d.Cluster
	}
	return s
}

func TestALookupFollowsTheRules(t *testing.T) {
	const east = "orders.shop.east.isthmus.internal:15443"
	local := runs("orders", "1", "10.0.0.1:50002")
	tests := []struct {
		name   string
		config func(*Config)
		given  []Change
		from   string // checkout where empty
		to     string // orders where empty
		want   string
	}{
		{name: "an app without a selection resolves its own cluster",
			given: []Change{full(), local}, want: "ok 10.0.0.1:50002 west"},
		{name: "and nothing that is only elsewhere",
			given: []Change{full(reaches("east", "10.9.0.1:15443")), says("east", has("orders", 1))}, want: "not found"},
		{name: "with the default none it is denied everything",
			config: func(c *Config) { c.Open = false }, given: []Change{full(), local}, want: "denied"},
		{name: "what a selection does not hold is denied, though it runs here",
			given: []Change{full(selects("checkout", calls("ledger"))), local}, want: "denied"},
		{name: "and denied in the same way when it exists nowhere",
			given: []Change{full(selects("checkout", calls("ledger"))), local}, to: "nowhere", want: "denied"},
		{name: "an empty selection leaves an app itself",
			given: []Change{full(selects("orders")), local}, from: "orders", want: "ok 10.0.0.1:50002 west"},
		{name: "without routes the own cluster comes first",
			given: []Change{full(selects("checkout", calls("orders")), reaches("east", "10.9.0.1:15443")), says("east", has("orders", 1)), local},
			want:  "ok 10.0.0.1:50002 west"},
		{name: "then whatever exports it",
			given: []Change{full(selects("checkout", calls("orders")), reaches("east", "10.9.0.1:15443")), says("east", has("orders", 1))},
			want:  "ok " + east + " east"},
		{name: "a draining instance is not ready",
			given: []Change{full(selects("checkout", calls("orders"))), {Instances: []InstanceChange{{Source: "test", Put: []catalog.Instance{{
				ID: "1", App: app("orders"), Address: netip.MustParseAddrPort("10.0.0.1:50002"), Draining: true}}}}}},
			want: "unavailable"},
		{name: "an export to others does not count",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", PeerExport{App: app("orders"), Allow: []catalog.Allow{{Namespace: "finance"}}, Ready: 1})},
			want: "unavailable"},
		{name: "a cluster without an object is no way",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1)))), says("east", has("orders", 1))}, want: "unavailable"},
		{name: "a lease that ran out withdraws",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", has("orders", 1)), lease("east", Expired)},
			want: "stale"},
		{name: "or serves, where the selection says so",
			given: []Change{full(selects("checkout", catalog.Endpoint{App: app("orders"), Routes: []catalog.RouteSpec{via("east", 0, 1)}, WhenStale: catalog.Serve}),
				reaches("east", "10.9.0.1:15443")), says("east", has("orders", 1)), lease("east", Expired)},
			want: "ok " + east + " east"},
		{name: "until it is fresh again",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", has("orders", 1)), lease("east", Expired), lease("east", Fresh)},
			want: "ok " + east + " east"},
		{name: "a damped cluster is held back where another way is ready",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1), via("local", 1, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", has("orders", 1)), lease("east", Expired), lease("east", Damped), local},
			want: "ok 10.0.0.1:50002 west"},
		{name: "and used where none is",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1), via("local", 1, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", has("orders", 1)), local, lease("east", Expired), lease("east", Damped), stops("orders", "1")},
			want: "ok " + east + " east"},
		{name: "but not once its lease has run out",
			given: []Change{full(selects("checkout", calls("orders", via("east", 0, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", has("orders", 1)), lease("east", Damped), lease("east", Expired)},
			want: "stale"},
		{name: "nor held back from who goes on with what it said",
			given: []Change{full(selects("checkout", catalog.Endpoint{App: app("orders"), Routes: []catalog.RouteSpec{via("east", 0, 1), via("local", 1, 1)}, WhenStale: catalog.Serve}),
				reaches("east", "10.9.0.1:15443")), says("east", has("orders", 1)), lease("east", Damped), local},
			want: "ok " + east + " east"},
		{name: "the lowest priority with anything ready wins",
			given: []Change{full(selects("checkout", calls("orders", via("east", 5, 1), via("local", 9, 1))), reaches("east", "10.9.0.1:15443")),
				says("east", has("orders", 1)), local},
			want: "ok " + east + " east"},
		{name: "weight 0 takes nothing, even alone",
			given: []Change{full(selects("checkout", calls("orders", via("local", 0, 0)))), local}, want: "unavailable"},
		{name: "a route may name the own cluster",
			given: []Change{full(selects("checkout", calls("orders", via("west", 0, 1)))), local}, want: "ok 10.0.0.1:50002 west"},
		{name: "on one network instances are reached directly",
			config: func(c *Config) { c.Network = "net-1" },
			given: []Change{full(selects("checkout", calls("orders")), &catalog.Cluster{Name: "east", Gateways: []string{"10.9.0.1:15443"}, Network: "net-1"}),
				says("east", PeerExport{App: app("orders"), Allow: []catalog.Allow{{}}, Ready: 1, Addresses: []string{"10.7.0.1:50002"}})},
			want: "ok 10.7.0.1:50002 east"},
		{name: "the host name carries the port of the first gateway",
			given: []Change{full(selects("checkout", calls("orders")), reaches("east", "10.9.0.1:443", "10.9.0.2:15443")), says("east", has("orders", 1))},
			want:  "ok orders.shop.east.isthmus.internal:443 east"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := west
			if test.config != nil {
				test.config(&config)
			}
			g := NewGraph(config)
			for _, change := range test.given {
				g.Apply(change)
			}
			from, to := test.from, test.to
			if from == "" {
				from = "checkout"
			}
			if to == "" {
				to = "orders"
			}
			if got := show(g.viewOf(app(from)).Explain(app(to))); got != test.want {
				t.Errorf("%s asks for %s: got %q, want %q", from, to, got, test.want)
			}
		})
	}
}

func TestDeniedReadsTheSameWhetherTheAppExists(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("ledger"))))
	g.Apply(runs("orders", "1", "10.0.0.1:50002"))
	v := g.viewOf(app("checkout"))
	real, ghost := v.Explain(app("orders")), v.Explain(app("ghosts"))
	if real.Reason != strings.Replace(ghost.Reason, "ghosts", "orders", 1) {
		t.Errorf("the reasons differ:\n%s\n%s", real.Reason, ghost.Reason)
	}
}

func TestNothingIsServedBeforeTheFullSet(t *testing.T) {
	g := NewGraph(west)
	u := g.Apply(runs("orders", "1", "10.0.0.1:50002"))[0]
	if u.Open != nil || u.Gateway != nil || len(u.Views) != 0 {
		t.Fatalf("served before the store was read: %+v", u)
	}
	u = g.Apply(full(exports("orders", catalog.Allow{})))[0]
	if u.Open == nil || u.Gateway == nil {
		t.Fatalf("the full set did not bring views: %+v", u)
	}
	if _, err := u.Open.Find(app("orders")); err != nil {
		t.Errorf("an instance that was there before is missing: %v", err)
	}
	if b, _, ok := u.Gateway.Lookup("orders.shop.west.isthmus.internal"); !ok || len(b.Instances) != 1 {
		t.Errorf("the gateway misses the exported app: %+v", b)
	}
}

func TestAChangeReachesNoOtherView(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders")), selects("cart", calls("ledger")), reaches("east", "10.9.0.1:15443")))
	u := g.Apply(runs("orders", "1", "10.0.0.1:50002"))[0]
	if len(u.Views) != 1 || u.Views[0].App != app("checkout") {
		t.Errorf("views changed: %+v, want that of checkout only", u.Views)
	}
	for name, same := range map[string]Change{
		"the same instance":        runs("orders", "1", "10.0.0.1:50002"),
		"an equal object":          objects(selects("cart", calls("ledger"))),
		"an equal cluster":         objects(reaches("east", "10.9.0.1:15443")),
		"an app nobody selects":    says("east", has("unknown", 3)),
		"a deletion of nothing":    deletes(catalog.Key{Kind: catalog.KindCluster, Name: "north"}),
		"an instance that is gone": stops("orders", "9"),
	} {
		if again := g.Apply(same)[0]; again.Revision != g.Revision() || len(again.Views) != 0 {
			t.Errorf("%s changed something: %+v", name, again)
		}
	}
}

func TestGatewaysOfAView(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders")), reaches("east", "10.9.0.1:15443"), reaches("north", "10.9.1.1:15443")))
	g.Apply(says("east", has("orders", 1)))
	check := func(want string) {
		t.Helper()
		if got := fmt.Sprint(g.viewOf(app("checkout")).Gateways.Addresses); got != want {
			t.Errorf("gateways %s, want %s", got, want)
		}
	}
	check("map[east:[10.9.0.1:15443]]")
	g.Apply(objects(reaches("east", "10.9.0.2:15443", "10.9.0.3:15443")))
	check("map[east:[10.9.0.2:15443 10.9.0.3:15443]]")
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true, Lease: Fresh}}})
	check("map[]")
}

func TestAPeerKnowsOnlyWhatIsExportedToIt(t *testing.T) {
	g := NewGraph(west)
	g.Peer("east", nil)
	g.Apply(full(
		exports("orders", catalog.Allow{Cluster: "east", Namespace: "shop", App: "cart"}, catalog.Allow{Cluster: "north"}),
		exports("ledger", catalog.Allow{Cluster: "north"}),
		exports("closed")))
	u := g.Apply(runs("orders", "1", "10.0.0.1:50002"))[0]
	view := u.Peers[PeerKey{Cluster: "east"}]
	if view == nil || view.Exports.Len() != 1 {
		t.Fatalf("east knows %+v, want orders only", view)
	}
	e, _ := view.Exports.Get(app("orders"))
	if e == nil || e.Ready != 1 || len(e.Allow) != 1 || e.Addresses != nil {
		t.Errorf("east is told %+v, want 1 ready, one entry that allows, and no address", e)
	}
	if u := g.Apply(runs("ledger", "1", "10.0.0.2:50002"))[0]; len(u.Peers) != 0 {
		t.Errorf("east was told of an app that is not exported to it: %+v", u.Peers)
	}
}

func TestARevisionNeverGoesBackwards(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders"))))
	raised := g.Raise(app("checkout"), 500)
	if v := g.viewOf(app("checkout")); v.Revision <= 500 || len(raised.Views) != 1 {
		t.Errorf("revision %d after a sidecar came with 500", v.Revision)
	}
	own := g.viewOf(app("checkout")).Revision
	g.Apply(deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}))
	if v := g.viewOf(app("checkout")); !v.Open || v.Revision <= own {
		t.Errorf("revision %d after %d, when the selection was deleted", v.Revision, own)
	}
	if u := g.Raise(app("cart"), 10_000); u.Open == nil || u.Open.Revision <= 10_000 {
		t.Errorf("an app without a selection was not raised: %+v", u)
	}
}

func TestAnAppNobodyNamesIsForgotten(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders", via("east", 0, 1))), exports("orders"), reaches("east", "10.9.0.1:1")))
	g.Apply(runs("orders", "1", "10.0.0.1:50002"))
	g.Apply(says("east", has("orders", 1)))
	g.Apply(stops("orders", "1"))
	g.Apply(Change{Objects: &ObjectChange{Full: true}})
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true}}})
	if len(g.apps) != 0 || g.views.open.Entries.Len() != 0 || g.exports.gateway.Backends.Len() != 0 {
		t.Errorf("left behind: apps %v, open view %d, gateway %d", g.apps, g.views.open.Entries.Len(), g.exports.gateway.Backends.Len())
	}
	if s := g.Stats(); s != (Stats{}) {
		t.Errorf("stats %+v of an empty graph", s)
	}
}

func TestNothingStaysOfWhatGoesBeforeTheFullSet(t *testing.T) {
	g := NewGraph(west)
	for range 100 {
		g.Apply(runs("orders", "1", "10.0.0.1:50002"))
		g.Apply(stops("orders", "1"))
	}
	if n := len(g.apps) + len(g.dirty.presents); n != 0 {
		t.Errorf("%d things are kept of an app that is gone", n)
	}
}
