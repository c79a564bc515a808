package dial

import (
	"net"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
)

const (
	// leaveAfter is how long a connection outlasts the last call that was given to it. A call
	// is given a connection a moment before it begins there, and gRPC has one that begins on
	// a connection which is to end wait until it has ended, be it for hours.
	drainTime = time.Second
	// mostConnecting is how many connections of a channel are begun at a time.
	maxConnecting = 32
)

// point is the one of a target by an address, which is made and connected where it is not.
// It wants the lock.
func (b *planBalancer) endpoint(r *route, t *target, address string) *endpoint {
	name := endpointKey{t.name, address}
	p := b.endpoints[name]
	if p == nil {
		p = b.newEndpoint(name, r, t)
	}
	if p.state == connectivity.Idle && p.sc != nil && b.connecting < maxConnecting {
		b.connecting++
		p.state, p.since = connectivity.Connecting, time.Now()
		p.sc.Connect()
	}
	return p
}

// make makes a point. It wants the lock.
func (b *planBalancer) newEndpoint(name endpointKey, r *route, t *target) *endpoint {
	c := b.plan.channel
	p := &endpoint{endpointKey: name, viewAddress: t.viewAddress, channel: c, balancer: b, cluster: r.Cluster, route: b.routeState(r.Cluster), remote: c.dialer.remotes.acquire(name.address), latency: new(latency), since: time.Now()}
	for other, o := range b.endpoints {
		if name.name != "" && other.name == name.name {
			p.latency = o.latency
		}
	}
	server := t.name
	if server == "" {
		server, _, _ = net.SplitHostPort(name.address) // a view has no address without a port
	}
	if c.plain && t.authority != "" {
		p.headers = metadata.Pairs(":authority", t.authority)
	}
	b.endpoints[name] = p
	//lint:ignore SA1019 it is how connections are made; what will go is more than one address
	sc, err := b.cc.NewSubConn([]resolver.Address{{Addr: name.address, ServerName: server, Attributes: attributes.New(endpointAttribute{}, p)}},
		balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) { b.stateChanged(p, s) }})
	if err != nil { // gRPC is closing
		p.state, p.err = connectivity.Shutdown, err
		return p
	}
	p.sc = sc
	return p
}

// changed is called by gRPC when a connection has another state.
func (b *planBalancer) stateChanged(p *endpoint, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.removed || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	if s.ConnectivityState != p.state {
		p.since = time.Now()
		if p.state == connectivity.Ready && p.name != "" {
			b.ended[p.name] = p.since
		}
	}
	p.state = s.ConnectivityState
	p.unresponsive.Store(false) // not before: a call would be given the connection that is broken off
	switch p.state {
	case connectivity.Ready: // perhaps another process than before
		p.attempted, p.err = true, nil
		p.ejectedUntil, p.ejections = time.Time{}, 0
		p.unavailableInRow.Store(0)
		p.latency.reset()
	case connectivity.TransientFailure:
		p.attempted, p.err = true, s.ConnectionError
		c := b.plan.channel
		c.dialer.hosts.refresh(b.plan.hosts)
		if p.viewAddress != "" {
			go c.dialer.resolver.Load().Failed(c.app, p.viewAddress)
		}
	}
	b.plan.channel.dialer.reachability.update(p)
	b.update()
}

// drop ends a point's connection, once no call can be about to begin on it. Those that are
// under way end by themselves. It wants the lock.
func (b *planBalancer) drain(p *endpoint) {
	delete(b.endpoints, p.endpointKey)
	p.removed = true
	p.channel.dialer.reachability.remove(p)
	if b.draining == nil {
		b.draining = map[*endpoint]struct{}{}
	}
	b.draining[p] = struct{}{}
	p.drainTimer = time.AfterFunc(drainTime, func() { b.finishDrain(p) })
}

func (b *planBalancer) finishDrain(p *endpoint) {
	b.mu.Lock()
	_, here := b.draining[p]
	delete(b.draining, p)
	b.mu.Unlock()
	if here {
		p.shutdown()
	}
}

func (e *endpoint) shutdown() {
	if e.sc != nil {
		e.sc.Shutdown()
	}
	e.channel.dialer.remotes.release(e.remote)
}
