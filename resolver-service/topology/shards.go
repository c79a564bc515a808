package topology

import (
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// shardsOf is how many shards an app with so many ready instances has: one each, so that
// a caller in another cluster that goes round the shards reaches all of them alike. One
// instance needs none.
func shardsOf(ready int) int {
	if ready < 2 {
		return 0
	}
	return min(ready, catalog.MaxShards)
}

// assign gives each of so many shards an instance, by its place in instances, which are
// sorted. None has two more than another. What old had of them is kept as far as that
// allows: an instance that is gone moves no shards but its own, and one that comes takes
// what nobody has. Which of several instances takes such a shard is decided by what they
// and the shard are called, so that replicas of a gateway which saw the same agree.
func assign(old *catalog.Backend, instances []string, shards int) []uint16 {
	instances = instances[:min(len(instances), math.MaxUint16)]
	if shards == 0 || len(instances) == 0 {
		return nil
	}
	a := &assignment{
		shards: make([]uint16, shards),
		load:   make([]int, len(instances)),
		least:  shards / len(instances),
		spare:  shards % len(instances),
	}
	var free []int
	for shard := range a.shards {
		if i, ok := holder(old, shard, instances); !ok || !a.give(shard, i) {
			free = append(free, shard)
		}
	}
	if len(free) > 0 {
		a.score(instances)
	}
	for _, shard := range free {
		a.give(shard, a.best(shard))
	}
	return a.shards
}

// holder is the instance that had a shard, if it is still there.
func holder(old *catalog.Backend, shard int, instances []string) (int, bool) {
	if old == nil || shard >= len(old.Shards) {
		return 0, false
	}
	return slices.BinarySearch(instances, old.Instances[old.Shards[shard]])
}

type assignment struct {
	shards []uint16
	load   []int    // shards of each instance
	names  []uint64 // of each instance
	least  int      // shards that each instance has
	spare  int      // instances that may still have one more
}

// give gives a shard to an instance, unless it has its share.
func (a *assignment) give(shard, instance int) bool {
	switch load := a.load[instance]; {
	case load > a.least, load == a.least && a.spare == 0:
		return false
	case load == a.least:
		a.spare--
	}
	a.load[instance]++
	a.shards[shard] = uint16(instance)
	return true
}

func (a *assignment) score(instances []string) {
	a.names = make([]uint64, len(instances))
	for i, name := range instances {
		a.names[i] = xxhash.Sum64String(name)
	}
}

// best is the instance for a shard: of those with the least to do, the one that the shard
// likes best.
func (a *assignment) best(shard int) int {
	best, most := -1, uint64(0)
	for i, load := range a.load {
		if best >= 0 && load > a.load[best] {
			continue
		}
		if score := mix(a.names[i] ^ mix(uint64(shard)+1)); best < 0 || load < a.load[best] || score > most {
			best, most = i, score
		}
	}
	return best
}

// mix is the last step of splitmix64: each bit of what comes in changes half of those
// that go out.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
