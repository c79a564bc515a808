package dial

import (
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// policy is round_robin's choice among gateways, with an eye on how they fare: the name
// of it in a service config.
const policy = "isthmus_gateways"

// registerPolicy makes gRPC know the policy, once. Nothing may be dialled meanwhile:
// gRPC's registry is not safe for concurrent use.
var registerPolicy = sync.OnceFunc(func() { balancer.Register(policyBuilder{}) })

type policyBuilder struct{}

func (policyBuilder) Name() string { return policy }

// Build makes a policy whose connections are told of to the fleet.
func (policyBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return &balancing{cc: cc, opts: opts, leaving: map[*watchedConn]*time.Timer{}}
}

// watching is what round_robin takes for gRPC. gRPC calls a balancer from one goroutine
// at a time, and so this, but for what it has from standing.
type watching struct {
	balancer.ClientConn
	balancing *balancing

	standing
}

// NewSubConn makes a connection, to come, that its gate knows of.
func (w *watching) NewSubConn(addresses []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	f := w.follows()
	if f == nil || w.balancing.opts.DialCreds == nil || len(addresses) != 1 {
		//lint:ignore SA1019 it is how connections are made; what will go is more than one address
		return w.ClientConn.NewSubConn(addresses, opts)
	}
	g := f.fleet.use(addresses[0].Addr)
	//lint:ignore SA1019 an attribute would reach daprd's credentials, which know nothing of it
	opts.CredsBundle = bundle{&handshake{w.balancing.opts.DialCreds.Clone(), g}}
	//lint:ignore SA1019 as above
	sc, err := w.ClientConn.NewSubConn(addresses, opts)
	if err != nil {
		g.leave()
		return nil, err
	}
	return &watchedConn{SubConn: sc, gate: g, balancing: w.balancing, done: func(balancer.DoneInfo) { g.end() }}, nil
}

// RemoveSubConn is an older way to shut a connection down.
func (w *watching) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// UpdateAddresses is an older way to move a connection; round_robin does not use it.
func (w *watching) UpdateAddresses(sc balancer.SubConn, addresses []resolver.Address) {
	//lint:ignore SA1019 whoever calls the older way gets it
	sc.UpdateAddresses(addresses)
}

// watchedConn is a gRPC connection to a gate.
type watchedConn struct {
	balancer.SubConn
	gate      *gate
	balancing *balancing
	done      func(balancer.DoneInfo)
	left      sync.Once
}

// Shutdown lets calls that are under way end by themselves.
func (c *watchedConn) Shutdown() { c.balancing.leave(c) }

func (c *watchedConn) end() {
	c.SubConn.Shutdown()
	c.left.Do(c.gate.leave)
}

// picker is round_robin's, with each call counted at its gate.
type picker struct{ balancer.Picker }

// dodges is how often a pick that fell on a gateway in doubt is made again.
const dodges = 3

// Pick is called for each call.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := p.Picker.Pick(info)
	c, ok := result.SubConn.(*watchedConn)
	if err != nil || !ok {
		return result, err
	}
	for i := 0; i < dodges && c.gate.doubted.Load(); i++ {
		if again, err := p.Picker.Pick(info); err == nil {
			if other, ok := again.SubConn.(*watchedConn); ok {
				result, c = again, other
			}
		}
	}
	c.gate.begin()
	result.SubConn, result.Done = c.SubConn, c.done // round_robin's own has no Done
	return result, nil
}
