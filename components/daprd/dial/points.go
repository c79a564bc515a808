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
	leaveAfter = time.Second
	// mostConnecting is how many connections of a channel are begun at a time.
	mostConnecting = 32
)

// point is the one of a target by an address, which is made and connected where it is not.
// It wants the lock.
func (b *balancing) point(r *route, t *target, address string) *point {
	name := pointName{t.name, address}
	p := b.points[name]
	if p == nil {
		p = b.make(name, r, t)
	}
	if p.state == connectivity.Idle && p.sc != nil && b.begun < mostConnecting {
		b.begun++
		p.state, p.since = connectivity.Connecting, time.Now()
		p.sc.Connect()
	}
	return p
}

// make makes a point. It wants the lock.
func (b *balancing) make(name pointName, r *route, t *target) *point {
	c := b.plan.channel
	p := &point{pointName: name, given: t.given, channel: c, policy: b, cluster: r.Cluster, spread: b.spread(r.Cluster), gate: c.names.gates.use(name.address), pace: new(pace), since: time.Now()}
	for other, o := range b.points {
		if name.name != "" && other.name == name.name {
			p.pace = o.pace
		}
	}
	server := t.name
	if server == "" {
		server, _, _ = net.SplitHostPort(name.address) // a view has no address without a port
	}
	if c.plain && t.authority != "" {
		p.plain = metadata.Pairs(":authority", t.authority)
	}
	b.points[name] = p
	//lint:ignore SA1019 it is how connections are made; what will go is more than one address
	sc, err := b.cc.NewSubConn([]resolver.Address{{Addr: name.address, ServerName: server, Attributes: attributes.New(pointKey{}, p)}},
		balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) { b.changed(p, s) }})
	if err != nil { // gRPC is closing
		p.state, p.err = connectivity.Shutdown, err
		return p
	}
	p.sc = sc
	return p
}

// changed is called by gRPC when a connection has another state.
func (b *balancing) changed(p *point, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.gone || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	if s.ConnectivityState != p.state {
		p.since = time.Now()
		if p.state == connectivity.Ready && p.name != "" {
			b.ended[p.name] = p.since
		}
	}
	p.state = s.ConnectivityState
	p.doubted.Store(false) // not before: a call would be given the connection that is broken off
	switch p.state {
	case connectivity.Ready: // perhaps another process than before
		p.tried, p.err = true, nil
		p.until, p.left = time.Time{}, 0
		p.refused.Store(0)
		p.pace.forget()
	case connectivity.TransientFailure:
		p.tried, p.err = true, s.ConnectionError
		c := b.plan.channel
		c.names.hosts.again(b.plan.hosts)
		if p.given != "" {
			go c.names.source.Load().Failed(c.app, p.given)
		}
	}
	b.plan.channel.names.evidence.note(p)
	b.arrange()
}

// drop ends a point's connection, once no call can be about to begin on it. Those that are
// under way end by themselves. It wants the lock.
func (b *balancing) drop(p *point) {
	delete(b.points, p.pointName)
	p.gone = true
	p.channel.names.evidence.forget(p)
	if b.leaving == nil {
		b.leaving = map[*point]struct{}{}
	}
	b.leaving[p] = struct{}{}
	p.ending = time.AfterFunc(leaveAfter, func() { b.end(p) })
}

func (b *balancing) end(p *point) {
	b.mu.Lock()
	_, here := b.leaving[p]
	delete(b.leaving, p)
	b.mu.Unlock()
	if here {
		p.end()
	}
}

func (p *point) end() {
	if p.sc != nil {
		p.sc.Shutdown()
	}
	p.channel.names.gates.leave(p.gate)
}
