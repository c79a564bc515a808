package topology

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// A gateway leads by tunnels to the apps that a cluster which dials this one exports to it, and to
// nothing else; and callers reach these by this cluster's own gateway.
func TestTheGatewayHasWhatComesByTunnels(t *testing.T) {
	orders, ledger, checkout := catalog.App{Namespace: "shop", ID: "orders"}, catalog.App{Namespace: "shop", ID: "ledger"}, catalog.App{Namespace: "shop", ID: "checkout"}
	g := NewGraph(Config{Cluster: "west", Domain: catalog.DefaultDomain, Tunnels: []string{"gateway.west:15443"}})
	var gateway *catalog.GatewayTable
	view := &catalog.View{}
	take := func(c Change) {
		for _, u := range g.Apply(c) {
			if u.Gateway != nil {
				gateway = u.Gateway
			}
			for _, v := range u.Views {
				view = v.View
			}
		}
	}
	object := func(tunnel string) Change {
		c := &catalog.Cluster{Name: "north", Tunnel: tunnel}
		if tunnel != catalog.TunnelAccept {
			c.Gateways = []string{"gw.north:443"}
		}
		return Change{Objects: &ObjectChange{Put: []catalog.Object{c}}}
	}
	exports := func(apps ...catalog.App) Change {
		p := PeerChange{Cluster: "north", Full: true, Lease: Fresh}
		for _, app := range apps {
			p.Put = append(p.Put, PeerExport{App: app, Ready: 1, Allow: []catalog.Allow{{Cluster: "west"}}})
		}
		return Change{Peers: []PeerChange{p}}
	}
	wants := func(what string, tunnels, address string) {
		t.Helper()
		var has []string
		for _, cluster := range slices.Sorted(maps.Keys(gateway.Tunnels)) {
			tunnels := gateway.Tunnels[cluster]
			if !tunnels.Heard {
				has = append(has, cluster+" unheard")
			}
			for app := range tunnels.Apps.All() {
				has = append(has, cluster+" "+app.ID)
			}
		}
		slices.Sort(has)
		if got := strings.Join(has, ", "); got != tunnels {
			t.Errorf("%s: by tunnels: %q, want %q", what, got, tunnels)
		}
		if got := view.Explain(orders).Address; got != address {
			t.Errorf("%s: orders at %q, want %q", what, got, address)
		}
	}
	take(Change{Objects: &ObjectChange{Full: true, Put: []catalog.Object{&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{{App: orders}}}}}})
	take(object(""))
	take(exports(orders))
	wants("each dials the other", "", "orders.shop.north.isthmus.internal:443")
	take(object(catalog.TunnelAccept))
	wants("north dials out", "north orders", "orders.shop.north.isthmus.internal:15443")
	if at := view.Gateways.Addresses["north"]; !slices.Equal(at, []string{"gateway.west:15443"}) {
		t.Errorf("callers dial %v", at)
	}
	take(exports(orders, ledger))
	wants("one export more", "north ledger, north orders", "orders.shop.north.isthmus.internal:15443")
	take(exports(ledger))
	wants("one less", "north ledger", "")
	for app, want := range map[catalog.App]bool{ledger: true, orders: false} {
		if got, later := gateway.Tunnelled("north", app); got != want || later {
			t.Errorf("%s of north: %v, later: %v", app, got, later)
		}
		if got, later := gateway.Tunnelled("south", app); got || later {
			t.Errorf("%s of south: %v, later: %v", app, got, later)
		}
	}
	take(exports(orders))
	if _, err := g.Try(*object("").Objects, func(Facts) {}); err != nil {
		t.Error(err)
	}
	wants("after a dry run", "north orders", "orders.shop.north.isthmus.internal:15443")
	take(object(catalog.TunnelDial))
	wants("west dials north", "", "orders.shop.north.isthmus.internal:443")
	take(object(catalog.TunnelAccept))
	take(Change{Objects: &ObjectChange{Delete: []catalog.Key{{Kind: catalog.KindCluster, Name: "north"}}}})
	wants("without an object", "", "")
	take(Change{Peers: []PeerChange{{Cluster: "north", Full: true, Lease: Forgotten}}})
	take(object(catalog.TunnelAccept))
	wants("before the first word", "north unheard", "")
	if got, later := gateway.Tunnelled("north", orders); got || !later {
		t.Errorf("before the first word: %v, later: %v", got, later)
	}
}
