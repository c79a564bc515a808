package catalog

import (
	"math"
	"math/bits"
	"slices"
)

// golden is 2^64 divided by the golden ratio. Its multiples, modulo 2^64, are spread as evenly as
// any sequence can be: after n of them, each part of the range has its share of n to within a
// few. The same is true for every second, third and so on, which matters to a caller that asks
// twice for each call.
const golden = 0x9E3779B97F4A7C15

// choice spreads lookups over several addresses. The lookups of a plan walk through the range of
// uint64 in golden steps. Each route has a cut of that range, as wide as its share. The position
// in the cut selects one of the route's addresses.
//
// If one route takes everything, its addresses are here, one load away.
type choice struct {
	sequence
	only []string // the addresses, if one route takes everything
	cuts []cut    // if several routes share; the last one ends with the range
}

// cut is a route's part of the range, after the cut before it.
type cut struct {
	last  uint64 // inclusive
	route *Route
}

// choose makes the choice among several usable routes, sorted by priority.
//
// A level is the routes of one priority. It takes all that the levels before it leave. It leaves
// something only while all its usable routes are ramping up and a lower route is usable. Then it
// takes as much as the most advanced of them.
func choose(routes []Route) *choice {
	c := &choice{}
	at := uint64(0)
	for first := nextUsable(routes, 0); first >= 0; {
		end := levelEnd(routes, first)
		below := nextUsable(routes, end)
		last := uint64(math.MaxUint64)
		if share := levelShare(routes[first:end]); share < 100 && below >= 0 {
			last = at + scale(math.MaxUint64-at, share, 100)
			c.divide(routes[first:end], at, last)
			if at = last + 1; at == 0 {
				break // nothing is left
			}
			first = below
			continue
		}
		c.divide(routes[first:end], at, last)
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

// divide cuts at..last, inclusive, by weight.
func (c *choice) divide(level []Route, at, last uint64) {
	var total, sum uint64
	for i := range level {
		if r := &level[i]; r.Usable() {
			total += uint64(r.Weight) * r.Percent()
		}
	}
	from := at
	for i := range level {
		r := &level[i]
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
		c.cuts = append(c.cuts, cut{upTo, r})
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

// among is the address of the next lookup if one route takes everything.
func (c *choice) among() string {
	i, _ := bits.Mul64(c.sequence.next(), uint64(len(c.only)))
	return c.only[i]
}

// share is the choice of the next lookup among several routes.
func (c *choice) share() (address string, route *Route) {
	x := c.sequence.next()
	i, j := 0, len(c.cuts)-1
	for i < j {
		if mid := (i + j) / 2; c.cuts[mid].last < x {
			i = mid + 1
		} else {
			j = mid
		}
	}
	route = c.cuts[i].route
	switch n := uint64(len(route.Addresses)); n {
	case 0:
		return "", route
	case 1:
		return route.Addresses[0], route
	default:
		var first uint64
		if i > 0 {
			first = c.cuts[i-1].last + 1
		}
		return route.Addresses[scale(x-first, n, c.cuts[i].last-first+1)], route
	}
}

// Follow continues the choice of the plan that p replaces, so that shares hold over many
// short-lived plans. Call it before p is published.
func (p *Plan) Follow(replaced *Plan) {
	if p.choice != nil && replaced != nil && replaced.choice != nil && p.choice != replaced.choice {
		p.choice.sequence.continueFrom(&replaced.choice.sequence)
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
