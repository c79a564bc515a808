package topology

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func altered(c Change, alter func(*InstanceChange)) Change {
	c.Instances = slices.Clone(c.Instances)
	c.Instances[0].Put = slices.Clone(c.Instances[0].Put)
	alter(&c.Instances[0])
	return c
}

func standing(c Change) Change { return altered(c, func(c *InstanceChange) { c.Standing = true }) }
func present(c Change) Change  { return altered(c, func(c *InstanceChange) { c.Present = true }) }
func hearsay(c Change) Change  { return altered(c, func(c *InstanceChange) { c.Hearsay = true }) }
func drains(c Change) Change   { return altered(c, func(c *InstanceChange) { c.Put[0].Draining = true }) }

// ownerAt is the app that has an address.
func ownerAt(g *Graph, address string) string {
	if n := g.addresses.owner(netip.MustParseAddrPort(address)); n != nil {
		return n.app.ID
	}
	return "nobody"
}

func TestWhoseAnAddressIs(t *testing.T) {
	const a, b = "10.0.0.1:50002", "10.0.0.2:50002"
	billing, stock := from("stream", runs("billing", "1", a)), from("consul", runs("stock", "1", a))
	orders, ledger := from(static, runs("orders", "1", a)), from(static, runs("ledger", "1", a))
	for _, test := range []struct {
		what  string
		given []Change
		want  string
	}{
		{"a restored stream comes before a dead registration", []Change{standing(billing), standing(drains(stock))}, "billing"},
		{"in whatever order they are heard", []Change{standing(drains(stock)), standing(billing)}, "billing"},
		{"and before one that is ready", []Change{standing(billing), standing(stock)}, "billing"},
		{"as it does if heard later", []Change{standing(stock), standing(billing)}, "billing"},
		{"who is ready comes before a stream that drains", []Change{standing(drains(billing)), standing(stock)}, "stock"},
		{"until that is ready again", []Change{standing(drains(billing)), standing(stock), billing}, "billing"},
		{"or both are not", []Change{standing(drains(billing)), standing(stock), drains(stock)}, "billing"},
		{"a catalog comes before what is written down", []Change{standing(orders), standing(stock)}, "stock"},
		{"within a source the newest is last", []Change{standing(stock), standing(from("consul", runs("cart", "1", a)))}, "cart"},
		{"and stays the newest when it is ready again", []Change{
			standing(stock), standing(from("consul", runs("cart", "1", a))), drains(from("consul", runs("cart", "1", a))), from("consul", runs("cart", "1", a)),
			drains(stock), stock}, "cart"},
		{"who comes up comes before all that stand", []Change{standing(billing), stock}, "stock"},
		{"ready or not", []Change{standing(billing), drains(stock)}, "stock"},
		{"and what stands takes nothing from who came up", []Change{stock, standing(billing)}, "stock"},
		{"but a sidecar that registers takes its address back", []Change{billing, stock, present(billing)}, "billing"},
		{"also one that stood before", []Change{standing(billing), stock, present(billing)}, "billing"},
		{"what is told again takes nothing back", []Change{billing, stock, billing}, "stock"},
		{"of what is written down, the name decides", []Change{orders, ledger}, "ledger"},
		{"not what was written first", []Change{ledger, orders}, "ledger"},
		{"unless only one is ready", []Change{drains(ledger), orders}, "orders"},
		{"what is written down has not come up", []Change{standing(billing), orders}, "billing"},
		{"and does not tell of itself", []Change{billing, present(orders)}, "billing"},
		{"hearsay takes nothing", []Change{standing(orders), hearsay(stock)}, "orders"},
		{"nor if it is told again and again", []Change{standing(drains(orders)), present(hearsay(stock)), present(hearsay(stock))}, "orders"},
		{"nor if it says that it tells of itself", []Change{stock, billing, present(hearsay(stock))}, "billing"},
		{"nor if what was there before does", []Change{standing(stock), standing(billing), standing(present(hearsay(stock)))}, "billing"},
		{"nor does it keep anything", []Change{hearsay(stock), standing(drains(orders))}, "orders"},
		{"it has what nobody else has", []Change{billing, hearsay(stock), from("stream", stops("billing", "1"))}, "stock"},
		{"the instance itself is no hearsay", []Change{billing, hearsay(stock), present(stock)}, "stock"},
		{"and hearsay makes none of it", []Change{stock, hearsay(stock), present(hearsay(from("consul", runs("cart", "1", a))))}, "stock"},
		{"who moves has come up", []Change{standing(billing), standing(from("consul", runs("stock", "1", b))), stock}, "stock"},
	} {
		g := NewGraph(west)
		g.Apply(full())
		for _, c := range test.given {
			g.Apply(c)
		}
		if got := ownerAt(g, a); got != test.want {
			t.Errorf("%s: it is that of %s, want %s", test.what, got, test.want)
		}
	}
}

func TestHearsayTellsOnlyWhereNothingIsKnownWhoAsks(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full())
	for _, step := range []struct {
		what   string
		change Change
		want   string
	}{
		{"somebody elsewhere says that stock is there", hearsay(runs("stock", "1", "10.0.0.1:1")), "stock"},
		{"orders is", runs("orders", "1", "10.0.0.1:50002"), "orders"},
		{"somebody elsewhere says that cart is, too", hearsay(runs("cart", "1", "10.0.0.1:2")), "orders"},
		{"cart comes up where orders is", from("other", runs("cart", "2", "10.0.0.1:50002")), "cart"},
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
	if n := len(g.addresses.several) + len(g.addresses.v4) + g.addresses.count; n != 0 {
		t.Errorf("%d things are kept of nobody", n)
	}
}

// TestReplicasAgreeWhoseAnAddressIs starts replicas that hear the same sources in another
// order, and each another way to what is ready in the end.
func TestReplicasAgreeWhoseAnAddressIs(t *testing.T) {
	sources := []string{static, "consul", "kubernetes", "etcd", "stream", "unknown"}
	contested := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		sets := make([]InstanceChange, len(sources))
		for i, source := range sources {
			sets[i] = InstanceChange{Source: source, Full: true, Standing: true, Hearsay: r.IntN(6) == 0}
			for n := range r.IntN(6) {
				put := at(fmt.Sprint("app-", r.IntN(5)), fmt.Sprint(n), fmt.Sprintf("10.0.0.%d:50002", r.IntN(4)))
				put.Draining = r.IntN(3) == 0
				sets[i].Put = append(sets[i].Put, put)
			}
		}
		first := replicaOf(r, sets)
		contested += len(first.addresses.contested)
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

// replicaOf is a graph that hears sets of instances in any order, in which each may have been
// ready or not for a while.
func replicaOf(r *rand.Rand, sets []InstanceChange) *Graph {
	g := NewGraph(west)
	g.Apply(full())
	var late []InstanceChange
	for _, i := range r.Perm(len(sets)) {
		set := sets[i]
		set.Put = slices.Clone(set.Put)
		if set.Source == static {
			r.Shuffle(len(set.Put), func(i, j int) { set.Put[i], set.Put[j] = set.Put[j], set.Put[i] })
		}
		for k := range set.Put {
			if r.IntN(2) == 0 {
				late = append(late, InstanceChange{Source: set.Source, Put: []catalog.Instance{set.Put[k]}, Hearsay: set.Hearsay})
				set.Put[k].Draining = !set.Put[k].Draining
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
