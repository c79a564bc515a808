package dial

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
)

const (
	// restFor is how long connections of a route that has no calls any more are kept.
	unwantedTimeout = 30 * time.Second
	// probeFor is how long a connection that fails is tried again when no call goes there.
	probeTimeout = 10 * time.Minute
	// firstPatience is how long calls wait for the first connections of a priority before
	// the next priority is tried, and againPatience the same where there were some, on a link
	// that is quick.
	firstConnectWait = time.Second
	reconnectWait    = 50 * time.Millisecond
	// holdFor is how long calls wait, rather than fail, where no connection can be had. They wait
	// longer for one that is being made, and did not fail before: see connectFor.
	holdCalls = time.Second
	// suspectFor is how long an instance behind gateways is left to others once a connection to
	// it has ended: those by other gateways may be over too, and say so later.
	suspectFor = 250 * time.Millisecond
)

// registerPolicy makes gRPC know the policy, once. Nothing may be dialled meanwhile: gRPC's
// registry is not safe for concurrent use.
var registerBalancer = sync.OnceFunc(func() { balancer.Register(balancerBuilder{}) })

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return balancerName }

// Build makes the policy of one channel.
func (balancerBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &planBalancer{cc: cc, endpoints: map[endpointKey]*endpoint{}, routes: map[string]*routeState{}, ended: map[string]time.Time{}, unusableSince: time.Now()}
}

// balancing follows the plan of one app: it connects to what calls are to reach, and to
// what comes next where that is not to be had.
type planBalancer struct {
	cc balancer.ClientConn

	mu            sync.Mutex
	plan          *plan // nil before the first
	endpoints     map[endpointKey]*endpoint
	draining      map[*endpoint]struct{}
	routes        map[string]*routeState // by cluster
	ended         map[string]time.Time   // when a connection to an instance behind gateways last ended, by its name
	lastChoice    *catalog.Plan          // among routes, as last made
	usable        bool                   // calls had somewhere to go
	unusableSince time.Time              // since when they have not
	connecting    int                    // attempts to connect that are under way
	timer         *time.Timer
	closed        bool
}

// UpdateClientConnState takes a plan in.
func (b *planBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	p, ok := s.ResolverState.Attributes.Value(planAttribute{}).(*plan)
	if !ok {
		return errors.New("no plan of an app")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.plan == nil || b.plan.refusal != nil && p.refusal == nil {
		b.usable, b.unusableSince = false, time.Now()
	}
	b.plan = p
	b.update()
	return nil
}

// again has a look at how things stand.
func (b *planBalancer) onTimer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.update()
}

// heard is a point that says nothing any more, or something again.
func (b *planBalancer) responsivenessChanged(p *endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.removed {
		p.channel.dialer.reachability.update(p)
	}
	b.update()
}

// others tells whether another point than p takes calls.
func (b *planBalancer) hasAlternative(p *endpoint) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.endpoints {
		if o != p && o.usable() {
			return true
		}
	}
	return false
}

// refuses is a point whose calls end with Unavailable, one after the other. Others get the
// calls for a while, longer each time.
func (b *planBalancer) eject(p *endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(p.ejectedUntil) {
		return
	}
	if now.Sub(p.ejectedUntil) > 10*baseEjection {
		p.ejections = 0
	}
	p.ejectedUntil = now.Add(baseEjection << min(p.ejections, maxEjectionDoublings))
	p.ejections++
	p.unavailableInRow.Store(ejectAfter - 1) // one more is enough when it is back
	b.update()
}

// arrange decides which points there are to be, connects those that are wanted, and tells
// gRPC where calls go. It wants the lock.
func (b *planBalancer) update() {
	if b.closed || b.plan == nil {
		return
	}
	now := time.Now()
	maps.DeleteFunc(b.ended, func(_ string, at time.Time) bool { return now.Sub(at) >= suspectFor })
	var due time.Time // when to look again
	by := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	b.connecting = 0
	for _, p := range b.endpoints {
		p.wanted = false
		if p.ejectedUntil.After(now) {
			by(p.ejectedUntil)
		}
		if p.state == connectivity.Connecting {
			b.connecting++
		}
	}
	ways, hopeful := b.usableRoutes(now, by)
	for name, p := range b.endpoints {
		switch {
		case p.wanted:
			p.unwantedSince = time.Time{}
		case !b.plan.has(name) && b.keepsProbing(p, now):
			by(now.Add(unwantedTimeout))
		case !b.plan.has(name):
			b.drain(p)
		case p.unwantedSince.IsZero():
			p.unwantedSince = now
			by(now.Add(unwantedTimeout))
		case now.Sub(p.unwantedSince) >= unwantedTimeout:
			b.drain(p)
		default:
			by(p.unwantedSince.Add(unwantedTimeout))
		}
	}
	if len(ways) == 0 && b.plan.refusal == nil {
		ways = b.fallbackRoutes()
	}
	switch {
	case len(ways) > 0:
		b.usable = true
		b.setPicker(ways)
	case b.plan.refusal != nil:
		b.usable = false
		b.failCalls(b.plan.refusal)
	default:
		if b.usable {
			b.usable, b.unusableSince = false, now
		}
		held := b.unusableSince.Add(holdCalls)
		if now.Before(held) {
			by(held)
		}
		if hopeful || now.Before(held) {
			b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting, Picker: base.NewErrPicker(balancer.ErrNoSubConnAvailable)})
		} else {
			b.failCalls(b.unavailableError())
		}
	}
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if !due.IsZero() {
		b.timer = time.AfterFunc(max(time.Millisecond, due.Sub(now)), b.onTimer)
	}
}

// levels goes through the priorities until one takes all calls, and says where they can go.
// hopeful tells that there may yet be connections where there are none. It wants the lock.
func (b *planBalancer) usableRoutes(now time.Time, by func(time.Time)) (ways []usableRoute, hopeful bool) {
	routes := b.plan.routes
	connecting := false
	for first, end := 0, 0; first < len(routes); first = end {
		for end = first; end < len(routes) && routes[end].Priority == routes[first].Priority; end++ {
		}
		share, waits := uint64(0), false
		for i := first; i < end; i++ {
			r := &routes[i]
			w := usableRoute{route: r, state: b.routeState(r.Cluster)}
			var suspects, far []candidate
			hopes := time.Time{}
			for t := range r.targets {
				to := candidate{}
				for _, address := range r.targets[t].addresses {
					p := b.endpoint(r, &r.targets[t], address)
					p.wanted = true
					p.outOfZone.Store(r.targets[t].outOfZone)
					if p.usable() {
						to.endpoints = append(to.endpoints, p)
					} else if h := p.waitUntil(); h.After(hopes) {
						hopes = h
					}
					connecting = connecting || p.connecting()
				}
				if len(to.endpoints) == 0 {
					continue
				}
				until := b.ended[r.targets[t].name].Add(suspectFor)
				switch {
				case until.After(now):
					suspects = append(suspects, to)
					by(until)
				case r.targets[t].outOfZone:
					far = append(far, to)
				default:
					w.candidates = append(w.candidates, to)
				}
			}
			w.inZone = len(w.candidates)
			w.candidates = append(w.candidates, far...)
			if len(w.candidates) == 0 { // as when a gateway is lost, which all of them were behind
				w.candidates = suspects
			}
			w.percent = w.state.rampPercent(len(w.candidates) > 0, now, by)
			if len(w.candidates) > 0 {
				w.percent = min(w.percent, r.Percent())
				ways = append(ways, w)
				share = max(share, w.percent)
			} else if hopes.After(now) {
				waits = true
				by(hopes)
			}
			waits = waits || r.lookupPending
		}
		if share >= 100 {
			return ways, false
		}
		if share == 0 && waits {
			return ways, true
		}
	}
	return ways, connecting
}

// probes tells whether a point that the plan has no more is kept for a while, to see when
// its cluster is reached again. Nobody would know otherwise: once the lease has ended for it,
// no call goes there. It wants the lock.
func (b *planBalancer) keepsProbing(p *endpoint, now time.Time) bool {
	if p.name == "" || !b.plan.channel.dialer.reachability.unreached(p) {
		return false
	}
	if p.unwantedSince.IsZero() {
		p.unwantedSince = now
	}
	if now.Sub(p.unwantedSince) > probeTimeout {
		return false
	}
	if p.state == connectivity.Idle && p.sc != nil {
		p.state, p.since = connectivity.Connecting, now
		p.sc.Connect()
	}
	return true
}

// doubtful are the ways to what says nothing, or refuses: the last there is is not left.
func (b *planBalancer) fallbackRoutes() (ways []usableRoute) {
	for i := range b.plan.routes {
		r := &b.plan.routes[i]
		w := usableRoute{route: r, state: b.routeState(r.Cluster)}
		for t := range r.targets {
			to := candidate{}
			for _, address := range r.targets[t].addresses {
				if p := b.endpoints[endpointKey{r.targets[t].name, address}]; p != nil && p.state == connectivity.Ready {
					to.endpoints = append(to.endpoints, p)
				}
			}
			if len(to.endpoints) > 0 {
				w.candidates = append(w.candidates, to)
			}
		}
		if len(w.candidates) > 0 {
			w.percent = 100
			return append(ways, w)
		}
	}
	return nil
}

func (b *planBalancer) routeState(cluster string) *routeState {
	s := b.routes[cluster]
	if s == nil {
		s = &routeState{}
		b.routes[cluster] = s
	}
	return s
}

// why is why calls fail. It wants the lock.
func (b *planBalancer) unavailableError() error {
	var parts []string
	for i := range b.plan.routes {
		r := &b.plan.routes[i]
		reason := "no gateway is known; check the gateways of the object Cluster " + r.Cluster
		if r.err != nil {
			reason = r.err.Error()
		}
		for t := range r.targets {
			for _, address := range r.targets[t].addresses {
				if p := b.endpoints[endpointKey{r.targets[t].name, address}]; p != nil {
					reason = address + " is not connected"
					if p.err != nil {
						reason = p.err.Error()
					}
				}
			}
		}
		parts = append(parts, r.Cluster+" ("+reason+")")
	}
	return fmt.Errorf("%s is in the view, and nothing there takes connections: %s", b.plan.channel.app, strings.Join(parts, ", "))
}

// fail has calls fail, unless the view has something new. It wants the lock.
func (b *planBalancer) failCalls(err error) {
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: &errorPicker{b.plan, err}})
}

// ResolverError is an error of the channel's, which has none.
func (b *planBalancer) ResolverError(error) {}

// UpdateSubConnState is an older way to tell of connections, which is not used.
func (b *planBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle has nothing to do: a channel is never idle.
func (b *planBalancer) ExitIdle() {}

// Close ends all connections.
func (b *planBalancer) Close() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	var all []*endpoint
	for p := range b.draining {
		p.drainTimer.Stop()
		all = append(all, p)
	}
	for _, p := range b.endpoints {
		p.removed = true
		p.channel.dialer.reachability.remove(p)
		all = append(all, p)
	}
	b.draining, b.endpoints = nil, nil
	b.mu.Unlock()
	for _, p := range all {
		p.shutdown() // it may close a socket, of which we are told
	}
}
