package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func carts(name, owner string, allow ...catalog.Allow) *catalog.ActorType {
	return &catalog.ActorType{Namespace: "shop", Name: name, Type: "Cart", Owner: owner, Allow: allow}
}

func hasCarts(object string, draining bool, allow ...catalog.Allow) PeerExport {
	a := catalog.Actors{Namespace: "shop", Type: "Cart"}
	return PeerExport{App: a.App(), Allow: allow, Actor: &ActorExport{Object: object, Draining: draining}}
}

func selectsActors(caller string, clusters ...string) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: app(caller), Actors: []catalog.ActorEndpoint{{Type: "Cart", Clusters: clusters}}}
}

// lead is where the bridge of a namespace takes a call, in one line.
func (g *Graph) lead(caller string) string {
	owner, refusal := g.actors.keepView("shop", g.revision).Lead(true, catalog.Principal{App: app(caller)}, "Cart")
	if refusal != nil {
		return refusal.Error()
	}
	return owner
}

// TestNamespacesThatNeedABridge holds what the service says of them to objects here and elsewhere.
func TestNamespacesThatNeedABridge(t *testing.T) {
	here, there := reaches("east", "10.9.0.1:15443"), says("east", hasCarts("cart", false, catalog.Allow{Cluster: "west"}))
	for _, test := range []struct {
		name  string
		given []Change
		want  string
	}{
		{"actors of another cluster", []Change{full(selectsActors("checkout"), here), there}, "[shop]"},
		{"actors that nobody owns", []Change{full(selectsActors("checkout"), here)}, "[]"},
		{"own ones", []Change{full(selectsActors("checkout"), here, carts("cart", "west"))}, "[]"},
		{"own ones that others may call", []Change{full(here, carts("cart", "west", catalog.Allow{Cluster: "east"}))}, "[shop]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewGraph(west)
			for _, c := range test.given {
				g.Apply(c)
			}
			if got := fmt.Sprint(g.actors.bridged()); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestACallOfAnActorFollowsItsOwner(t *testing.T) {
	anybody := catalog.Allow{Cluster: "west"}
	here, there := reaches("east", "10.9.0.1:15443"), says("east", hasCarts("cart", false, anybody))
	given := func(more ...Change) []Change {
		return append([]Change{full(selectsActors("checkout"), here, reaches("north")), there}, more...)
	}
	for _, test := range []struct {
		name  string
		given []Change
		want  string
	}{
		{"a type that a cluster owns and the selection holds", given(), "east"},
		{"one that the selection does not hold", given(objects(selects("checkout"))), "denied: shop/checkout may not call actors of type Cart"},
		{"one that nobody exports", []Change{full(selectsActors("checkout"), here)}, "unavailable: no cluster that this one hears exports the actor type Cart"},
		{"one whose owner the selection's routes leave out", given(objects(selectsActors("checkout", "north"))), "denied: shop/checkout may not call"},
		{"one whose owner they name", given(objects(selectsActors("checkout", "north", "east"))), "east"},
		{"one that its owner lets others call", []Change{full(selectsActors("checkout"), here), says("east", hasCarts("cart", false, catalog.Allow{Cluster: "west", App: "till"}))},
			"denied: cluster east exports the actor type Cart and does not allow shop/checkout of cluster west"},
		{"an owner that has not been heard for too long", given(lease("east", Expired)), "stale: cluster east owns the actor type Cart, and its lease has run out; nothing else may run these actors"},
		{"an owner that is damped has no substitute", given(lease("east", Expired), lease("east", Damped)), "east"},
		{"an owner that drains", given(says("east", hasCarts("cart", true, anybody))), "unavailable: cluster east owns the actor type Cart and takes no new calls"},
		{"two owners", given(says("north", hasCarts("basket", false, anybody))),
			"unavailable: the actor type shop/Cart has two owners: ActorType shop/cart in cluster east says cluster east, and ActorType shop/basket in cluster north says cluster north; nothing is bridged"},
		{"two owners, one of them silent", given(says("north", hasCarts("basket", false, anybody)), lease("north", Expired)), "unavailable: the actor type shop/Cart has two owners"},
		{"two owners, until one gives up", given(says("north", hasCarts("basket", false, anybody)), Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{hasCarts("", false).App}}}}), "north"},
		{"an object here that names the owner", given(objects(carts("cart", "east"))), "east"},
		{"an object here that names another", given(objects(carts("cart", "north"))), "unavailable: the actor type shop/Cart has two owners: ActorType shop/cart in cluster east says cluster east, and ActorType shop/cart in cluster west says cluster north"},
		{"an object here that says it is owned here", given(objects(carts("cart", "west"))), "unavailable: the actor type shop/Cart has two owners"},
		{"an owner that does not export it", []Change{full(selectsActors("checkout"), here, carts("cart", "east"))},
			"unavailable: ActorType shop/cart in cluster west says that cluster east owns the actor type shop/Cart, and that cluster exports no such type to this one"},
		{"two objects of one type", given(objects(carts("cart", "east"), carts("cart2", "east"))), "unavailable: the actor type shop/Cart has 2 objects in cluster west, ActorType shop/cart and ActorType shop/cart2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewGraph(west)
			g.actors.keepView("shop", 0)
			for _, c := range test.given {
				g.Apply(c)
			}
			if got := g.lead("checkout"); !strings.HasPrefix(got, test.want) {
				t.Errorf("the call goes to\n%s\nwant\n%s", got, test.want)
			}
			if afresh := g.actors.view("shop", 0); fmt.Sprint(afresh.Imports, afresh.Owned, afresh.Clusters) != fmt.Sprint(g.actors.views["shop"].Imports, g.actors.views["shop"].Owned, g.actors.views["shop"].Clusters) {
				t.Errorf("the view that was kept up to date is\n%+v\nafresh it is\n%+v", g.actors.views["shop"], afresh)
			}
		})
	}
}

func TestAnOwnerTellsWhomItAllows(t *testing.T) {
	g := NewGraph(Config{Cluster: "east", Domain: catalog.DefaultDomain})
	g.actors.keepView("shop", 0)
	g.Apply(full(reaches("west"), reaches("north"), carts("cart", "east", catalog.Allow{Cluster: "west", App: "checkout"})))
	key := catalog.Actors{Namespace: "shop", Type: "Cart"}.App()
	for _, test := range []struct {
		peer string
		want bool
	}{{"west", true}, {"north", false}} {
		if _, told := g.Peer(test.peer, nil).Exports.Get(key); told != test.want {
			t.Errorf("%s is told of the type: %t, want %t", test.peer, told, test.want)
		}
	}
	bridge := catalog.BridgeApp("shop", "east")
	export, _ := g.Peer("west", nil).Exports.Get(bridge)
	if export == nil || len(export.Allow) != 1 || export.Allow[0].App != "isthmus-actors-west" {
		t.Errorf("the bridge is exported as %+v, want to the bridge of west alone", export)
	}
	from := func(domain, id string) catalog.Principal {
		return catalog.Principal{Domain: domain, App: app(id)}
	}
	for _, test := range []struct {
		by     catalog.Principal
		caller string
		want   string
	}{
		{from("public", "isthmus-actors-west"), "checkout", ""},
		{from("public", "isthmus-actors-west"), "till", "denied: shop/till of cluster west may not call actors of type Cart"},
		{from("public", "isthmus-actors-north"), "checkout", "denied: shop/checkout of cluster north may not call"},
		{from("public", "isthmus-actors-south"), "checkout", "denied: shop/isthmus-actors-south of trust domain public is the bridge of cluster south, and no Cluster object"},
		{from("public", "isthmus-actors-east"), "checkout", "denied: shop/isthmus-actors-east of trust domain public is not the bridge of another cluster"},
		{from("public", "checkout"), "checkout", "denied: shop/checkout of trust domain public is not the bridge"},
		{catalog.Principal{App: catalog.BridgeApp("finance", "west")}, "checkout", "denied: finance/isthmus-actors-west"},
	} {
		got := ""
		if refusal := g.actors.views["shop"].Admit(test.by, app(test.caller), "Cart"); refusal != nil {
			got = refusal.Error()
		}
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s for %s: %q, want %q", test.by, test.caller, got, test.want)
		}
	}
}

// TestBridgesFindEachOther holds that nobody has to write objects for them, and that objects win.
func TestBridgesFindEachOther(t *testing.T) {
	g := NewGraph(west)
	bridge, theirs := catalog.BridgeApp("shop", "west"), catalog.BridgeApp("shop", "east")
	leads := func() string { d := g.viewOf(bridge).Explain(theirs); return show(d) + d.Rule }
	g.Apply(full(selectsActors("checkout"), reaches("east", "10.9.0.1:15443")))
	g.Apply(says("east", PeerExport{App: theirs, Allow: []catalog.Allow{{}}, Ready: 1}))
	if got := leads(); !strings.HasPrefix(got, "ok isthmus-actors-east.shop.east.isthmus.internal:15443 east") || !strings.Contains(got, "spec.actors") {
		t.Errorf("the bridge is led to %s", got)
	}
	g.Apply(objects(&catalog.AppEndpoints{App: bridge}))
	if got := leads(); !strings.HasPrefix(got, "denied") {
		t.Errorf("with an object of its own that selects nothing, the bridge is led to %s", got)
	}
	g.Apply(deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: bridge.ID}))
	g.Apply(objects(selects("checkout")))
	if got := leads(); !strings.HasPrefix(got, "not found") {
		t.Errorf("with no actors selected, the bridge is led to %s", got)
	}
	g.Apply(deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}, catalog.Key{Kind: catalog.KindCluster, Name: "east"}))
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true, Lease: Forgotten}}})
	if len(g.apps) > 0 || len(g.actors.selecting) > 0 || len(g.actors.remote) > 0 {
		t.Errorf("%d apps and %d namespaces are left after everything was taken out", len(g.apps), len(g.actors.selecting))
	}
}

// TestAnOwnerIsHandedOver has a type go from one cluster to another. At each step a caller's cluster
// leads to one owner or to none.
func TestAnOwnerIsHandedOver(t *testing.T) {
	anybody := catalog.Allow{Cluster: "west"}
	g := NewGraph(west)
	g.actors.keepView("shop", 0)
	g.Apply(full(selectsActors("checkout"), reaches("east"), reaches("north")))
	var leads []string
	for _, c := range []Change{
		says("east", hasCarts("cart", false, anybody)),
		says("east", hasCarts("cart", true, anybody)),
		says("north", hasCarts("cart", false, anybody)), // too early
		{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{hasCarts("", false).App}}}},
	} {
		g.Apply(c)
		lead, _, _ := strings.Cut(g.lead("checkout"), ":")
		leads = append(leads, lead)
	}
	if want := []string{"east", "unavailable", "unavailable", "north"}; !slices.Equal(leads, want) {
		t.Errorf("the call goes to %v, want %v", leads, want)
	}
}

// TestADryRunLeavesActorsAlone holds that trying a change out alters no view.
func TestADryRunLeavesActorsAlone(t *testing.T) {
	g := NewGraph(west)
	g.actors.keepView("shop", 0)
	g.Apply(full(selectsActors("checkout"), reaches("east")))
	g.Apply(says("east", hasCarts("cart", false, catalog.Allow{})))
	before := g.actors.views["shop"]
	if _, err := g.Try(ObjectChange{Put: []catalog.Object{carts("cart", "north")}}, func(Facts) {}); err != nil {
		t.Fatal(err)
	}
	if g.actors.views["shop"] != before || g.lead("checkout") != "east" {
		t.Errorf("after a dry run the view is %+v, was %+v", g.actors.views["shop"], before)
	}
}
