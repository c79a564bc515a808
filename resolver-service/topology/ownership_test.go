package topology

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func altered(c Change, alter func(*InstanceChange)) Change {
	c.Instances = slices.Clone(c.Instances)
	for i := range c.Instances {
		c.Instances[i].Put = slices.Clone(c.Instances[i].Put)
		alter(&c.Instances[i])
	}
	return c
}

// registers is a live registration at a time.
func registers(since int64, c Change) Change {
	return altered(c, func(c *InstanceChange) { c.Rank, c.Put[0].Since = Live, since })
}

func ranked(r Rank, c Change) Change { return altered(c, func(c *InstanceChange) { c.Rank = r }) }
func drains(c Change) Change         { return altered(c, func(c *InstanceChange) { c.Put[0].Draining = true }) }
func delegated(c Change) Change {
	return altered(c, func(c *InstanceChange) { c.Put[0].Unverified = true })
}

// ownerAt is the app that has an address.
func ownerAt(g *Graph, address string) string {
	if n := g.owners.owner(netip.MustParseAddrPort(address)); n != nil {
		return n.app.ID
	}
	return "nobody"
}

func TestWhoseAnAddressIs(t *testing.T) {
	const a, b = "10.0.0.1:50002", "10.0.0.2:50002"
	billing, stock := from("stream", runs("billing", "1", a)), from("consul", runs("stock", "1", a))
	orders, ledger := ranked(Written, from("static", runs("orders", "1", a))), ranked(Written, from("static", runs("ledger", "1", a)))
	pod := ranked(Scheduled, from("kubernetes", runs("pod", "1", a)))
	cart := from("consul", altered(runs("cart", "1", a), func(c *InstanceChange) { c.Put[0].Since = 7 }))
	for _, test := range []struct {
		what  string
		given []Change
		want  string
	}{
		{"a live registration beats a listed one", []Change{stock, registers(1, billing)}, "billing"},
		{"also if the list is newer", []Change{registers(1, billing), cart}, "billing"},
		{"and if it drains", []Change{registers(1, drains(billing)), stock}, "billing"},
		{"of two live ones the later wins", []Change{registers(1, billing), registers(2, from("etcd", stock))}, "stock"},
		{"whichever is heard first", []Change{registers(2, from("etcd", stock)), registers(1, billing)}, "stock"},
		{"and whichever is ready", []Change{registers(1, billing), registers(2, from("etcd", drains(stock)))}, "stock"},
		{"one that registers once more has it back", []Change{registers(1, billing), registers(2, from("etcd", stock)), registers(3, billing)}, "billing"},
		{"one that is only told again has not", []Change{registers(1, billing), registers(2, from("etcd", stock)), registers(1, billing)}, "stock"},
		{"it is the first's again once the other has gone", []Change{registers(1, billing), registers(2, from("etcd", stock)), from("etcd", stops("stock", "1"))}, "billing"},
		{"or has moved", []Change{registers(1, billing), registers(2, from("etcd", stock)), registers(2, from("etcd", runs("stock", "1", b)))}, "billing"},
		{"a delegate takes it from nobody", []Change{orders, registers(9, delegated(billing))}, "orders"},
		{"not before a sidecar either", []Change{registers(9, delegated(billing)), registers(1, from("etcd", stock))}, "stock"},
		{"it has what nobody else has", []Change{registers(9, delegated(billing))}, "billing"},
		{"of two delegates the later wins", []Change{registers(9, delegated(billing)), registers(8, delegated(from("etcd", stock)))}, "billing"},
		{"a sidecar that comes itself is none", []Change{stock, registers(1, delegated(billing)), registers(2, billing)}, "billing"},
		{"among lists, the platform knows best", []Change{pod, cart, orders}, "pod"},
		{"then a catalog", []Change{orders, drains(stock)}, "stock"},
		{"in a catalog the newest", []Change{cart, stock}, "cart"},
		{"unless it drains", []Change{drains(cart), stock}, "stock"},
		{"of what is written down the one that is ready", []Change{drains(ledger), orders}, "orders"},
		{"or else by name", []Change{orders, ledger}, "ledger"},
	} {
		for range 2 {
			g := NewGraph(west)
			g.Apply(full())
			for _, c := range test.given {
				g.Apply(c)
			}
			if got := ownerAt(g, a); got != test.want {
				t.Errorf("%s: it is that of %s, want %s", test.what, got, test.want)
			}
			if len(test.given) == 2 { // nothing follows from the order
				slices.Reverse(test.given)
			}
		}
	}
}

// TestOfAListTheReadyInstanceHasTheAddress gives an address to another instance: of the same app or
// not, newer or not, in one change or two, and whichever of the two the list names first.
func TestOfAListTheReadyInstanceHasTheAddress(t *testing.T) {
	const a = "10.0.0.1:50002"
	for _, rank := range []Rank{Written, Listed, Scheduled} {
		for _, heirApp := range []string{"orders", "stock"} {
			for _, ids := range [][2]string{{"1", "2"}, {"2", "1"}} {
				for _, since := range []int64{1, 2, 3} {
					for _, order := range []string{"old first", "heir first", "at once", "at once, heir first", "in a full set"} {
						old, heir := at("orders", ids[0], a), at(heirApp, ids[1], a)
						old.Draining, old.Since, heir.Since = true, 2, since
						change := func(put ...catalog.Instance) Change {
							return Change{Instances: []InstanceChange{{Source: "list", Rank: rank, Full: order == "in a full set", Put: put}}}
						}
						changes := map[string][]Change{
							"old first": {change(old), change(heir)}, "heir first": {change(heir), change(old)},
							"at once": {change(old, heir)}, "at once, heir first": {change(heir, old)}, "in a full set": {change(old, heir)},
						}[order]
						what := fmt.Sprintf("rank %d, %s at %d with ID %s, %s", rank, heirApp, since, ids[1], order)
						g := NewGraph(west)
						g.Apply(full(selects("checkout", calls("orders"), calls("stock"))))
						for i, c := range changes {
							g.Apply(c)
							if got := whose(g)(a); order != "old first" && got != "["+heirApp+"]" || i == 1 && got != "["+heirApp+"]" {
								t.Fatalf("%s: after change %d the address is with %s", what, i+1, got)
							}
						}
						if n := g.apps[app(heirApp)]; n.draining != 0 || g.counts.Draining != 0 {
							t.Errorf("%s: %d drain, %d in all; want that the old one isn't counted", what, n.draining, g.counts.Draining)
						}
						for _, u := range g.Apply(from("list", stops("orders", ids[0]))) {
							for _, v := range u.Views {
								if e, _ := v.View.Entries.Get(app(heirApp)); len(e.Routes) == 0 || e.Routes[0].Ready != 1 {
									t.Errorf("%s: without an instance while the old one goes: %+v", what, e)
								}
							}
						}
						if got := whose(g)(a); got != "["+heirApp+"]" {
							t.Errorf("%s: after the old one went, it is with %s", what, got)
						}
					}
				}
			}
		}
	}
}

func TestADelegateTellsWhoAsksOnlyWhereNothingElseDoes(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full())
	for _, step := range []struct {
		what   string
		change Change
		want   string
	}{
		{"a delegate says that stock is there", delegated(runs("stock", "1", "10.0.0.1:1")), "stock"},
		{"orders is", runs("orders", "1", "10.0.0.1:50002"), "orders"},
		{"a delegate says that cart is, too", delegated(runs("cart", "1", "10.0.0.1:2")), "orders"},
		{"cart registers where orders is", registers(1, from("other", runs("cart", "2", "10.0.0.1:50002"))), "cart"},
		{"ledger is there, too", runs("ledger", "1", "10.0.0.1:50003"), "shared"},
		{"cart has gone", from("other", stops("cart", "2")), "shared"},
		{"ledger has gone", stops("ledger", "1"), "orders"},
		{"orders has gone", stops("orders", "1"), "shared"},
		{"cart says so itself", runs("cart", "1", "10.0.0.1:2"), "cart"},
		{"stock is not there after all", stops("stock", "1"), "cart"},
		{"cart has gone, too", stops("cart", "1"), "nobody"},
	} {
		g.Apply(step.change)
		if got := g.asks("10.0.0.1"); got != step.want {
			t.Errorf("%s: %s asks, want %s", step.what, got, step.want)
		}
	}
	if n := len(g.owners.several) + len(g.owners.v4) + g.owners.count; n != 0 {
		t.Errorf("%d things are kept of nobody", n)
	}
}

// TestReplicasAgreeWhoseAnAddressIs has replicas hear the same sources in another order, and each
// another way to what they say in the end.
func TestReplicasAgreeWhoseAnAddressIs(t *testing.T) {
	ranks := map[string]Rank{"static": Written, "consul": Listed, "kubernetes": Scheduled, "etcd": Live, "stream": Live, "unknown": 0}
	contested := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		var sets []InstanceChange
		for _, source := range slices.Sorted(maps.Keys(ranks)) {
			set := InstanceChange{Source: source, Rank: ranks[source], Full: true}
			for n := range r.IntN(6) {
				put := at(fmt.Sprint("app-", r.IntN(5)), fmt.Sprint(n), fmt.Sprintf("10.0.0.%d:50002", r.IntN(4)))
				put.Draining, put.Unverified, put.Since = r.IntN(3) == 0, r.IntN(6) == 0, int64(r.IntN(3))
				set.Put = append(set.Put, put)
			}
			sets = append(sets, set)
		}
		first := replicaOf(r, sets)
		contested += len(first.owners.contested)
		for range 4 {
			other := replicaOf(r, sets)
			for n := range 4 {
				address := fmt.Sprintf("10.0.0.%d:50002", n)
				if a, b := ownerAt(first, address), ownerAt(other, address); a != b {
					t.Fatalf("seed %d: %s is that of %s to one replica, and to another that of %s: %+v", seed, address, a, b, sets)
				}
			}
		}
	}
	if contested < 100 {
		t.Errorf("only %d addresses had several claims", contested)
	}
}

// replicaOf is a graph that hears sets of instances in any order. Each instance may have been
// otherwise for a while.
func replicaOf(r *rand.Rand, sets []InstanceChange) *Graph {
	g := NewGraph(west)
	g.Apply(full())
	var late []InstanceChange
	for _, i := range r.Perm(len(sets)) {
		set := sets[i]
		set.Put = slices.Clone(set.Put)
		r.Shuffle(len(set.Put), func(i, j int) { set.Put[i], set.Put[j] = set.Put[j], set.Put[i] })
		for k := range set.Put {
			if r.IntN(2) == 0 {
				late = append(late, InstanceChange{Source: set.Source, Rank: set.Rank, Put: []catalog.Instance{set.Put[k]}})
				set.Put[k].Draining = !set.Put[k].Draining
				set.Put[k].Since = int64(r.IntN(3))
				set.Put[k].Unverified = r.IntN(2) == 0
				if r.IntN(2) == 0 {
					set.Put[k].Address = netip.MustParseAddrPort("10.0.0.9:50002")
				}
			}
		}
		g.Apply(Change{Instances: []InstanceChange{set}})
	}
	r.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	for _, change := range late {
		g.Apply(Change{Instances: []InstanceChange{change}})
	}
	return g
}

func TestTheClockIsLaterThanAllItHeard(t *testing.T) {
	var c Clock
	last := c.Next()
	for _, heard := range []int64{last + 1_000_000, 5, -1, 1 << 62} {
		c.Heard(heard)
		now := c.Next()
		if now <= last || now <= min(heard, 1<<53) {
			t.Errorf("%d after %d and %d", now, last, heard)
		}
		last = now
	}
}
