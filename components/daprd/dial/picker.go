package dial

import (
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// way is a route with the instances there that take calls.
type usableRoute struct {
	route      *route
	candidates []candidate // those in the caller's zone first, where it is preferred
	inZone     int         // how many are
	state      *routeState
	percent    uint64 // of what is due to the route, which it takes for now
}

// instance is the connections to one, by one gateway or several.
type candidate struct{ endpoints []*endpoint }

// picker gives each call a connection. It is made anew whenever something changes.
type picker struct {
	choice *catalog.Plan // among ways; nil where there is one
	routes []usableRoute
}

// choose has calls go these ways, by weight and ramp. It wants the lock.
func (b *planBalancer) setPicker(ways []usableRoute) {
	p := &picker{routes: ways}
	if len(ways) > 1 {
		routes := make([]catalog.Route, len(ways))
		for i := range ways {
			routes[i] = ways[i].route.Route
			routes[i].Ramp = uint8(ways[i].percent)
			routes[i].State, routes[i].Addresses = catalog.Ready, []string{routes[i].Cluster}
		}
		p.choice = catalog.NewPlan(b.plan.channel.app, routes) // they are by priority, so each keeps its place
		p.choice.Follow(b.lastChoice)
		b.lastChoice = p.choice
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: p})
}

// Pick is called for each call. Instances have calls in turn, but one with more to do than
// another, taken by chance, leaves it to that one.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	w := &p.routes[0]
	if p.choice != nil {
		_, route := p.choice.Pick()
		for i := range p.choice.Routes {
			if route == &p.choice.Routes[i] {
				w = &p.routes[i]
			}
		}
	}
	turn := w.state.next.Add(1)
	near := w.candidates
	if w.inZone > 0 {
		near = w.candidates[:w.inZone]
	}
	in := lessLoaded(near, turn)
	if len(near) < len(w.candidates) {
		in = w.state.pickZone(in, w.candidates[w.inZone:], turn)
	}
	to := in.leastLoaded(turn / uint32(len(near)))
	to.trace(info.Ctx)
	return balancer.PickResult{SubConn: to.sc, Done: to.beginCall(), Metadata: to.headers}, nil
}

// lesser is the one of two instances with the less to do: that whose turn it is, and another.
func lessLoaded(instances []candidate, turn uint32) *candidate {
	n := uint32(len(instances))
	at := turn % n
	in := &instances[at]
	if n > 1 {
		if other := &instances[(at+1+rand.Uint32N(n-1))%n]; other.cost() < in.cost() {
			in = other
		}
	}
	return in
}

// cost is what another call at the instance costs, beside that at others.
func (c *candidate) cost() uint64 {
	return uint64(c.calls()+1) * uint64(max(1, c.endpoints[0].latency.penalty.Load()))
}

// calls are those under way.
func (c *candidate) calls() (n int64) {
	for _, p := range c.endpoints {
		n += p.calls.Load()
	}
	return n
}

// least is the connection with the least to do.
func (c *candidate) leastLoaded(turn uint32) *endpoint {
	best := c.endpoints[int(turn)%len(c.endpoints)]
	for _, p := range c.endpoints {
		if p.calls.Load() < best.calls.Load() {
			best = p
		}
	}
	return best
}

// failing is the picker while calls have nowhere to go.
type errorPicker struct {
	plan *plan
	err  error
}

// Pick is called for each call. One that begins while another plan is on its way waits for
// that.
func (p *errorPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	if !p.plan.channel.isCurrent(p.plan) {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, status.Error(codes.Unavailable, p.err.Error())
}
