package topology

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// byDelegate is a change whose instances a delegate registers by a stream.
func byDelegate(c Change) Change {
	return altered(c, func(c *InstanceChange) {
		for i := range c.Put {
			c.Put[i].Unverified = true
		}
		c.Source, c.Rank = "stream", Live
	})
}

func TestWhatIsUnverifiedObscuresNothing(t *testing.T) {
	const a = "10.0.0.1:50002"
	ip := netip.MustParseAddr("10.0.0.1")
	g := NewGraph(west)
	g.Peer("east", nil)
	g.Apply(full(exports("orders", catalog.Allow{}), exports("cart", catalog.Allow{}), selects("checkout", calls("orders"), calls("cart"))))
	check := func(what, orders, cart, caller, gateway string) {
		t.Helper()
		v := g.viewOf(app("checkout"))
		if got := show(v.Explain(app("orders"))); got != orders {
			t.Errorf("%s: orders is %s, want %s", what, got, orders)
		}
		if got := show(v.Explain(app("cart"))); got != cart {
			t.Errorf("%s: cart is %s, want %s", what, got, cart)
		}
		if got, _ := g.owners.callers.Get(ip); got.App.ID != caller || got.Shared {
			t.Errorf("%s: %s asks from %s, want %s", what, got.App, ip, caller)
		}
		b, _ := g.exports.gateway.Backends.Get(app("orders"))
		e, _ := g.exports.peers[PeerKey{Cluster: "east"}].Exports.Get(app("orders"))
		if got := fmt.Sprint(b.Instances, e.Ready); got != gateway {
			t.Errorf("%s: the gateway and east have %s of orders, want %s", what, got, gateway)
		}
	}
	g.Apply(runs("orders", "1", a))
	check("at first", "ok "+a+" west", "unavailable", "orders", "[10.0.0.1:50002] 1")
	g.Apply(byDelegate(runs("cart", "1", a)))
	check("another app claims the address", "ok "+a+" west", "unavailable", "orders", "[10.0.0.1:50002] 1")
	g.Apply(byDelegate(runs("cart", "2", "10.0.0.1:6000")))
	check("and another port of that host", "ok "+a+" west", "ok 10.0.0.1:6000 west", "orders", "[10.0.0.1:50002] 1")
	g.Apply(drains(byDelegate(runs("orders", "other", a))))
	check("its own app is said to drain", "ok "+a+" west", "ok 10.0.0.1:6000 west", "orders", "[10.0.0.1:50002] 1")
	g.Apply(drains(runs("orders", "1", a)))
	check("it drains", "unavailable", "ok 10.0.0.1:6000 west", "orders", "[] 0")
	g.Apply(stops("orders", "1"))
	g.Apply(altered(stops("orders", "other"), func(c *InstanceChange) { c.Source = "stream" }))
	g.Apply(altered(stops("cart", "2"), func(c *InstanceChange) { c.Source = "stream" }))
	check("it is gone", "unavailable", "ok "+a+" west", "cart", "[] 0")
	g.Apply(runs("orders", "1", a))
	check("it is back", "ok "+a+" west", "unavailable", "orders", "[10.0.0.1:50002] 1")
}

// TestWhatIsExportedKeepsToTheRules holds what the gateway and peers are told. Lookups here
// have everything, also what may not be exported.
func TestWhatIsExportedKeepsToTheRules(t *testing.T) {
	const loopback, own, near, far = "127.0.0.1:50002", "10.0.0.9:15443", "10.0.0.1:50002", "192.168.0.1:50002"
	listeners := []netip.AddrPort{netip.MustParseAddrPort(own)}
	for _, test := range []struct {
		what  string
		rules *destination.Rules
		want  string // that is exported
		why   []string
	}{
		{"without rules", nil, "[10.0.0.1:50002 10.0.0.9:15443 192.168.0.1:50002]", []string{"127.0.0.1:50002 is loopback"}},
		{"of a service", &destination.Rules{Listeners: listeners}, "[10.0.0.1:50002 192.168.0.1:50002]", []string{"10.0.0.9:15443 is one that this resolver service itself listens on", "loopback"}},
		{"with networks", &destination.Rules{Listeners: listeners, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "[10.0.0.1:50002]", []string{"listens on", "loopback", "gateway.allow"}},
		{"in development", &destination.Rules{Loopback: true}, "[10.0.0.1:50002 10.0.0.9:15443 127.0.0.1:50002 192.168.0.1:50002]", nil},
	} {
		for _, exportedFirst := range []bool{true, false} {
			config := west
			config.Network, config.Destinations = "net-1", test.rules
			east := reaches("east", "10.9.0.1:15443")
			east.Network = "net-1"
			g := NewGraph(config)
			g.Peer("east", nil)
			g.Apply(full(east, selects("checkout", calls("orders"))))
			export := objects(exports("orders", catalog.Allow{Cluster: "east"}))
			if exportedFirst {
				g.Apply(export)
			}
			for i, a := range []string{loopback, own, near, far} {
				g.Apply(runs("orders", fmt.Sprint(i), a))
			}
			if !exportedFirst {
				if kept := g.exports.keptOf(app("orders")); kept.Count != 0 {
					t.Errorf("%s: %s, of an app that is not exported", test.what, kept.String())
				}
				g.Apply(export)
			}
			b, _ := g.exports.gateway.Backends.Get(app("orders"))
			e, _ := g.exports.peers[PeerKey{Cluster: "east"}].Exports.Get(app("orders"))
			if got := fmt.Sprint(b.Instances); got != test.want || fmt.Sprint(e.Addresses) != test.want || int(e.Ready) != len(e.Addresses) || int(e.Shards) != shardsOf(len(e.Addresses)) {
				t.Errorf("%s, exported first %v: the gateway has %s, and east is told %+v; want %s", test.what, exportedFirst, got, *e, test.want)
			}
			if entry, _ := g.viewOf(app("checkout")).Entries.Get(app("orders")); entry.Routes[0].Ready != 4 {
				t.Errorf("%s: %d are ready for lookups here, want 4", test.what, entry.Routes[0].Ready)
			}
			kept := g.exports.keptOf(app("orders"))
			if kept.Count != len(test.why) || (len(g.exports.warnings) > 0) != (len(test.why) > 0) {
				t.Errorf("%s: told of %d (%d warnings), want %d", test.what, kept.Count, len(g.exports.warnings), len(test.why))
			}
			for _, why := range test.why {
				if !strings.Contains(kept.String(), why) {
					t.Errorf("%s: %s; want %q", test.what, kept.String(), why)
				}
			}
			g.Apply(deletes(catalog.Key{Kind: catalog.KindAppExport, Namespace: "shop", Name: "orders"}))
			if refusals := g.refusals(); len(refusals) != 0 {
				t.Errorf("%s: %+v, of an app that is exported no more", test.what, refusals)
			}
		}
	}
}

func TestAPeersAddressesKeepToTheRules(t *testing.T) {
	const good, gateway = "10.0.0.1:50002", "orders.shop.east.isthmus.internal:15443"
	orders := func(g *Graph) string { return show(g.viewOf(app("checkout")).Explain(app("orders"))) }
	for _, test := range []struct{ what, address, why string }{
		{"a metadata service", "169.254.169.254:80", "link-local"},
		{"this host", "0.0.0.0:22", "names no host"},
		{"loopback", "127.0.0.1:22", "loopback"},
		{"loopback of IPv6", "[::1]:22", "loopback"},
		{"our own gateway", "10.0.0.9:15443", "itself listens on"},
		{"somewhere else", "192.168.7.1:80", "spec.networkRanges of the Cluster object east"},
	} {
		config := west
		config.Network = "net-1"
		config.Destinations = &destination.Rules{Listeners: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:15443")}}
		top := running(t, config)
		east := reaches("east", "10.9.0.1:15443")
		east.Network, east.NetworkRanges = "net-1", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		top.must(t, full(east, selects("checkout", calls("orders"), calls("ledger"))))
		step := func(what, want string, refused int, c Change) {
			t.Helper()
			top.must(t, c)
			var got string
			if err := top.ask(t.Context(), func(g *Graph) { got = orders(g); checkDirect(t, g, what) }); err != nil {
				t.Fatal(err)
			}
			all, err := top.Inventory().Refusals(t.Context(), 10)
			if got != want || err != nil || len(all) != min(refused, 1) {
				t.Errorf("%s, %s: calls go %s, with refusals %+v (%v); want %s", test.what, what, got, all, err, want)
			}
			for _, r := range all {
				if r.Cluster != "east" || r.App != app("orders") || r.Count != refused || !strings.Contains(r.String(), test.why) || !strings.Contains(r.String(), test.address) {
					t.Errorf("%s, %s: told %+v; want %q", test.what, what, r, test.why)
				}
			}
			told, err := top.Inventory().Report(t.Context(), app("checkout"), app("orders"))
			if err != nil || told.Clusters[0].Refused.Count != refused {
				t.Errorf("%s, %s: an operator is told %+v (%v)", test.what, what, told.Clusters, err)
			}
		}
		step("beside another", "ok "+good+" east", 1, says("east", offersAt("orders", good, test.address)))
		step("alone", "ok "+gateway+" east", 1, says("east", offersAt("orders", test.address)))
		step("not any more", "ok "+good+" east", 0, says("east", offersAt("orders", good)))
		step("again", "ok "+good+" east", 1, says("east", offersAt("orders", good, test.address)))
		step("gone", "unavailable", 0, Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{app("orders")}}}})
	}
}

func TestTheRangesOfANetworkChange(t *testing.T) {
	const a = "10.0.0.1:50002"
	g := oneNetwork()
	ranged := func(networks ...string) Change {
		east := reaches("east", "10.9.0.1:15443")
		east.Network = "net-1"
		for _, n := range networks {
			east.NetworkRanges = append(east.NetworkRanges, netip.MustParsePrefix(n))
		}
		return objects(east)
	}
	g.Apply(says("east", offersAt("orders", a)))
	for _, step := range []struct{ network, want string }{
		{"192.168.0.0/16", "ok orders.shop.east.isthmus.internal:15443 east; unavailable"},
		{"10.0.0.0/24", "ok " + a + " east; unavailable"},
	} {
		g.Apply(ranged(step.network))
		if got := leads(g); got != step.want {
			t.Errorf("in %s: %s, want %s", step.network, got, step.want)
		}
		checkDirect(t, g, step.network)
	}
}
