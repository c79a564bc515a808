package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("10.0.%d.%d:50002", i/250, i%250)
	}
	slices.Sort(all)
	return all
}

// owners are the instances of shards, by name.
func owners(b *catalog.Backend) []string {
	all := make([]string, len(b.Shards))
	for shard, i := range b.Shards {
		all[shard] = b.Instances[i]
	}
	return all
}

// balanced checks that no instance has two shards more than another, and that there are so
// many shards.
func balanced(t *testing.T, b *catalog.Backend, shards int) {
	t.Helper()
	if len(b.Shards) != shards {
		t.Fatalf("%d shards, want %d", len(b.Shards), shards)
	}
	load := make([]int, len(b.Instances))
	for _, i := range b.Shards {
		load[i]++
	}
	if shards > 0 && slices.Max(load)-slices.Min(load) > 1 {
		t.Fatalf("%d instances have %v shards", len(b.Instances), load)
	}
}

func reassign(old *catalog.Backend, instances []string, shards int) *catalog.Backend {
	return &catalog.Backend{Instances: instances, Shards: assign(old, instances, shards)}
}

func TestShardsAreSharedOutEvenly(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 5, 100, 255, 256, 257, 1000} {
		balanced(t, reassign(nil, names(n), shardsOf(n)), shardsOf(n))
	}
	for _, shards := range []int{2, 7, 10, 64} { // more or fewer shards than instances
		for n := 1; n < 20; n++ {
			balanced(t, reassign(nil, names(n), shards), shards)
		}
	}
}

// With so many shards whatever happens, an instance that goes moves its own and no
// others.
func TestAnInstanceThatGoesMovesOnlyItsOwnShards(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		n, shards := 2+r.IntN(20), 2+r.IntN(60)
		before := reassign(nil, names(n), shards)
		gone := r.IntN(n)
		after := reassign(before, slices.Delete(names(n), gone, gone+1), shards)
		balanced(t, after, shards)
		was, is := owners(before), owners(after)
		for shard := range was {
			if was[shard] != before.Instances[gone] && was[shard] != is[shard] {
				t.Fatalf("%d instances, %d shards: shard %d went from %s to %s, when %s had gone", n, shards, shard, was[shard], is[shard], before.Instances[gone])
			}
		}
	}
}

// As an app has as many shards as instances, one more of them is one more shard, which is
// its own; one less is one less, and whoever had that takes the place of the one gone.
func TestOneInstanceMoreHasTheNewShard(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 2 + r.IntN(40)
		comes := r.IntN(n + 1)
		all := names(n + 1)
		before := reassign(nil, slices.Delete(slices.Clone(all), comes, comes+1), n)
		after := reassign(before, all, n+1)
		balanced(t, after, n+1)
		if is := owners(after); !slices.Equal(is[:n], owners(before)) || is[n] != all[comes] {
			t.Fatalf("%s came: %v after %v", all[comes], is, owners(before))
		}
	}
}

func TestShardsThroughRandomHistories(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		all := names(300)
		up := map[string]bool{}
		var b *catalog.Backend
		for range 100 {
			for range 1 + r.IntN(3) {
				if i := all[r.IntN(1+r.IntN(len(all)))]; r.IntN(5) < 3 {
					up[i] = true
				} else {
					delete(up, i)
				}
			}
			instances := slices.DeleteFunc(slices.Clone(all), func(i string) bool { return !up[i] })
			shards := shardsOf(len(instances))
			next := reassign(b, instances, shards)
			balanced(t, next, shards)
			if b != nil {
				onlyAsNeeded(t, b, next)
			}
			b = next
		}
	}
}

// onlyAsNeeded checks that each shard which both have stays with its instance, if that is
// still there.
func onlyAsNeeded(t *testing.T, old, next *catalog.Backend) {
	t.Helper()
	was, is := owners(old), owners(next)
	for shard := range min(len(was), len(is)) {
		if _, there := slices.BinarySearch(next.Instances, was[shard]); there && was[shard] != is[shard] {
			t.Fatalf("shard %d went from %s, which is still there, to %s", shard, was[shard], is[shard])
		}
	}
}

func TestTheGatewayKeepsShardsWhereTheyAre(t *testing.T) {
	g := NewGraph(west)
	g.Peer("east", nil)
	g.Apply(full(exports("orders", catalog.Allow{Cluster: "east"})))
	for i := range 5 {
		g.Apply(runs("orders", fmt.Sprint(i), fmt.Sprintf("10.0.0.%d:50002", i)))
	}
	before, _, _ := g.exports.gateway.Lookup("3.orders.shop.west.isthmus.internal")
	balanced(t, before, 5)
	if e, _ := g.exports.peers[PeerKey{Cluster: "east"}].Exports.Get(app("orders")); e.Shards != 5 || e.Ready != 5 {
		t.Errorf("east is told %+v", e)
	}
	g.Apply(stops("orders", "2"))
	after, part, _ := g.exports.gateway.Lookup("3.orders.shop.west.isthmus.internal")
	balanced(t, after, 4)
	onlyAsNeeded(t, before, after)
	shard, _ := part.Shard()
	if _, ok := after.Shard(shard); !ok {
		t.Error("shard 3 has no instance")
	}
}

// An instance is called the same by whoever knows it, and by nobody else's name.
func TestInstancesAreCalledByName(t *testing.T) {
	g := NewGraph(west)
	g.Peer("east", nil)
	g.Apply(full(exports("orders", catalog.Allow{Cluster: "east"})))
	addresses := []string{"10.0.0.0:50002", "10.0.0.1:50002", "10.0.0.2:50002"}
	told := func(want ...string) {
		t.Helper()
		e, _ := g.exports.peers[PeerKey{Cluster: "east"}].Exports.Get(app("orders"))
		b, _ := g.exports.gateway.Backends.Get(app("orders"))
		if !slices.Equal(e.Instances, catalog.InstanceTokens(want)) || !slices.Equal(b.Tokens, e.Instances) {
			t.Errorf("east is told %x and the gateway takes %x, want those of %v", e.Instances, b.Tokens, want)
		}
	}
	for i, a := range addresses {
		g.Apply(runs("orders", fmt.Sprint(i), a))
	}
	told(addresses...)
	g.Apply(stops("orders", "1"))
	told(addresses[0], addresses[2])
	g.Apply(stops("orders", "0"))
	told(addresses[2])
	g.Apply(runs("orders", "1", addresses[1]))
	told(addresses[1], addresses[2])
}

// A caller's plan must not cost the names of all shards again.
func TestCallersShareTheAddressesOfShards(t *testing.T) {
	g := NewGraph(west)
	east := reaches("east", "10.9.0.1:15443")
	g.Apply(full(east, selects("checkout", calls("orders", via("east", 0, 1))), selects("cart", calls("orders", via("east", 0, 2)))))
	e := has("orders", 5)
	e.Shards = 5
	g.Apply(says("east", e))
	addresses := func(caller string) []string {
		entry, _ := g.viewOf(app(caller)).Entries.Get(app("orders"))
		return entry.Routes[0].Addresses
	}
	one, other := addresses("checkout"), addresses("cart")
	if len(one) != 5 || one[4] != "4.orders.shop.east.isthmus.internal:15443" || &one[0] != &other[0] {
		t.Errorf("checkout has %q, cart %q; want the same slice of five", one, other)
	}
	g.Apply(objects(reaches("east", "10.9.0.1:443")))
	if got := addresses("cart"); len(got) != 5 || got[0] != "0.orders.shop.east.isthmus.internal:443" {
		t.Errorf("after the port has changed: %q", got)
	}
	e.Shards = 100_000
	g.Apply(says("east", e))
	if got := addresses("cart"); len(got) != catalog.MaxShards {
		t.Errorf("%d addresses are made for what a peer says", len(got))
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{5, 50, 256} {
		b.Run(fmt.Sprintf("first/instances=%d", n), func(b *testing.B) {
			all := names(n)
			b.ReportAllocs()
			for b.Loop() {
				assign(nil, all, n)
			}
		})
		b.Run(fmt.Sprintf("one-gone/instances=%d", n), func(b *testing.B) {
			old := reassign(nil, names(n), n)
			fewer := slices.Delete(names(n), n/2, n/2+1)
			b.ReportAllocs()
			for b.Loop() {
				assign(old, fewer, n-1)
			}
		})
	}
}
