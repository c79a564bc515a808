package dial

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// An instance is slow if its calls take slowFactor times as long as at most others, and longer by
// slowMargin seconds. Its penalty is how many times longer they take, up to maxPenalty.
const (
	slowFactor = 5
	slowMargin = 0.005
	maxPenalty = 1000
)

// A slow instance hardly gets a call, so nobody would notice that it has recovered. Trials find
// out: at most one in trialEvery calls to the route, which leaves its 99th percentile as it is, and
// at most one per trialInterval. More would take an instance that is slow only under load in and
// out all the time.
const (
	trialEvery    = 200
	trialInterval = 400 * time.Millisecond
)

// routeState is what a channel remembers of its calls to one cluster, from plan to plan.
type routeState struct {
	next   atomic.Uint64 // counts calls, for round robin and metrics
	zone   zoneSplit
	ramp   returnRamp     // belongs to planBalancer.mu
	counts *clusterCounts // that this state is part of

	overload overload

	slow      atomic.Bool   // an instance has a penalty
	trialNext atomic.Uint32 // the low bits of next at the last trial
	trialAt   atomic.Int64  // when that was, since processStart
}

// trial returns a slow instance for a call to try, or nil if no trial is due. An instance that still
// has a call under way gets none.
func (s *routeState) trial(candidates []candidate, next uint32) *candidate {
	last := s.trialNext.Load()
	if next-last < trialEvery {
		return nil
	}
	now := time.Since(processStart)
	if now-time.Duration(s.trialAt.Load()) < trialInterval || !s.trialNext.CompareAndSwap(last, next) {
		return nil
	}
	s.trialAt.Store(int64(now))
	first := rand.IntN(len(candidates))
	for i := range candidates {
		c := &candidates[(first+i)%len(candidates)]
		if c.instance.latency.penalized() && c.calls() == 0 {
			return c
		}
	}
	return nil
}

// updatePenalties compares the instances of each route by how long their calls take, and a route with
// the others of its channel. The median is the measure, not the best: an instance that fails is
// quick, too.
func updatePenalties(conns []*conn) {
	routes := map[*routeState][]*endpoint{}
	for _, c := range conns {
		routes[c.endpoint.route] = append(routes[c.endpoint.route], c.endpoint)
	}
	changed := map[*planBalancer]struct{}{}
	now := time.Since(processStart)
	for route, endpoints := range routes {
		route.zone.update(endpoints, now)
		var means []float64
		for _, e := range endpoints {
			if mean, ok := e.instance.latency.current(now); ok {
				means = append(means, mean)
			}
		}
		slices.Sort(means)
		if b := endpoints[0].balancer; route.overload.update(route, means) {
			changed[b] = struct{}{}
		}
		slow := false
		for _, e := range endpoints {
			mean, ok := e.instance.latency.current(now)
			var penalty uint32
			if ok && len(means) > 2 {
				if middle := means[len(means)/2]; mean > slowFactor*middle && mean > middle+slowMargin {
					penalty = uint32(min(mean/max(middle, 1e-6), maxPenalty))
				}
			}
			if e.instance.latency.penalty.Swap(penalty) != penalty && route.overload.asked.Load() {
				changed[e.balancer] = struct{}{}
			}
			slow = slow || penalty > 1
		}
		route.slow.Store(slow)
	}
	for b := range changed {
		b.capacityChanged()
	}
}
