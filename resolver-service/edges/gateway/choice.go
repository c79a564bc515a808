package gateway

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
)

// choose picks the instance to try first, by its place in the list: that of the shard
// or, for the plain name of an app, the one of two taken at random that has fewer
// connections. Two, and not the one with fewest of all: an instance that takes
// connections only to break them off has fewest always, and would draw all.
func (d *destination) choose(l *loads) int {
	switch n := len(d.instances); {
	case d.shard != noShard:
		return d.first
	case n == 1:
		return 0
	default:
		a, b := rand.IntN(n), rand.IntN(n-1)
		if b >= a { // never the same twice
			b++
		}
		if l.lighter(d.instances[a], d.instances[b]) == d.instances[b] {
			return b
		}
		return a
	}
}

// others lists the places of the instances in the order in which they are tried when
// the first can't be reached. Each shard has an order of its own, by rendezvous hashing:
// the shards of an instance that died spread over those that are left, and one shard
// stays with one instance for as long as that takes.
func (d *destination) others() []int {
	if d.shard == noShard {
		return rand.Perm(len(d.instances))
	}
	places := make([]int, len(d.instances))
	ranks := make([]uint64, len(d.instances))
	for i, instance := range d.instances {
		places[i], ranks[i] = i, rank(d.shard, instance)
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(ranks[b], ranks[a]) })
	return places
}

// rank is how well an instance suits a shard, the same in every gateway.
func rank(shard int, instance string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strconv.Itoa(shard)))
	h.Write([]byte{'/'})
	h.Write([]byte(instance))
	// FNV leaves the highest bits of short texts nearly alone, and they decide: mix
	// (the last steps of MurmurHash3).
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
