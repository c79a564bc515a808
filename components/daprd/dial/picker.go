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
type way struct {
	route     *route
	instances []instance // those in the caller's zone first, where it is preferred
	near      int        // how many are
	spread    *spread
	percent   uint64 // of what is due to the route, which it takes for now
}

// instance is the connections to one, by one gateway or several.
type instance struct{ points []*point }

// picker gives each call a connection. It is made anew whenever something changes.
type picker struct {
	choice *catalog.Plan // among ways; nil where there is one
	ways   []way
}

// choose has calls go these ways, by weight and ramp. It wants the lock.
func (b *balancing) choose(ways []way) {
	p := &picker{ways: ways}
	if len(ways) > 1 {
		routes := make([]catalog.Route, len(ways))
		for i := range ways {
			routes[i] = ways[i].route.Route
			routes[i].Ramp = uint8(ways[i].percent)
			routes[i].State, routes[i].Addresses = catalog.Ready, []string{routes[i].Cluster}
		}
		p.choice = catalog.NewPlan(b.plan.channel.app, routes) // they are by priority, so each keeps its place
		p.choice.Follow(b.choice)
		b.choice = p.choice
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: p})
}

// Pick is called for each call. Instances have calls in turn, but one with more to do than
// another, taken by chance, leaves it to that one.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	w := &p.ways[0]
	if p.choice != nil {
		_, route := p.choice.Pick()
		for i := range p.choice.Routes {
			if route == &p.choice.Routes[i] {
				w = &p.ways[i]
			}
		}
	}
	turn := w.spread.turn.Add(1)
	near := w.instances
	if w.near > 0 {
		near = w.instances[:w.near]
	}
	in := lesser(near, turn)
	if len(near) < len(w.instances) {
		in = w.spread.choose(in, w.instances[w.near:], turn)
	}
	to := in.least(turn / uint32(len(near)))
	to.trace(info.Ctx)
	return balancer.PickResult{SubConn: to.sc, Done: to.begin(), Metadata: to.plain}, nil
}

// lesser is the one of two instances with the less to do: that whose turn it is, and another.
func lesser(instances []instance, turn uint32) *instance {
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
func (i *instance) cost() uint64 {
	return uint64(i.calls()+1) * uint64(max(1, i.points[0].pace.penalty.Load()))
}

// calls are those under way.
func (i *instance) calls() (n int64) {
	for _, p := range i.points {
		n += p.calls.Load()
	}
	return n
}

// least is the connection with the least to do.
func (i *instance) least(turn uint32) *point {
	best := i.points[int(turn)%len(i.points)]
	for _, p := range i.points {
		if p.calls.Load() < best.calls.Load() {
			best = p
		}
	}
	return best
}

// failing is the picker while calls have nowhere to go.
type failing struct {
	plan *plan
	err  error
}

// Pick is called for each call. One that begins while another plan is on its way waits for
// that.
func (f *failing) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	if !f.plan.channel.current(f.plan) {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, status.Error(codes.Unavailable, f.err.Error())
}
