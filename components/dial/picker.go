package dial

import (
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// picker gives each call a connection. It is immutable; the balancer replaces it on every change.
type picker struct {
	choice *catalog.Choice // among routes; nil with a single one
	routes []usableRoute
	kept   *kept // where calls with a key go; nil: there are none
}

// setPicker shares calls out among routes by what each offers. The caller holds the lock.
func (b *planBalancer) setPicker(usable []usableRoute) {
	p := &picker{routes: usable}
	offers := make([]catalog.Offer, len(usable))
	for i := range usable {
		offers[i] = usable[i].offer
	}
	if b.plan.hash() != (catalog.Hash{}) {
		p.kept = keep(usable, offers)
	}
	if len(usable) > 1 {
		p.choice = catalog.NewChoice(offers)
		p.choice.Follow(b.lastChoice)
		b.lastChoice = p.choice
	}
	b.pickBy(connectivity.Ready, p)
}

// Pick chooses the route, the instance and the connection of a call.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if key, ok := info.Ctx.Value(hashKey{}).(uint64); ok && p.kept != nil {
		r, c := p.kept.pick(key)
		return p.give(info, c.leastLoaded(uint32(r.state.next.Add(1)))), nil
	}
	r := &p.routes[0]
	if p.choice != nil {
		r = &p.routes[p.choice.Pick()]
	}
	next := uint32(r.state.next.Add(1))
	inZone := r.candidates
	if r.inZone > 0 {
		inZone = r.candidates[:r.inZone]
	}
	group, c := inZone, lessLoaded(inZone, next)
	if len(inZone) < len(r.candidates) {
		elsewhere := r.candidates[r.inZone:]
		if other := r.state.zone.leave(c, elsewhere, next); other != nil {
			group, c = elsewhere, other
		}
	}
	if r.state.slow.Load() {
		if slow := r.state.trial(group, next); slow != nil {
			c = slow
		}
	}
	return p.give(info, c.leastLoaded(next/uint32(len(inZone)))), nil
}

// give gives a call a connection.
func (p *picker) give(info balancer.PickInfo, e *endpoint) balancer.PickResult {
	call, done := picked(info.Ctx, e, e.trace(info.Ctx)), e.beginCall()
	if call != nil && call.tapped != nil {
		done = call.tapped.try(e, p.routes, done)
	}
	return balancer.PickResult{SubConn: e.sc, Done: done, Metadata: e.headers}
}

// candidate is an instance with its connections that take calls.
type candidate struct {
	instance  *instance
	target    *target
	endpoints []*endpoint
}

// lessLoaded compares the candidate whose turn it is with a random other one, and returns the one
// with the lower cost.
func lessLoaded(candidates []candidate, next uint32) *candidate {
	n := uint32(len(candidates))
	at := next % n
	c := &candidates[at]
	if n > 1 {
		if other := &candidates[(at+1+rand.Uint32N(n-1))%n]; other.cost() < c.cost() {
			c = other
		}
	}
	return c
}

// cost is what one more call at the instance costs, relative to other candidates.
func (c *candidate) cost() uint64 {
	return uint64(c.calls()+1) * uint64(max(1, c.instance.latency.penalty.Load()))
}

// calls is how many calls are under way.
func (c *candidate) calls() (n int64) {
	for _, e := range c.endpoints {
		n += e.calls.Load()
	}
	return n
}

// leastLoaded returns the connection with the fewest calls under way.
func (c *candidate) leastLoaded(next uint32) *endpoint {
	best := c.endpoints[int(next)%len(c.endpoints)]
	for _, e := range c.endpoints {
		if e.calls.Load() < best.calls.Load() {
			best = e
		}
	}
	return best
}

// errorPicker fails calls while no route is usable.
type errorPicker struct {
	plan *plan
	err  error
}

// Pick fails the call. If the view has changed since, the call waits for the next plan instead.
func (e *errorPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	if !e.plan.channel.isCurrent(e.plan) {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	e.plan.channel.callee.counts.unconnected()
	return balancer.PickResult{}, status.Error(codes.Unavailable, e.err.Error())
}
