package topology

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

func TestAnAddressOfAPeerIsOneAppsOfIt(t *testing.T) {
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
			says("east", offersAt("ledger", a))}, "unavailable; unavailable"},
		{"and then the loss", []Change{says("east", offersAt("orders", a), offersAt("ledger", b)),
			says("east", offersAt("ledger", a)), says("east", offersAt("orders", b))}, "ok " + b + " east; ok " + a + " east"},
		{"it moves, and the loss comes first", []Change{says("east", offersAt("orders", a), offersAt("ledger", b)),
			says("east", offersAt("orders", b)), says("east", offersAt("ledger", a))}, "ok " + b + " east; ok " + a + " east"},
		{"or both at once", []Change{says("east", offersAt("orders", a), offersAt("ledger", b)), says("east", offersAt("ledger", a), offersAt("orders", b))},
			"ok " + b + " east; ok " + a + " east"},
		{"while both are named, it is neither's", []Change{hears("east", offersAt("orders", a), offersAt("ledger", a, b))}, "unavailable; ok " + b + " east"},
		{"in whatever order they are told", []Change{hears("east", offersAt("ledger", a, b), offersAt("orders", a))}, "unavailable; ok " + b + " east"},
		{"the other has it back, when that stops", []Change{lease("east", Fresh), says("east", offersAt("ledger", a)), says("east", offersAt("orders", a)), stops("east", "orders")},
			"unavailable; ok " + a + " east"},
		{"another cluster takes nothing", []Change{says("east", offersAt("orders", a)), lease("north", Fresh), says("north", offersAt("ledger", a))},
			"ok " + a + " east; ok " + a + " north"},
		{"nor from who is here", []Change{runs("orders", "1", a), lease("east", Fresh), says("east", offersAt("ledger", a))},
			"ok " + a + " west; ok " + a + " east"},
		{"nor does that take from it", []Change{lease("east", Fresh), says("east", offersAt("ledger", a)), runs("orders", "1", a)},
			"ok " + a + " west; ok " + a + " east"},
		{"nor from a delegate here", []Change{delegated(runs("orders", "1", a)), lease("east", Fresh), says("east", offersAt("ledger", a))},
			"ok " + a + " west; ok " + a + " east"},
		{"an address in no common form is none", []Change{says("east", offersAt("orders", "[::ffff:10.0.0.1]:50002"), offersAt("ledger", a, a))},
			"unavailable; ok " + a + " east"},
		{"a cluster leaves the network", []Change{says("east", offersAt("orders", a)), says("east", offersAt("ledger", a)), objects(far)},
			"ok orders.shop.east.isthmus.internal:15443 east; ok ledger.shop.east.isthmus.internal:15443 east"},
		{"and comes back", []Change{lease("east", Fresh), says("east", offersAt("ledger", a)), says("east", offersAt("orders", a)), objects(far), objects(near)},
			"unavailable; unavailable"},
	} {
		g := oneNetwork()
		for _, c := range test.given {
			g.Apply(c)
		}
		if got := leads(g); got != test.want {
			t.Errorf("%s: %s; want %s", test.what, got, test.want)
		}
		checkDirect(t, g, test.what)
	}
}

// What an app loses does not count, so that no call for it goes through the gateway.
func TestOnlyWhatIsLeftCounts(t *testing.T) {
	g := oneNetwork()
	g.Apply(says("east", offersAt("orders", "10.0.0.1:50002", "10.0.0.2:50002")))
	g.Apply(says("east", offersAt("ledger", "10.0.0.1:50002")))
	route := func() catalog.Route {
		e, _ := g.viewOf(app("checkout")).Entries.Get(app("orders"))
		return e.Routes[1]
	}
	if r := route(); r.Ready != 1 || r.State != catalog.Ready || fmt.Sprint(r.Addresses) != "[10.0.0.2:50002]" {
		t.Errorf("%+v, with one of two addresses left", r)
	}
	g.Apply(says("east", offersAt("ledger", "10.0.0.1:50002", "10.0.0.2:50002")))
	if r := route(); r.Ready != 0 || r.State != catalog.Empty || len(r.Addresses) != 0 {
		t.Errorf("%+v, with no address left", r)
	}
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{app("ledger")}}}})
	if r := route(); r.Ready != 2 || len(r.Addresses) != 2 {
		t.Errorf("%+v, with both addresses back", r)
	}
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true}}})
	if os := g.clusters["east"].direct; len(os.one)+len(os.several)+len(g.imports.changed) != 0 {
		t.Errorf("%v and %v are kept of a peer that exports nothing", os, g.imports.changed)
	}
}

// What is tried is as if it had not been: also whose the addresses of a cluster are that
// would leave the network.
func TestToTryAnotherNetworkChangesNothing(t *testing.T) {
	near, far := reaches("east", "10.9.0.1:15443"), reaches("east", "10.9.0.1:15443")
	near.Network = "net-1"
	for what, tried := range map[string][]catalog.Object{"leaves": {far}, "leaves and comes back": {far, near}} {
		want := 2 // both apps are reached by the gateway
		if len(tried) == 2 {
			want = 0
		}
		g := oneNetwork()
		g.Apply(lease("east", Fresh))
		g.Apply(says("east", offersAt("ledger", "10.0.0.1:50002")))
		g.Apply(says("east", offersAt("orders", "10.0.0.1:50002")))
		before := leads(g)
		effects, err := g.Try(ObjectChange{Put: tried}, func(Facts) {})
		if err != nil || len(effects.Lookups) != want {
			t.Errorf("%s: %v, %v; want %d effects", what, effects, err, want)
		}
		g.Apply(says("east", offersAt("ledger", "10.0.0.1:50002", "10.0.0.9:50002")))
		g.Apply(says("east", offersAt("ledger", "10.0.0.1:50002")))
		if after := leads(g); after != before {
			t.Errorf("%s: %s; before, it was %s", what, after, before)
		}
		checkDirect(t, g, what)
	}
}

// A peer may say that all its apps are at one address. It harms none but itself, and when the
// others have gone, the one that is left has the address.
func TestManyAppsOfAPeerAtOneAddress(t *testing.T) {
	const a, many = "10.0.0.1:50002", 20_000
	g := oneNetwork()
	g.Apply(lease("east", Fresh))
	for _, order := range []string{"the first goes first", "the last goes first"} {
		g.Apply(says("east", offersAt("ledger", a)))
		put, away := PeerChange{Cluster: "east"}, PeerChange{Cluster: "east"}
		for i := range many {
			put.Put = append(put.Put, offersAt(fmt.Sprint("app-", i), a))
			away.Delete = append(away.Delete, app(fmt.Sprint("app-", i)))
		}
		if order == "the last goes first" {
			slices.Reverse(away.Delete)
		}
		g.Apply(Change{Peers: []PeerChange{put}})
		if got := leads(g); got != "unavailable; unavailable" {
			t.Errorf("%s, with many at one address", got)
		}
		checkDirect(t, g, order)
		g.Apply(Change{Peers: []PeerChange{away}})
		if got := leads(g); got != "unavailable; ok "+a+" east" {
			t.Errorf("%s: %s, once the many are gone", order, got)
		}
		g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true}}})
		checkDirect(t, g, order)
	}
}

// TestAPeerChangesNothingOfOthers tells one of two graphs also what a peer says, which names
// all the addresses there are, and holds all that is not about that peer to the other.
func TestAPeerChangesNothingOfOthers(t *testing.T) {
	config := west
	config.Network = "net-1"
	objects := []catalog.Object{exports("a"), exports("b")}
	for _, name := range []string{"east", "north", "south"} {
		c := reaches(name, "10.9.0.1:15443")
		c.Network = "net-1"
		objects = append(objects, c)
	}
	ids := []string{"a", "b", "c", "d", "e"}
	for _, id := range ids {
		objects = append(objects, selects(id, calls("a"), calls("b"), calls("c"), calls("d"), calls("e")))
	}
	others := func(g *Graph) served {
		all := serve(g)
		for _, from := range ids {
			for a, e := range g.viewOf(app(from)).Entries.All() {
				routes := slices.DeleteFunc(slices.Clone(e.Routes), func(r catalog.Route) bool { return r.Cluster == "east" })
				for i := range routes {
					if routes[i].State == catalog.LastResort { // which east's routes may be instead
						routes[i].State = catalog.Damped
					}
				}
				all[from+" "+a.ID] = fmt.Sprintf("%+v", routes)
			}
			delete(all, from+" gateways")
		}
		delete(all, "stats")
		for _, id := range ids {
			for _, taken := range g.owners.taken(app(id)) {
				if taken.Source != "cluster east" {
					all["taken "+id] += fmt.Sprint(taken)
				}
			}
		}
		return all
	}
	contested := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		with, without := NewGraph(config), NewGraph(config)
		for _, g := range []*Graph{with, without} {
			g.Peer("east", nil)
			g.Apply(full(objects...))
			for _, name := range []string{"east", "north", "south"} {
				g.Apply(lease(name, Fresh))
			}
		}
		for step := range 150 {
			c := randomChange(r)
			if c.Objects != nil {
				continue
			}
			if r.IntN(2) == 0 {
				c = Change{Peers: randomExports(r, ids)}
			}
			for _, p := range c.Peers {
				for i := range p.Put {
					if p.Cluster == "east" && r.IntN(3) == 0 {
						p.Put[i].Ready = 0 // and names addresses all the same
					}
				}
			}
			with.Apply(c)
			c.Peers = slices.DeleteFunc(slices.Clone(c.Peers), func(p PeerChange) bool { return p.Cluster == "east" })
			without.Apply(c)
			if is, want := others(with), others(without); !maps.Equal(is, want) {
				t.Fatalf("seed %d, step %d, %+v: with what east says\n%v\nand without\n%v", seed, step, c, is, want)
			}
			contested += len(with.clusters["east"].direct.several) * len(with.clusters["north"].direct.several)
		}
	}
	if contested < 100 {
		t.Errorf("only %d times two peers moved addresses", contested)
	}
}

func TestNothingIsKeptOfAddressesElsewhere(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(reaches("east", "10.9.0.1:15443")))
	g.Apply(says("east", offersAt("orders", "10.0.0.1:50002")))
	if n := len(g.clusters["east"].direct.one); n != 0 {
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
		if len(g.views.shared) > fewGateways+2 {
			t.Fatalf("%d sets of clusters are kept for one view", len(g.views.shared))
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
