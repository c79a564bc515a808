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

// Choice spreads calls over routes by priority, weight, ramp and capacity. The calls walk through
// the range of uint64 in golden steps. Each route has a cut of that range, as wide as its share.
type Choice struct {
	sequence sequence
	cuts     []cut // the last one ends with the range
}

// cut is a route's part of the range, after the cut before it.
type cut struct {
	last  uint64 // inclusive
	route int    // its index
}

// Offer is what a route offers to calls. Offers are sorted by priority; those of one priority are a
// level. One with weight 0 is none.
type Offer struct {
	RouteSpec
	// Ramp is how much of its due calls the route takes for now, out of 1. What it leaves goes to
	// the others of its level, and as far as all of them ramp up, to the next level.
	Ramp float64
	// Capacity is how much of its due calls the route can carry, out of 1. What it leaves goes to the
	// next level. 0 for a route that takes no calls, though they are due to it.
	Capacity float64
}

func (o Offer) takes() bool { return o.Weight > 0 && o.Capacity > 0 }

// NewChoice makes the choice among offers, by their index. One must take calls.
func NewChoice(offers []Offer) *Choice {
	c := &Choice{}
	c.sequence.shared.Store(rand.Uint64())
	taken, next := 0.0, uint64(0)
	for i, part := range Parts(offers) {
		taken += part
		last := point(taken)
		if part == 0 || last < next { // too narrow for a cut
			continue
		}
		c.cuts = append(c.cuts, cut{last, i})
		if next = last + 1; next == 0 {
			return c
		}
	}
	c.cuts[len(c.cuts)-1].last = math.MaxUint64
	return c
}

// point is the last point of the range's first part.
func point(part float64) uint64 {
	if part >= 1 {
		return math.MaxUint64
	}
	return uint64(part * (1 << 64))
}

// Parts is how much of all calls each offer gets, out of 1. Each level takes what it can of what
// the levels before it leave. If the last one leaves something, all get more in proportion: there
// is nowhere else to go.
func Parts(offers []Offer) []float64 {
	parts := make([]float64, len(offers))
	left := 1.0
	for first := nextTaking(offers, 0); first >= 0 && left > 0; {
		first = levelStart(offers, first)
		end := levelEnd(offers, first)
		below := nextTaking(offers, end)
		share, total := levelShare(offers[first:end], below >= 0)
		for i := first; i < end; i++ {
			parts[i] = left * share * offers[i].pull() / total
		}
		left -= left * share
		first = below
	}
	if left > 0 && left < 1 {
		for i := range parts {
			parts[i] /= 1 - left
		}
	}
	return parts
}

// pull is what an offer has for calls of its level, beside the others there.
func (o Offer) pull() float64 { return float64(o.Weight) * o.Ramp * o.Capacity }

// LevelShare is how much a level takes of the calls that are left for it, out of 1, if another level
// comes after it.
func LevelShare(level []Offer) float64 {
	share, _ := levelShare(level, true)
	return share
}

// levelShare also returns the sum by which its offers share that.
func levelShare(level []Offer, below bool) (share, total float64) {
	var due, carried, ramp float64
	for _, o := range level {
		due += float64(o.Weight)
		carried += float64(o.Weight) * o.Capacity
		total += o.pull()
		if o.takes() {
			ramp = max(ramp, o.Ramp)
		}
	}
	if !below {
		ramp = 1
	}
	if due == 0 {
		return 0, 0
	}
	return ramp * carried / due, total
}

// sole tells whether the first offer that takes calls takes everything.
func sole(offers []Offer) bool {
	first := nextTaking(offers, 0)
	next := nextTaking(offers, first+1)
	if next < 0 {
		return true
	}
	if offers[next].Priority == offers[first].Priority {
		return false
	}
	return LevelShare(offers[levelStart(offers, first):levelEnd(offers, first)]) == 1
}

func nextTaking(offers []Offer, from int) int {
	for i := from; i < len(offers); i++ {
		if offers[i].takes() {
			return i
		}
	}
	return -1
}

func levelStart(offers []Offer, at int) int {
	for at > 0 && offers[at-1].Priority == offers[at].Priority {
		at--
	}
	return at
}

func levelEnd(offers []Offer, first int) int {
	end := first
	for end < len(offers) && offers[end].Priority == offers[first].Priority {
		end++
	}
	return end
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
	offers := offersOf(routes, nil)
	idle := false // the levels from here on get nothing
	for first := 0; first < len(routes); {
		end := levelEnd(offers, first)
		below := nextTaking(offers, end) >= 0
		share, _ := levelShare(offers[first:end], below) // 0 if none takes calls
		if idle || !below && evenRamps(offers[first:end]) {
			for i := first; i < end; i++ {
				routes[i].Ramp = 0
			}
		}
		idle = idle || share == 1
		first = end
	}
	for i := range routes {
		if !routes[i].Usable() {
			routes[i].Ramp = 0
		}
	}
}

// evenRamps tells whether all offers of a level that take calls have the same ramp.
func evenRamps(level []Offer) bool {
	var ramps []float64
	for _, o := range level {
		if o.takes() {
			ramps = append(ramps, o.Ramp)
		}
	}
	return len(slices.Compact(ramps)) <= 1
}
