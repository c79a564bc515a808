package topology

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// from is an instance as another source names it.
func from(source string, c Change) Change {
	c.Instances = slices.Clone(c.Instances)
	for i := range c.Instances {
		c.Instances[i].Source = source
	}
	return c
}

func with(changes ...Change) (all Change) {
	for _, c := range changes {
		all.Instances = append(all.Instances, c.Instances...)
	}
	return all
}

// whose is the app that each follower sees an address with, and nobody else.
func whose(g *Graph) func(address string) string {
	holders := map[string][]string{}
	for id, n := range g.apps {
		for _, a := range n.ready {
			holders[a] = append(holders[a], id.ID)
		}
	}
	return func(address string) string { return fmt.Sprint(holders[address]) }
}

func TestAnAddressBelongsToWhoeverCameUpWithItLast(t *testing.T) {
	const a = "10.0.0.1:50002"
	orders, ledger := registers(1, runs("orders", "1", a)), registers(2, runs("ledger", "1", a))
	full := func(c Change) Change { c.Instances[0].Full = true; return c }
	steps := []struct {
		what   string
		change Change
		want   string
	}{
		{"orders has it", orders, "[orders]"},
		{"another source says so too", from("other", orders), "[orders]"},
		{"ledger comes up with it", ledger, "[ledger]"},
		{"what orders has is said again", from("other", full(registers(1, runs("orders", "1", a)))), "[ledger]"},
		{"ledger goes", stops("ledger", "1"), "[orders]"},
		{"it comes again, by another source", registers(3, from("other", ledger)), "[ledger]"},
		{"and is not ready, which orders is not either", from("other", drains(registers(3, runs("ledger", "1", a)))), "[]"},
		{"orders is found there anew", registers(4, runs("orders", "2", a)), "[orders]"},
		{"and is not there after all", stops("orders", "2"), "[]"},
		{"ledger moves", registers(3, from("other", runs("ledger", "1", "10.0.0.2:50002"))), "[orders]"},
		{"one source knows it no more", from("other", stops("orders", "1")), "[orders]"},
		{"and neither the other", stops("orders", "1"), "[]"},
	}
	g := NewGraph(west)
	g.Apply(Change{Objects: &ObjectChange{Full: true}})
	for _, step := range steps {
		g.Apply(step.change)
		if got := whose(g)(a); got != step.want {
			t.Errorf("%s: it is with %s, want %s", step.what, got, step.want)
		}
	}
	g.Apply(from("other", stops("ledger", "1")))
	if n := g.owners.count + len(g.owners.v4) + len(g.owners.several) + len(g.owners.contested) + len(g.owners.served) + len(g.owners.sources); n != 0 {
		t.Errorf("%d things are kept of addresses that nobody has", n)
	}
}

func TestAnInstanceThatSourcesDisagreeOnIsNotReady(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders"))))
	drains := runs("orders", "pod-1", "10.0.0.1:50002")
	drains.Instances[0].Put[0].Draining = true
	g.Apply(runs("orders", "1", "10.0.0.1:50002"))
	g.Apply(from("kubernetes", drains))
	e, _ := g.viewOf(app("checkout")).Entries.Get(app("orders"))
	if r := e.Routes[0]; r.Ready != 0 || r.Draining != 1 {
		t.Errorf("%d ready, %d draining; want the one address as draining", r.Ready, r.Draining)
	}
	if s := g.Stats(); s.Instances != 1 || s.Draining != 1 {
		t.Errorf("stats %+v", s)
	}
	g.Apply(from("kubernetes", runs("orders", "pod-1", "10.0.0.1:50002")))
	e, _ = g.viewOf(app("checkout")).Entries.Get(app("orders"))
	if r := e.Routes[0]; r.Ready != 1 || r.Draining != 0 || len(r.Addresses) != 1 {
		t.Errorf("%d ready at %v, %d draining; want the one address once", r.Ready, r.Addresses, r.Draining)
	}
	if !reflect.DeepEqual(g.owners.sources, map[string]int{"test": 1, "kubernetes": 1}) {
		t.Errorf("sources %v", g.owners.sources)
	}
}

// seen is where an audience sees each address of a cluster, by both: the apps with it in any
// view, in the gateway's table and in what peers know.
func (a *audience) seen() map[string]map[catalog.App]bool {
	all := map[string]map[catalog.App]bool{}
	see := func(cluster string, app catalog.App, addresses []string) {
		for _, address := range addresses {
			address = cluster + " " + address
			if all[address] == nil {
				all[address] = map[catalog.App]bool{}
			}
			all[address][app] = true
		}
	}
	views := []*catalog.View{a.open}
	for _, v := range a.own {
		views = append(views, v)
	}
	for _, v := range views {
		for id, e := range v.Entries.All() {
			for _, r := range e.Routes {
				if !r.Gateway {
					see(r.Cluster, id, r.Addresses)
				}
			}
		}
	}
	for id, b := range a.gateway.Backends.All() {
		see(west.Cluster, id, b.Instances)
	}
	for _, p := range a.peers {
		for id, e := range p.Exports.All() {
			see(west.Cluster, id, e.Addresses)
		}
	}
	return all
}

// TestNoAddressIsEverSeenWithTwoApps publishes value by value, in every order that
// publishing has, and looks after each.
func TestNoAddressIsEverSeenWithTwoApps(t *testing.T) {
	config := west
	config.Network = "net-1"
	east, north := reaches("east", "10.9.0.1:15443"), reaches("north", "10.9.0.2:15443")
	east.Network, north.Network = "net-1", "net-1"
	ids := []string{"a", "b", "c", "d", "e"}
	moves, direct := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		config.Open = seed%2 == 0
		g := NewGraph(config)
		g.Peer("east", nil)
		objects := []catalog.Object{east, north}
		for _, id := range ids {
			var all []catalog.Endpoint
			for _, callee := range ids {
				if callee != id {
					all = append(all, calls(callee))
				}
			}
			objects = append(objects, selects(id, all...), exports(id, catalog.Allow{}))
		}
		follower := &audience{own: map[catalog.App]*catalog.View{}, peers: map[PeerKey]*PeerView{}}
		follower.takes(g.Apply(full(objects...))...)
		for step := range 150 {
			var changes []Change
			for range 1 + r.IntN(4) {
				id, instance := ids[r.IntN(5)], fmt.Sprint(r.IntN(3))
				c := runs(id, instance, fmt.Sprintf("10.0.0.%d:50002", r.IntN(4)))
				if r.IntN(4) == 0 {
					c = stops(id, instance)
				} else {
					c.Instances[0].Put[0].Draining = r.IntN(6) == 0
					c.Instances[0].Full = r.IntN(8) == 0
				}
				if c.Instances[0].Rank = Rank(r.IntN(2)) * Live; len(c.Instances[0].Put) > 0 {
					c.Instances[0].Put[0].Since, c.Instances[0].Put[0].Unverified = int64(step+r.IntN(5)), r.IntN(5) == 0
				}
				changes = append(changes, from([]string{"stream", "kubernetes"}[r.IntN(2)], c))
			}
			change := with(changes...)
			if change.Peers = randomExports(r, ids); r.IntN(3) == 0 {
				change.Instances = nil
			}
			updates := g.Apply(change)
			if len(updates) > 1 {
				moves++
			}
			for _, u := range updates {
				for _, piece := range pieces(r, u) {
					follower.take(piece)
					for address, apps := range follower.seen() {
						if len(apps) > 1 {
							t.Fatalf("seed %d, step %d, %+v: %s is seen with %v", seed, step, change, address, apps)
						}
					}
				}
			}
			whole(t, g, follower)
			for _, c := range g.clusters {
				direct += len(c.direct.several)
			}
		}
	}
	if moves < 100 || direct < 100 {
		t.Errorf("only %d changes moved an address, and %d times peers had one with several apps", moves, direct)
	}
}

// randomExports move addresses between the apps and clusters of peers, and of this cluster.
func randomExports(r *rand.Rand, ids []string) (all []PeerChange) {
	for range r.IntN(3) {
		c := PeerChange{Cluster: []string{"east", "north"}[r.IntN(2)], Lease: Fresh, Full: r.IntN(8) == 0}
		for range 1 + r.IntN(2) {
			e := has(ids[r.IntN(len(ids))], 0)
			for n := range 6 {
				if r.IntN(4) == 0 {
					e.Addresses = append(e.Addresses, fmt.Sprintf("10.0.0.%d:50002", n))
				}
			}
			if e.Ready = uint32(len(e.Addresses)); e.Ready == 0 {
				c.Delete = append(c.Delete, e.App)
			} else {
				c.Put = append(c.Put, e)
			}
		}
		all = append(all, c)
	}
	return all
}

// pieces are the values of an update, one by one.
func pieces(r *rand.Rand, u Update) (all []Update) {
	for _, v := range u.Views {
		all = append(all, Update{Views: []ViewUpdate{v}})
	}
	if u.Open != nil {
		all = append(all, Update{Open: u.Open})
	}
	if u.Gateway != nil {
		all = append(all, Update{Gateway: u.Gateway})
	}
	for name, p := range u.Peers {
		all = append(all, Update{Peers: map[PeerKey]*PeerView{name: p}})
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// whole checks that in the end each app is seen with all that it has.
func whole(t *testing.T, g *Graph, a *audience) {
	t.Helper()
	seen := a.seen()
	for id, n := range g.apps {
		for _, i := range n.instances {
			if address := i.text(); slices.Contains(n.ready, address) && !seen[west.Cluster+" "+address][id] {
				t.Fatalf("%s is not seen at %s", id, address)
			}
		}
	}
}

func BenchmarkAddressMoves(b *testing.B) {
	g := NewGraph(west)
	g.Apply(fleet(1000, 20, 0))
	address := netip.MustParseAddrPort("10.77.0.1:50002")
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		id := fmt.Sprintf("app-%05d", i%1000)
		g.Apply(Change{Instances: []InstanceChange{{Source: "test", Rank: Live, Put: []catalog.Instance{{ID: fmt.Sprint(i % 7), App: app(id), Address: address, Since: int64(i)}}}}})
		i++
	}
}
