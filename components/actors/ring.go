package actors

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/crypto/blake2b"
)

// ring says which of the hosts of a type hosts an actor, as all sidecars of Dapr work it out for
// themselves: by consistent hashing, as in pkg/placement/hashing of github.com/dapr/dapr.
type ring struct {
	hosts  []hostKey
	points int // on the ring, of each host

	once sync.Once // most rings are never asked
	ring []point   // sorted
}

type point struct {
	at   uint64
	host int // in hosts
}

// maxPoints is a bound on what the placement service says; it says 100 by default.
const maxPoints = 10_000

// find is the host of an actor; false without any.
func (r *ring) find(id string) (hostKey, bool) {
	r.once.Do(func() {
		r.ring = make([]point, 0, len(r.hosts)*r.points)
		for h := range r.hosts {
			for i := range r.points {
				r.ring = append(r.ring, point{hash(r.hosts[h].address + strconv.Itoa(i)), h})
			}
		}
		slices.SortFunc(r.ring, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	})
	if len(r.ring) == 0 {
		return hostKey{}, false
	}
	at, _ := slices.BinarySearchFunc(r.ring, hash(id), func(p point, h uint64) int { return cmp.Compare(p.at, h) })
	return r.hosts[r.ring[at%len(r.ring)].host], true
}

func hash(key string) uint64 {
	sum := blake2b.Sum512([]byte(key))
	return binary.LittleEndian.Uint64(sum[:])
}
