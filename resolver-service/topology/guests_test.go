package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func guestOf(name string, takes ...catalog.Take) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Tunnel: catalog.TunnelAccept, Trust: catalog.Trust{Domain: name + ".guest"}, Guest: &catalog.Guest{Until: time.Unix(0, 0).UTC(), Apps: []catalog.App{app("orders")}, Takes: takes}}
}

var xDev = catalog.HeaderValue{Name: "x-dev", Value: "anna"}

// TestAGuestGetsItsTakesAlone tries what could lead to a guest.
func TestAGuestGetsItsTakesAlone(t *testing.T) {
	g := NewGraph(Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true, Guard: catalog.GuardEnforce, Tunnels: []string{"gw.west:15443"}})
	byCaller, byHeader := catalog.Take{App: app("orders"), Caller: app("dev")}, catalog.Take{App: app("orders"), Header: xDev}
	g.Apply(full(guestOf("anna", byCaller, byHeader), selects("dev", calls("orders"), calls("ledger")), selects("checkout", calls("orders", via("local", 0, 1), via("anna", 1, 1)), calls("ledger")),
		selects("orders", calls("audit")), &catalog.AppExport{App: app("vault"), Allow: []catalog.Allow{{Cluster: "*"}}}))
	for i, id := range []string{"orders", "ledger", "audit", "vault", "open"} {
		g.Apply(runs(id, "1", "10.0.0."+string(rune('1'+i))+":50002"))
	}
	export := func(id string) PeerExport {
		return PeerExport{App: app(id), Ready: 1, Allow: []catalog.Allow{{Cluster: "west"}}, Instances: []uint32{7}}
	}
	g.Apply(says("anna", export("orders"), export("ledger"), export("open")))
	g.Apply(lease("anna", Fresh))
	g.Peer("anna", nil)
	where := func(caller, callee string, headers ...catalog.HeaderValue) string {
		d := g.viewOf(app(caller)).ExplainCall(app(callee), headers)
		return strings.TrimSpace(d.Outcome.String() + " " + d.Cluster)
	}
	holds := func(state string, want map[string]string) {
		t.Helper()
		for what, want := range want {
			call := strings.Fields(what)
			var headers []catalog.HeaderValue
			if len(call) > 2 {
				headers = []catalog.HeaderValue{{Name: "x-dev", Value: call[2]}}
			}
			if got := where(call[0], call[1], headers...); got != want {
				t.Errorf("%s: %s: %q, want %q", state, what, got, want)
			}
		}
	}
	holds("heard", map[string]string{
		"dev orders": "ok anna", "dev orders ben": "ok anna", "dev ledger": "ok west", "dev ledger anna": "ok west",
		"checkout orders": "ok west", "checkout orders anna": "ok anna", "checkout orders ben": "ok west", "checkout ledger anna": "ok west",
		"stranger orders": "ok west", "stranger orders anna": "ok anna", "stranger ledger anna": "ok west", "stranger open anna": "ok west",
	})
	if e, _ := g.viewOf(app("checkout")).Entries.Get(app("orders")); len(e.Shares()) != 1 || e.Routes[1].State != catalog.GuestOnly {
		t.Errorf("a route to a guest is %+v", e.Routes)
	}
	for name := range g.imports.gateways.Addresses {
		t.Errorf("a name leads to %s", name)
	}
	var tunnelled, told []string
	tunnels := g.exports.gateway.Tunnels["anna"]
	for a := range tunnels.Apps.All() {
		tunnelled = append(tunnelled, a.ID)
	}
	for a, e := range g.exports.peers[PeerKey{Cluster: "anna"}].Exports.All() {
		told = append(told, a.ID)
		if !slices.Equal(e.Allow, []catalog.Allow{{Cluster: "anna", Namespace: "shop", App: "orders"}}) {
			t.Errorf("%s is exported to %v", a, e.Allow)
		}
	}
	if !slices.Equal(tunnelled, []string{"orders"}) || !slices.Equal(told, []string{"audit"}) {
		t.Errorf("the gateway leads to %v of the guest, which is told of %v", tunnelled, told)
	}
	if remote := g.accesses.whole(app("audit"), 0).Remote.All(); len(remote) != 1 || remote[0] != (catalog.RemoteCaller{Cluster: "anna", Domain: "anna.guest", Namespace: "shop", App: "orders"}) {
		t.Errorf("the guard of audit lets in %+v", remote)
	}
	if remote := g.accesses.whole(app("vault"), 0).Remote.All(); len(remote) != 0 {
		t.Errorf("the guard of vault lets in %+v", remote)
	}

	// A later guest takes what is left; a take by a header comes first.
	g.Apply(objects(guestOf("ben", byCaller, catalog.Take{App: app("orders"), Header: catalog.HeaderValue{Name: "x-dev", Value: "ben"}})))
	g.Apply(says("ben", export("orders")))
	g.Apply(lease("ben", Fresh))
	holds("two guests", map[string]string{"dev orders": "ok anna", "dev orders ben": "ok ben", "checkout orders ben": "ok ben"})
	for _, away := range []Change{lease("anna", Expired), says("anna", PeerExport{App: app("orders"), Allow: []catalog.Allow{{Cluster: "west"}}})} {
		g.Apply(away)
		holds("anna is away", map[string]string{"dev orders": "ok ben", "checkout orders anna": "ok west", "stranger orders anna": "ok west"})
		g.Apply(lease("anna", Fresh))
	}
	g.Apply(deletes(catalog.Key{Kind: catalog.KindCluster, Name: "anna"}, catalog.Key{Kind: catalog.KindCluster, Name: "ben"}))
	holds("no guest", map[string]string{"dev orders": "ok west", "checkout orders anna": "ok west", "stranger orders anna": "ok west"})
	if n := g.exports.peers[PeerKey{Cluster: "anna"}].Exports.Len(); n != 1 { // vault, which is exported to any cluster
		t.Errorf("a guest that has gone is told of %d apps", n)
	}
}

// TestACallerWithoutASelectionIsTaken is for a cluster where apps need none.
func TestACallerWithoutASelectionIsTaken(t *testing.T) {
	g := NewGraph(Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true, Tunnels: []string{"gw.west:15443"}})
	g.Apply(full(guestOf("anna", catalog.Take{App: app("orders"), Caller: app("dev")})))
	g.Apply(runs("orders", "1", "10.0.0.1:50002"))
	g.Apply(Change{Followed: map[catalog.App]bool{app("dev"): true}})
	g.Apply(says("anna", PeerExport{App: app("orders"), Ready: 1, Allow: []catalog.Allow{{Cluster: "west"}}}))
	g.Apply(lease("anna", Fresh))
	at := func() (all []string) {
		for _, caller := range []string{"dev", "other"} {
			all = append(all, g.viewOf(app(caller)).Explain(app("orders")).Cluster)
		}
		return all
	}
	if got := at(); !slices.Equal(got, []string{"anna", "west"}) {
		t.Errorf("calls go to %v", got)
	}
	g.Apply(runs("ledger", "1", "10.0.0.2:50002"))
	if d := g.viewOf(app("dev")).Explain(app("ledger")); d.Cluster != "west" {
		t.Errorf("an app that comes later is not in the caller's view: %+v", d)
	}
	g.Apply(deletes(catalog.Key{Kind: catalog.KindCluster, Name: "anna"}))
	if got := at(); !slices.Equal(got, []string{"west", "west"}) {
		t.Errorf("without the guest calls go to %v", got)
	}
}
