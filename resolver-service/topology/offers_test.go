package topology

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// offers is an app with its ready instances on the network.
func offersAt(id string, addresses ...string) PeerExport {
	e := has(id, uint32(len(addresses)))
	e.Addresses = addresses
	return e
}

// oneNetwork is a graph whose app checkout calls orders and ledger, with two other clusters
// on its network.
func oneNetwork() *Graph {
	config := west
	config.Network = "net-1"
	g := NewGraph(config)
	east, north := reaches("east", "10.9.0.1:15443"), reaches("north", "10.9.0.2:15443")
	east.Network, north.Network = "net-1", "net-1"
	g.Apply(full(east, north, selects("checkout", calls("orders"), calls("ledger"))))
	return g
}

// leads is where checkout's calls to orders and ledger go.
func leads(g *Graph) string {
	v := g.viewOf(app("checkout"))
	return show(v.Explain(app("orders"))) + "; " + show(v.Explain(app("ledger")))
}

func TestAnAddressOnTheNetworkIsOneApps(t *testing.T) {
	const a, b = "10.0.0.1:50002", "10.0.0.2:50002"
	far := reaches("east", "10.9.0.1:15443")
	near := reaches("east", "10.9.0.1:15443")
	near.Network = "net-1"
	stops := func(cluster, id string) Change {
		return Change{Peers: []PeerChange{{Cluster: cluster, Delete: []catalog.App{app(id)}}}}
	}
	hears := func(cluster string, put ...PeerExport) Change { // its first word
		return Change{Peers: []PeerChange{{Cluster: cluster, Full: true, Put: put}, {Cluster: cluster, Lease: Fresh}}}
	}
	for _, test := range []struct {
		what  string
		given []Change
		want  string
	}{
		{"each has its own", []Change{says("east", offersAt("orders", a), offersAt("ledger", b))}, "ok " + a + " east; ok " + b + " east"},
		{"it moves, and the gain comes before the loss", []Change{says("east", offersAt("orders", a), offersAt("ledger", b)),
			says("east", offersAt("ledger", a))}, "unavailable; ok " + a + " east"},
		{"and then the loss", []Change{says("east", offersAt("orders", a), offersAt("ledger", b)),
			says("east", offersAt("ledger", a)), says("east", offersAt("orders", b))}, "ok " + b + " east; ok " + a + " east"},
		{"it moves to another cluster", []Change{says("east", offersAt("orders", a)), lease("north", Fresh), says("north", offersAt("ledger", a))},
			"unavailable; ok " + a + " north"},
		{"and back, when that stops it", []Change{says("east", offersAt("orders", a)), lease("north", Fresh), says("north", offersAt("ledger", a)),
			stops("north", "ledger")}, "ok " + a + " east; unavailable"},
		{"what was there before north was heard takes nothing", []Change{lease("east", Fresh), says("east", offersAt("orders", a)), hears("north", offersAt("ledger", a))},
			"ok " + a + " east; unavailable"},
		{"of two that were there before, the name decides", []Change{hears("north", offersAt("ledger", a)), hears("east", offersAt("orders", a))},
			"ok " + a + " east; unavailable"},
		{"in whatever order they are heard", []Change{hears("east", offersAt("orders", a)), hears("north", offersAt("ledger", a))},
			"ok " + a + " east; unavailable"},
		{"a peer takes none from who is ready here", []Change{runs("orders", "1", a), lease("east", Fresh), says("east", offersAt("ledger", a, b))},
			"ok " + a + " west; ok " + b + " east"},
		{"and loses it to who is", []Change{says("east", offersAt("ledger", a)), runs("orders", "1", a)}, "ok " + a + " west; unavailable"},
		{"a dead registration here keeps none from it", []Change{drains(runs("orders", "1", a)), says("east", offersAt("ledger", a))},
			"unavailable; ok " + a + " east"},
		{"as long as it is dead", []Change{drains(runs("orders", "1", a)), says("east", offersAt("ledger", a)), runs("orders", "1", a)},
			"ok " + a + " west; unavailable"},
		{"hearsay here keeps none from it", []Change{hearsay(runs("orders", "1", a)), lease("east", Fresh), says("east", offersAt("ledger", a))},
			"unavailable; ok " + a + " east"},
		{"nor takes any", []Change{says("east", offersAt("ledger", a)), hearsay(runs("orders", "1", a))}, "unavailable; ok " + a + " east"},
		{"until it is more than that", []Change{says("east", offersAt("ledger", a)), hearsay(runs("orders", "1", a)), runs("orders", "1", a)},
			"ok " + a + " west; unavailable"},
		{"it has what the peer has no more", []Change{says("east", offersAt("ledger", a)), hearsay(runs("orders", "1", a)), stops("east", "ledger")},
			"ok " + a + " west; unavailable"},
		{"also where the cluster leaves the network", []Change{says("east", offersAt("ledger", a)), hearsay(runs("orders", "1", a)), objects(far)},
			"ok " + a + " west; ok ledger.shop.east.isthmus.internal:15443 east"},
		{"an app is the same in two clusters", []Change{runs("orders", "1", a), says("east", offersAt("orders", a))}, "ok " + a + " west; unavailable"},
		{"an address in no common form is none", []Change{says("east", offersAt("orders", "[::ffff:10.0.0.1]:50002"), offersAt("ledger", a, a))},
			"unavailable; ok " + a + " east"},
		{"a cluster leaves the network", []Change{says("east", offersAt("orders", a)), says("north", offersAt("ledger", a)), objects(far)},
			"ok orders.shop.east.isthmus.internal:15443 east; ok " + a + " north"},
		{"and comes back: its addresses are those of before", []Change{lease("north", Fresh), says("north", offersAt("ledger", a)), says("east", offersAt("orders", a)), objects(far), objects(near)},
			"unavailable; ok " + a + " north"},
	} {
		g := oneNetwork()
		for _, c := range test.given {
			g.Apply(c)
		}
		if got := leads(g); got != test.want {
			t.Errorf("%s: %s; want %s", test.what, got, test.want)
		}
		checkOffers(t, g, test.what)
	}
}

// What an app loses does not count, so that no call for it goes through the gateway.
func TestOnlyWhatIsLeftCounts(t *testing.T) {
	g := oneNetwork()
	g.Apply(says("east", offersAt("orders", "10.0.0.1:50002", "10.0.0.2:50002")))
	g.Apply(runs("ledger", "1", "10.0.0.1:50002"))
	route := func() catalog.Route {
		e, _ := g.viewOf(app("checkout")).Entries.Get(app("orders"))
		return e.Routes[1]
	}
	if r := route(); r.Ready != 1 || r.State != catalog.Ready || fmt.Sprint(r.Addresses) != "[10.0.0.2:50002]" {
		t.Errorf("%+v, with one of two addresses left", r)
	}
	g.Apply(runs("ledger", "2", "10.0.0.2:50002"))
	if r := route(); r.Ready != 0 || r.State != catalog.Empty || len(r.Addresses) != 0 {
		t.Errorf("%+v, with no address left", r)
	}
	want := "[{10.0.0.1:50002 cluster east shop/ledger test} {10.0.0.2:50002 cluster east shop/ledger test}]"
	if got := fmt.Sprint(g.taken(app("orders"))); got != want {
		t.Errorf("an operator is told %s, want %s", got, want)
	}
	g.Apply(stops("ledger", "1"))
	g.Apply(stops("ledger", "2"))
	if r := route(); r.Ready != 2 || len(r.Addresses) != 2 {
		t.Errorf("%+v, with both addresses back", r)
	}
	if got := g.taken(app("orders")); len(got) != 0 {
		t.Errorf("an operator is told %v", got)
	}
	g.Apply(hearsay(runs("ledger", "1", "10.0.0.1:50002")))
	if got := fmt.Sprint(g.taken(app("orders")), g.taken(app("ledger"))); got != "[] [{10.0.0.1:50002 test shop/orders cluster east}]" {
		t.Errorf("an operator is told %s", got)
	}
	g.Apply(stops("ledger", "1"))
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true}}})
	if n := len(g.addresses.offers.top) + len(g.addresses.offers.weaker) + len(g.addresses.offers.pairs); n != 0 {
		t.Errorf("%d things are kept of a peer that exports nothing", n)
	}
}

// What is tried is as if it had not been: also whose the addresses of a cluster are that
// would leave the network.
func TestToTryAnotherNetworkChangesNothing(t *testing.T) {
	g := oneNetwork()
	g.Apply(lease("north", Fresh))
	g.Apply(lease("east", Fresh))
	g.Apply(says("north", offersAt("ledger", "10.0.0.1:50002")))
	g.Apply(says("east", offersAt("orders", "10.0.0.1:50002")))
	before := leads(g)
	effects, err := g.Try(ObjectChange{Put: []catalog.Object{reaches("east", "10.9.0.1:15443")}})
	if err != nil || len(effects) != 2 {
		t.Errorf("%v, %v; want that both apps are reached elsewhere", effects, err)
	}
	g.Apply(says("north", offersAt("ledger", "10.0.0.1:50002", "10.0.0.9:50002")))
	g.Apply(says("north", offersAt("ledger", "10.0.0.1:50002")))
	if after := leads(g); after != before {
		t.Errorf("%s; before, it was %s", after, before)
	}
	checkOffers(t, g, "after it")
}

// A peer may say that all its apps are at one address.
func TestOffersOfOneAddressAreBounded(t *testing.T) {
	const a = "10.0.0.1:50002"
	g := oneNetwork()
	g.Apply(lease("east", Fresh))
	for _, order := range []string{"the first goes first", "the last goes first"} {
		g.Apply(says("east", offersAt("ledger", a)))
		for i := range 2 * maxOffers {
			g.Apply(says("east", offersAt(fmt.Sprint("app-", i), a)))
		}
		g.Apply(says("east", offersAt("orders", a)))
		if got := leads(g); got != "ok "+a+" east; unavailable" {
			t.Errorf("%s, with many at one address", got)
		}
		for _, weaker := range g.addresses.offers.weaker {
			if len(weaker) >= maxOffers {
				t.Errorf("%d offers of one address are kept", len(weaker))
			}
		}
		g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{app("orders")}}}})
		for i := range 2 * maxOffers {
			if order != "the first goes first" {
				i = 2*maxOffers - 1 - i
			}
			g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{app(fmt.Sprint("app-", i))}}}})
		}
		if got := leads(g); got != "unavailable; ok "+a+" east" {
			t.Errorf("%s: %s, once the many are gone", order, got)
		}
		g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true}}})
		if n := len(g.addresses.offers.top) + len(g.addresses.offers.weaker); n != 0 {
			t.Errorf("%s: %d offers are kept of nothing", order, n)
		}
	}
}

func TestNothingIsKeptOfAddressesElsewhere(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(reaches("east", "10.9.0.1:15443")))
	g.Apply(says("east", offersAt("orders", "10.0.0.1:50002")))
	if n := len(g.addresses.offers.top); n != 0 {
		t.Errorf("%d addresses are kept of a cluster that is not on the network", n)
	}
}

func TestWhatViewsLeadToIsNotKeptForever(t *testing.T) {
	g := NewGraph(west)
	var all []catalog.Object
	const clusters = 40
	for i := range clusters {
		all = append(all, reaches(fmt.Sprint("c", i), "10.0.0.1:15443"))
	}
	g.Apply(full(append(all, selects("checkout", calls("orders")))...))
	r := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		name := fmt.Sprint("c", r.IntN(clusters))
		if r.IntN(2) == 0 {
			g.Apply(says(name, has("orders", 1)))
		} else {
			g.Apply(Change{Peers: []PeerChange{{Cluster: name, Delete: []catalog.App{app("orders")}}}})
		}
		if len(g.shared) > fewGateways+2 {
			t.Fatalf("%d sets of clusters are kept for one view", len(g.shared))
		}
	}
}

// BenchmarkOffers is a peer's app with so many instances, of which one is replaced.
func BenchmarkOffers(b *testing.B) {
	for _, instances := range []int{10, 1000} {
		for _, network := range []string{"", "net-1"} {
			b.Run(fmt.Sprintf("instances=%d/network=%s", instances, network), func(b *testing.B) {
				g := oneNetwork()
				east := reaches("east", "10.9.0.1:15443")
				east.Network = network
				g.Apply(objects(east))
				exports := [2]PeerExport{offersAt("orders", names(instances)...), offersAt("orders", names(instances + 1)[1:]...)}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					g.Apply(says("east", exports[i%2]))
					i++
				}
			})
		}
	}
}
