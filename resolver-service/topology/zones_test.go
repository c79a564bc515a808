package topology

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// in is a change by which an instance of orders runs in a zone, as a source says.
func in(source, address, zone string) Change {
	i := at("orders", address, address)
	i.Zone = zone
	return Change{Instances: []InstanceChange{{Source: source, Put: []catalog.Instance{i}}}}
}

// zonesSeen are those of orders in the view of an app.
func (g *Graph) zonesSeen(caller string) string {
	e, ok := g.viewOf(app(caller)).Entries.Get(app("orders"))
	if !ok || len(e.Routes) == 0 {
		return "no route"
	}
	return e.Routes[0].Zones.String()
}

func prefers(callee string, l catalog.Locality) catalog.Endpoint {
	e := calls(callee)
	e.Locality = l
	return e
}

func TestZonesAreToldToCallersThatPreferTheirOwn(t *testing.T) {
	for _, c := range []struct {
		cluster bool // prefers by default
		caller  string
		want    string
	}{
		{false, "open", ""}, {false, "byDefault", ""}, {false, "near", "a: 1, b: 1"}, {false, "far", ""},
		{true, "open", "a: 1, b: 1"}, {true, "byDefault", "a: 1, b: 1"}, {true, "near", "a: 1, b: 1"}, {true, "far", ""},
	} {
		cfg := west
		cfg.PreferZone = c.cluster
		g := NewGraph(cfg)
		g.Apply(full(
			selects("byDefault", calls("orders")), selects("near", prefers("orders", catalog.PreferZone)), selects("far", prefers("orders", catalog.NoLocality)),
		))
		g.Apply(in("kubernetes", "10.0.0.1:1", "a"))
		g.Apply(in("kubernetes", "10.0.0.2:1", "b"))
		if got := g.zonesSeen(c.caller); got != c.want {
			t.Errorf("a cluster that prefers %v: %s sees %q, want %q", c.cluster, c.caller, got, c.want)
		}
	}
}

func TestAnAppThatPrefersItsZoneSeesWhereItIsItself(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("orders", prefers("cart", catalog.PreferZone))))
	g.Apply(in("kubernetes", "10.0.0.1:1", "a"))
	if got := g.zonesSeen("orders"); got != "a: 1" {
		t.Errorf("it sees %q", got)
	}
	g.Apply(full(selects("orders", calls("cart"))))
	if got := g.zonesSeen("orders"); got != "" {
		t.Errorf("it prefers none any more, and sees %q", got)
	}
}

func TestAnotherZoneIsAnotherView(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("near", prefers("orders", catalog.PreferZone)), selects("far", calls("orders"))))
	g.Apply(in("kubernetes", "10.0.0.1:1", "a"))
	near, far := g.viewOf(app("near")), g.viewOf(app("far"))
	g.Apply(in("kubernetes", "10.0.0.1:1", "b"))
	if got := g.zonesSeen("near"); got != "b: 1" || g.viewOf(app("near")).Revision <= near.Revision {
		t.Errorf("it sees %q", got)
	}
	if g.viewOf(app("far")) != far {
		t.Error("who prefers no zone has another view, too")
	}
	// The sidecar's own word counts, until it is gone.
	g.Apply(in("stream", "10.0.0.1:1", "c"))
	if got := g.zonesSeen("near"); got != "c: 1" {
		t.Errorf("the sidecar says c, and %q is seen", got)
	}
	g.Apply(in("stream", "10.0.0.1:1", "not\x1bshown"))
	if got := g.zonesSeen("near"); got != "b: 1" {
		t.Errorf("the sidecar says nothing that can be told, and %q is seen", got)
	}
	g.Apply(Change{Instances: []InstanceChange{{Source: "stream", Full: true}, {Source: "kubernetes", Full: true}}})
	if got := g.zonesSeen("near"); got != "" {
		t.Errorf("all are gone, and %q is seen", got)
	}
}

func TestZonesAreToldToPeers(t *testing.T) {
	for _, network := range []string{"", "net-1"} {
		cfg := west
		cfg.Network = "net-1"
		g := NewGraph(cfg)
		east := reaches("east")
		east.Network = network
		g.Apply(full(east, exports("orders", catalog.Allow{})))
		g.Apply(in("kubernetes", "10.0.0.1:1", "a"))
		g.Apply(in("kubernetes", "10.0.0.2:1", ""))
		e, ok := g.Peer("east", nil).Exports.Get(app("orders"))
		if !ok || e.Zones.String() != "a: 1, unknown: 1" {
			t.Errorf("on network %q told as %v", network, e)
		}
		g.Apply(in("kubernetes", "10.0.0.2:1", "b"))
		if e, _ := g.Peer("east", nil).Exports.Get(app("orders")); e.Zones.String() != "a: 1, b: 1" {
			t.Errorf("on network %q told as %v once the other is known", network, e.Zones)
		}
	}
}

func TestZonesOfPeers(t *testing.T) {
	zones := catalog.NewLabels([]string{"a", "b"})
	gateway, direct := has("orders", 2), has("orders", 2)
	gateway.Instances, gateway.Zones = []uint32{7, 8}, zones
	direct.Addresses, direct.Zones = []string{"10.2.0.1:1", "10.2.0.2:1"}, zones
	for _, c := range []struct {
		what, network string
		export        PeerExport
		taken         bool // the first address is another app's
		want          string
	}{
		{"through a gateway", "", gateway, false, "a: 1, b: 1"},
		{"without names of instances", "", has("orders", 2), false, ""},
		{"on one network", "net-1", direct, false, "a: 1, b: 1"},
		{"on one network, one address another app's", "net-1", direct, true, "b: 1"},
		{"on one network on our side alone", "net-1", gateway, false, "a: 1, b: 1"},
		{"on one network on their side alone", "", direct, false, ""},
	} {
		cfg := west
		cfg.Network = "net-1"
		g := NewGraph(cfg)
		east := reaches("east", "203.0.113.7:15443")
		east.Network = c.network
		g.Apply(full(east, selects("near", prefers("orders", catalog.PreferZone))))
		g.Apply(says("east", c.export))
		if c.taken {
			other := has("billing", 1)
			other.Addresses = c.export.Addresses[:1]
			g.Apply(says("east", other))
		}
		e, _ := g.viewOf(app("near")).Entries.Get(app("orders"))
		r := e.Routes[len(e.Routes)-1]
		if r.Cluster != "east" || r.Zones.String() != c.want {
			t.Errorf("%s: the route is %+v with zones %q, want %q", c.what, r, r.Zones, c.want)
		}
		if c.taken && r.Zones.At(0) != "b" {
			t.Errorf("%s: the address %s is in %s", c.what, r.Addresses[0], r.Zones.At(0))
		}
	}
}
