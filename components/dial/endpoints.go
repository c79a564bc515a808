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
	// drainTime is how long a connection stays open after the last call was given to it. gRPC
	// starts a call a moment after Pick. A call that starts on a closing connection waits until
	// that has closed, which may take hours.
	drainTime = time.Second
	// maxConnecting is how many connections a channel opens at a time.
	maxConnecting = 32
)

// endpoints are those of a channel that do not drain. They belong to planBalancer.mu.
type endpoints struct {
	all        map[endpointKey]*endpoint
	instances  map[string]*instance
	connecting int // attempts under way
}

// unconnected says why a route has no connection. The caller holds the lock.
func (es *endpoints) unconnected(r *route) string {
	reason := "no gateway address is known; check the gateways of the object Cluster " + r.Cluster
	if r.err != nil {
		reason = r.err.Error()
	}
	r.candidates(func(_ *target, key endpointKey) *endpoint {
		if e := es.all[key]; e != nil {
			reason = e.whyNot()
		}
		return nil
	})
	return reason
}

// endpoint returns an endpoint of the plan, and connects it if it is idle. The caller holds the
// lock.
func (b *planBalancer) endpoint(r *route, t *target, key endpointKey) *endpoint {
	e := b.endpoints.all[key]
	if e == nil {
		e = b.newEndpoint(key, r, t)
	}
	if e.state == connectivity.Idle && e.sc != nil && b.endpoints.connecting < maxConnecting {
		b.endpoints.connecting++
		e.connect()
	}
	return e
}

// connect begins an attempt. The caller holds the lock.
func (e *endpoint) connect() {
	e.state, e.since = connectivity.Connecting, time.Now()
	e.sc.Connect()
}

// newEndpoint makes an endpoint of the plan. The caller holds the lock.
func (b *planBalancer) newEndpoint(key endpointKey, r *route, t *target) *endpoint {
	c := b.plan.channel
	e := &endpoint{
		endpointKey: key, viewAddress: t.viewAddress, channel: c, balancer: b, cluster: r.Cluster, planned: true, since: time.Now(),
		route: b.routeState(r.Cluster), instance: b.endpoints.acquireInstance(key), remote: c.dialer.remotes.acquire(key.address),
	}
	server := t.name
	if server == "" {
		server, _, _ = net.SplitHostPort(key.address) // every address of a view has a port
	}
	if c.plain && t.authority != "" {
		e.headers = metadata.Pairs(":authority", t.authority)
	}
	b.endpoints.all[key] = e
	//lint:ignore SA1019 gRPC has no other call for this; it is to lose the list of addresses only
	sc, err := b.cc.NewSubConn([]resolver.Address{{Addr: key.address, ServerName: server, Attributes: attributes.New(endpointAttribute{}, e)}},
		balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) { b.stateChanged(e, s) }})
	if err != nil { // gRPC is closing
		e.state, e.err = connectivity.Shutdown, err
		return e
	}
	e.sc = sc
	return e
}

// stateChanged is called by gRPC when a connection changes its state.
func (b *planBalancer) stateChanged(e *endpoint, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.removed || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	if s.ConnectivityState != e.state {
		e.since = time.Now()
		if e.state == connectivity.Ready && e.name != "" {
			e.instance.endedAt = e.since
		}
	}
	e.state = s.ConnectivityState
	e.unresponsive.Store(false) // no earlier: calls would be given the connection that was aborted
	switch e.state {
	case connectivity.Ready: // it may lead to another process than before
		e.attempted, e.err = true, nil
		e.ejectedUntil, e.ejections = time.Time{}, 0
		e.unavailableInRow.Store(0)
		e.instance.latency.reset()
	case connectivity.TransientFailure:
		e.attempted, e.err = true, s.ConnectionError
		c := b.plan.channel
		c.dialer.hosts.refresh(b.plan.hosts)
		if e.viewAddress != "" {
			go c.dialer.resolver.Load().Failed(c.app, e.viewAddress)
		}
	}
	e.channel.dialer.reachability.update(e)
	b.update()
}

// drain removes an endpoint. Its connection closes after drainTime, when no call can start on it
// any more; calls under way end normally. The caller holds the lock.
func (b *planBalancer) drain(e *endpoint) {
	delete(b.endpoints.all, e.endpointKey)
	b.endpoints.releaseInstance(e)
	e.removed = true
	e.channel.dialer.reachability.remove(e)
	b.draining[e] = struct{}{}
	e.drainTimer = time.AfterFunc(drainTime, func() { b.finishDrain(e) })
}

func (b *planBalancer) finishDrain(e *endpoint) {
	b.mu.Lock()
	_, draining := b.draining[e]
	delete(b.draining, e)
	if draining {
		b.finishing.Add(1)
		defer b.finishing.Done()
	}
	b.mu.Unlock()
	if draining {
		e.shutdown()
	}
}

func (e *endpoint) shutdown() {
	if e.sc != nil {
		e.sc.Shutdown()
	}
	e.channel.dialer.remotes.release(e.remote)
}
