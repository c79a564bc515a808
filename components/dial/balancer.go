package dial

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
)

const (
	// unwantedTimeout is how long a connection of the plan is kept while no call needs its route.
	unwantedTimeout = 30 * time.Second
	// probeTimeout is how long a failing endpoint outside the plan is tried again.
	probeTimeout = 10 * time.Minute
	// firstConnectWait is how long calls wait for the first connections of a priority before
	// they go to the next. After a connection has ended they wait for reconnectWait on a quick
	// link.
	firstConnectWait = time.Second
	reconnectWait    = 50 * time.Millisecond
	// holdCalls is how long calls wait, rather than fail, without any connection. For a first
	// attempt they wait up to connectTimeout.
	holdCalls = time.Second
	// suspectFor is how long an instance behind gateways gets no calls after a connection to it
	// has ended: its connections through other gateways may be about to end, too.
	suspectFor = 250 * time.Millisecond
)

// registerBalancer registers the balancer with gRPC, once. Nothing may dial meanwhile, since
// gRPC's registry is not safe for concurrent use.
var registerBalancer = sync.OnceFunc(func() { balancer.Register(balancerBuilder{}) })

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return balancerName }

// Build makes the balancer of one channel.
func (balancerBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &planBalancer{
		cc: cc, endpoints: endpoints{all: map[endpointKey]*endpoint{}, instances: map[string]*instance{}}, draining: map[*endpoint]struct{}{},
		routes: map[string]*routeState{}, unusableSince: time.Now(),
	}
}

// planBalancer follows the plan of one app. It connects the endpoints that calls use, and those
// of the next priority while these are not usable.
type planBalancer struct {
	cc balancer.ClientConn

	mu            sync.Mutex
	plan          *plan // nil before the first
	endpoints     endpoints
	draining      map[*endpoint]struct{}
	routes        map[string]*routeState // by cluster
	takes         []takeable             // as of the last update
	lastChoice    *catalog.Choice        // of the last picker for several routes
	usable        bool                   // calls had a route at the last update
	unusableSince time.Time
	timer         *time.Timer
	closed        bool

	finishing sync.WaitGroup // connections that are closed after their drain
}

// UpdateClientConnState takes the next plan.
func (b *planBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	p, ok := s.ResolverState.Attributes.Value(planAttribute{}).(*plan)
	if !ok {
		return errors.New("the resolver state has no plan of an app")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.plan == nil || b.plan.refusal != nil && p.refusal == nil {
		b.usable, b.unusableSince = false, time.Now()
	}
	b.plan = p
	for _, e := range b.endpoints.all {
		e.planned = false
	}
	for r := range p.all() {
		r.candidates(func(_ *target, key endpointKey) *endpoint {
			if e := b.endpoints.all[key]; e != nil {
				e.planned = true
			}
			return nil
		})
	}
	b.update()
	return nil
}

func (b *planBalancer) onTimer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.update()
}

// capacityChanged is called when a route can carry more or fewer calls.
func (b *planBalancer) capacityChanged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.update()
}

// responsivenessChanged is called when an endpoint stops answering pings, or answers again.
func (b *planBalancer) responsivenessChanged(e *endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !e.removed {
		e.channel.dialer.reachability.update(e)
	}
	b.update()
}

// hasAlternative reports whether another endpoint is usable for the same calls.
func (b *planBalancer) hasAlternative(e *endpoint) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.endpoints.all {
		if other != e && other.usable() && !b.plan.leadsToGuest(other.cluster) {
			return true
		}
	}
	return false
}

// eject keeps calls away from an endpoint for a while, longer each time.
func (b *planBalancer) eject(e *endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(e.ejectedUntil) {
		return
	}
	if now.Sub(e.ejectedUntil) > 10*baseEjection {
		e.ejections = 0
	}
	e.ejectedUntil = now.Add(baseEjection << min(e.ejections, maxEjectionDoublings))
	e.ejections++
	e.unavailableInRow.Store(ejectAfter - 1) // once it is back, one more is enough
	b.update()
}

// update connects the endpoints that calls need, drains the others, and tells gRPC where calls
// go. The caller holds the lock.
func (b *planBalancer) update() {
	if b.closed || b.plan == nil {
		return
	}
	now := time.Now()
	var wake time.Time
	wakeBy := func(t time.Time) {
		if wake.IsZero() || t.Before(wake) {
			wake = t
		}
	}
	b.endpoints.connecting = 0
	for _, e := range b.endpoints.all {
		e.wanted = false
		if e.ejectedUntil.After(now) {
			wakeBy(e.ejectedUntil)
		}
		if e.state == connectivity.Connecting {
			b.endpoints.connecting++
		}
	}
	b.connectTakes(now, wakeBy)
	usable, hopeful := b.usableRoutes(now, wakeBy)
	for _, e := range b.endpoints.all {
		b.keepOrDrain(e, now, wakeBy)
	}
	if !slices.ContainsFunc(usable, func(u usableRoute) bool { return u.takes() }) {
		usable = nil
		if b.plan.refusal == nil {
			usable = b.fallbackRoute()
		}
	}
	switch {
	case len(usable) > 0:
		b.usable = true
		b.setPicker(usable)
	case b.plan.refusal != nil:
		b.usable = false
		b.failCalls(b.plan.refusal)
	default:
		b.holdOrFail(now, hopeful, wakeBy)
	}
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if !wake.IsZero() {
		b.timer = time.AfterFunc(max(time.Millisecond, wake.Sub(now)), b.onTimer)
	}
}

// keepOrDrain drains an endpoint that nothing needs any more. The caller holds the lock.
func (b *planBalancer) keepOrDrain(e *endpoint, now time.Time, wakeBy func(time.Time)) {
	switch {
	case e.wanted:
		e.unwantedSince = time.Time{}
	case !e.planned && b.probe(e, now):
		wakeBy(now.Add(unwantedTimeout))
	case !e.planned:
		b.drain(e)
	case e.unwantedSince.IsZero():
		e.unwantedSince = now
		wakeBy(now.Add(unwantedTimeout))
	case now.Sub(e.unwantedSince) >= unwantedTimeout:
		b.drain(e)
	default:
		wakeBy(e.unwantedSince.Add(unwantedTimeout))
	}
}

// probe keeps connecting an endpoint that is not reached, though the plan has lost its route, and
// returns false if there is nothing to probe. Once a lease has ended no call goes to that
// cluster, so otherwise nobody would notice that it is back. The caller holds the lock.
func (b *planBalancer) probe(e *endpoint, now time.Time) bool {
	if e.name == "" || !b.plan.mayReturn(e) || !e.channel.dialer.reachability.unreached(e) {
		return false
	}
	if e.unwantedSince.IsZero() {
		e.unwantedSince = now
	}
	if now.Sub(e.unwantedSince) > probeTimeout {
		return false
	}
	if e.state == connectivity.Idle && e.sc != nil {
		e.connect()
	}
	return true
}

// holdOrFail lets calls wait while a connection may come about, and otherwise fails them. The
// caller holds the lock.
func (b *planBalancer) holdOrFail(now time.Time, hopeful bool, wakeBy func(time.Time)) {
	if b.usable {
		b.usable, b.unusableSince = false, now
	}
	holdUntil := b.unusableSince.Add(holdCalls)
	if now.Before(holdUntil) {
		wakeBy(holdUntil)
	} else if !hopeful {
		b.failCalls(b.unavailableError())
		return
	}
	b.pickBy(connectivity.Connecting, base.NewErrPicker(balancer.ErrNoSubConnAvailable))
}

// longestReason bounds the error of an endpoint in that of a call, which has to fit a header.
const longestReason = 400

// unavailableError says for the first routes why they have no connection. The caller holds the lock.
func (b *planBalancer) unavailableError() error {
	var reasons []string
	for i := range b.plan.routes {
		r := &b.plan.routes[i]
		reasons = append(reasons, r.Cluster+" ("+catalog.Clip(b.endpoints.unconnected(r), longestReason)+")")
	}
	return fmt.Errorf("%s is in the view, but none of its endpoints is connected: %s", b.plan.channel.app, catalog.Brief(reasons))
}

// failCalls fails calls until the view changes. The caller holds the lock.
func (b *planBalancer) failCalls(err error) {
	b.pickBy(connectivity.TransientFailure, &errorPicker{b.plan, err})
}

// ResolverError does nothing: the channel reports no errors.
func (b *planBalancer) ResolverError(error) {}

// UpdateSubConnState does nothing: gRPC calls StateListener instead.
func (b *planBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: a channel is never idle.
func (b *planBalancer) ExitIdle() {}

// Close ends all connections.
func (b *planBalancer) Close() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	var all []*endpoint
	for e := range b.draining {
		e.drainTimer.Stop()
		all = append(all, e)
	}
	for _, e := range b.endpoints.all {
		e.removed = true
		e.channel.dialer.reachability.remove(e)
		all = append(all, e)
	}
	for _, s := range b.routes {
		b.plan.channel.callee.counts.close(s)
	}
	b.draining, b.endpoints.all = nil, nil
	b.mu.Unlock()
	for _, e := range all {
		e.shutdown() // it may close a socket, which calls stateChanged
	}
	b.finishing.Wait()
}
