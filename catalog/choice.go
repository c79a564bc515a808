package catalog

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// golden is 2^64 divided by the golden ratio. Its multiples, modulo 2^64, are spread as evenly as
// any sequence can be: after n of them, each part of the range has its share of n to within a
// few. The same is true for every second, third and so on, which matters to a caller that asks
// twice for each call.
const golden = 0x9E3779B97F4A7C15

// Choice spreads calls over routes by priority, weight and ramp. The calls walk through the range
// of uint64 in golden steps. Each route has a cut of that range, as wide as its share.
type Choice struct {
	sequence sequence
	cuts     []cut // the last one ends with the range
}

// cut is a route's part of the range, after the cut before it.
type cut struct {
	last  uint64 // inclusive
	route int    // its index
}

// NewChoice makes the choice among routes that are sorted by priority. One must be usable.
//
// A level is the routes of one priority. It takes all that the levels before it leave. It leaves
// something only while all its usable routes are ramping up and a lower route is usable. Then it
// takes as much as the most advanced of them.
func NewChoice(routes []Route) *Choice {
	c := &Choice{}
	c.sequence.shared.Store(rand.Uint64())
	at := uint64(0)
	for first := nextUsable(routes, 0); first >= 0; {
		end := levelEnd(routes, first)
		below := nextUsable(routes, end)
		last := uint64(math.MaxUint64)
		if share := levelShare(routes[first:end]); share < 100 && below >= 0 {
			last = at + scale(math.MaxUint64-at, share, 100)
			c.divide(routes, first, end, at, last)
			if at = last + 1; at == 0 {
				break // nothing is left
			}
			first = below
			continue
		}
		c.divide(routes, first, end, at, last)
		break
	}
	return c
}

// sole tells whether the first usable route takes everything.
func sole(routes []Route, first int) bool {
	end := levelEnd(routes, first)
	if next := nextUsable(routes, first+1); next >= 0 && next < end {
		return false
	}
	return routes[first].Percent() == 100 || nextUsable(routes, end) < 0
}

func nextUsable(routes []Route, from int) int {
	for i := from; i < len(routes); i++ {
		if routes[i].Usable() {
			return i
		}
	}
	return -1
}

func levelEnd(routes []Route, first int) int {
	end := first
	for end < len(routes) && routes[end].Priority == routes[first].Priority {
		end++
	}
	return end
}

// levelShare is how much a level takes of what is left for it, in percent.
func levelShare(level []Route) (share uint64) {
	for i := range level {
		if r := &level[i]; r.Usable() {
			share = max(share, r.Percent())
		}
	}
	return share
}

// divide cuts at..last, inclusive, by weight, for the level from first to before end.
func (c *Choice) divide(routes []Route, first, end int, at, last uint64) {
	var total, sum uint64
	for i := range routes[first:end] {
		if r := &routes[first+i]; r.Usable() {
			total += uint64(r.Weight) * r.Percent()
		}
	}
	from := at
	for i := first; i < end; i++ {
		r := &routes[i]
		if !r.Usable() {
			continue
		}
		sum += uint64(r.Weight) * r.Percent()
		upTo := last
		if sum < total {
			upTo = at + scale(last-at, sum, total)
		}
		if upTo < from {
			continue // too narrow for a cut
		}
		c.cuts = append(c.cuts, cut{upTo, i})
		if from = upTo + 1; from == 0 {
			return
		}
	}
}

// scale is n·a/b, for a of at most b.
func scale(n, a, b uint64) uint64 {
	hi, lo := bits.Mul64(n, a)
	q, _ := bits.Div64(hi, lo, b)
	return q
}

// Pick returns the index of the next call's route.
func (c *Choice) Pick() int {
	i, _ := c.next()
	return c.cuts[i].route
}

// next is the cut that the next point is in.
func (c *Choice) next() (i int, point uint64) {
	point = c.sequence.next()
	j := len(c.cuts) - 1
	for i < j {
		if mid := (i + j) / 2; c.cuts[mid].last < point {
			i = mid + 1
		} else {
			j = mid
		}
	}
	return i, point
}

// Follow continues the choice that c replaces, so that shares hold over many short-lived ones. Call
// it before c is used. Either may be nil.
func (c *Choice) Follow(replaced *Choice) {
	if c != nil && replaced != nil && c != replaced {
		c.sequence.continueFrom(&replaced.sequence)
	}
}

// withoutIdleRamps clears the ramp of each route on which it has no effect. So a view changes
// with the steps of a ramp only if lookups do. The routes are sorted by priority.
func withoutIdleRamps(routes []Route) {
	idle := false // the levels from here on get nothing
	for first := 0; first < len(routes); {
		end := levelEnd(routes, first)
		level := routes[first:end]
		share := levelShare(level) // 0 if none is usable
		below := nextUsable(routes, end) >= 0
		if idle || !below && evenRamps(level) {
			for i := range level {
				level[i].Ramp = 0
			}
		}
		idle = idle || share == 100 || share > 0 && !below
		first = end
	}
	for i := range routes {
		if !routes[i].Usable() {
			routes[i].Ramp = 0
		}
	}
}

// evenRamps tells whether all usable routes of a level get the same percentage.
func evenRamps(level []Route) bool {
	var usable []uint64
	for i := range level {
		if level[i].Usable() {
			usable = append(usable, level[i].Percent())
		}
	}
	return len(slices.Compact(usable)) <= 1
}
