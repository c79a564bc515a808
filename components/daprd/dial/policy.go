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
	restFor = 30 * time.Second
	// probeFor is how long a connection that fails is tried again when no call goes there.
	probeFor = 10 * time.Minute
	// firstPatience is how long calls wait for the first connections of a priority before
	// the next priority is tried, and againPatience the same where there were some, on a link
	// that is quick.
	firstPatience = time.Second
	againPatience = 50 * time.Millisecond
	// holdFor is how long calls wait, rather than fail, where no connection can be had. They wait
	// longer for one that is being made, and did not fail before: see connectFor.
	holdFor = time.Second
	// suspectFor is how long an instance behind gateways is left to others once a connection to
	// it has ended: those by other gateways may be over too, and say so later.
	suspectFor = 250 * time.Millisecond
)

// registerPolicy makes gRPC know the policy, once. Nothing may be dialled meanwhile: gRPC's
// registry is not safe for concurrent use.
var registerPolicy = sync.OnceFunc(func() { balancer.Register(policyBuilder{}) })

type policyBuilder struct{}

func (policyBuilder) Name() string { return policy }

// Build makes the policy of one channel.
func (policyBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &balancing{cc: cc, points: map[pointName]*point{}, spreads: map[string]*spread{}, ended: map[string]time.Time{}, lost: time.Now()}
}

// balancing follows the plan of one app: it connects to what calls are to reach, and to
// what comes next where that is not to be had.
type balancing struct {
	cc balancer.ClientConn

	mu      sync.Mutex
	plan    *plan // nil before the first
	points  map[pointName]*point
	leaving map[*point]struct{}
	spreads map[string]*spread   // by cluster
	ended   map[string]time.Time // when a connection to an instance behind gateways last ended, by its name
	choice  *catalog.Plan        // among routes, as last made
	had     bool                 // calls had somewhere to go
	lost    time.Time            // since when they have not
	begun   int                  // attempts to connect that are under way
	wake    *time.Timer
	closed  bool
}

// UpdateClientConnState takes a plan in.
func (b *balancing) UpdateClientConnState(s balancer.ClientConnState) error {
	p, ok := s.ResolverState.Attributes.Value(planKey{}).(*plan)
	if !ok {
		return errors.New("no plan of an app")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.plan == nil || b.plan.refusal != nil && p.refusal == nil {
		b.had, b.lost = false, time.Now()
	}
	b.plan = p
	b.arrange()
	return nil
}

// again has a look at how things stand.
func (b *balancing) again() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrange()
}

// heard is a point that says nothing any more, or something again.
func (b *balancing) heard(p *point) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.gone {
		p.channel.names.evidence.note(p)
	}
	b.arrange()
}

// others tells whether another point than p takes calls.
func (b *balancing) others(p *point) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.points {
		if o != p && o.takes() {
			return true
		}
	}
	return false
}

// refuses is a point whose calls end with Unavailable, one after the other. Others get the
// calls for a while, longer each time.
func (b *balancing) refuses(p *point) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(p.until) {
		return
	}
	if now.Sub(p.until) > 10*leftFor {
		p.left = 0
	}
	p.until = now.Add(leftFor << min(p.left, mostLeft))
	p.left++
	p.refused.Store(leftAfter - 1) // one more is enough when it is back
	b.arrange()
}

// arrange decides which points there are to be, connects those that are wanted, and tells
// gRPC where calls go. It wants the lock.
func (b *balancing) arrange() {
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
	b.begun = 0
	for _, p := range b.points {
		p.wanted = false
		if p.until.After(now) {
			by(p.until)
		}
		if p.state == connectivity.Connecting {
			b.begun++
		}
	}
	ways, hopeful := b.levels(now, by)
	for name, p := range b.points {
		switch {
		case p.wanted:
			p.rested = time.Time{}
		case !b.plan.has(name) && b.probes(p, now):
			by(now.Add(restFor))
		case !b.plan.has(name):
			b.drop(p)
		case p.rested.IsZero():
			p.rested = now
			by(now.Add(restFor))
		case now.Sub(p.rested) >= restFor:
			b.drop(p)
		default:
			by(p.rested.Add(restFor))
		}
	}
	if len(ways) == 0 && b.plan.refusal == nil {
		ways = b.doubtful()
	}
	switch {
	case len(ways) > 0:
		b.had = true
		b.choose(ways)
	case b.plan.refusal != nil:
		b.had = false
		b.fail(b.plan.refusal)
	default:
		if b.had {
			b.had, b.lost = false, now
		}
		held := b.lost.Add(holdFor)
		if now.Before(held) {
			by(held)
		}
		if hopeful || now.Before(held) {
			b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting, Picker: base.NewErrPicker(balancer.ErrNoSubConnAvailable)})
		} else {
			b.fail(b.why())
		}
	}
	if b.wake != nil {
		b.wake.Stop()
		b.wake = nil
	}
	if !due.IsZero() {
		b.wake = time.AfterFunc(max(time.Millisecond, due.Sub(now)), b.again)
	}
}

// levels goes through the priorities until one takes all calls, and says where they can go.
// hopeful tells that there may yet be connections where there are none. It wants the lock.
func (b *balancing) levels(now time.Time, by func(time.Time)) (ways []way, hopeful bool) {
	routes := b.plan.routes
	connecting := false
	for first, end := 0, 0; first < len(routes); first = end {
		for end = first; end < len(routes) && routes[end].Priority == routes[first].Priority; end++ {
		}
		share, waits := uint64(0), false
		for i := first; i < end; i++ {
			r := &routes[i]
			w := way{route: r, spread: b.spread(r.Cluster)}
			var suspects, far []instance
			hopes := time.Time{}
			for t := range r.targets {
				to := instance{}
				for _, address := range r.targets[t].addresses {
					p := b.point(r, &r.targets[t], address)
					p.wanted = true
					p.far.Store(r.targets[t].far)
					if p.takes() {
						to.points = append(to.points, p)
					} else if h := p.hopes(); h.After(hopes) {
						hopes = h
					}
					connecting = connecting || p.connecting()
				}
				if len(to.points) == 0 {
					continue
				}
				until := b.ended[r.targets[t].name].Add(suspectFor)
				switch {
				case until.After(now):
					suspects = append(suspects, to)
					by(until)
				case r.targets[t].far:
					far = append(far, to)
				default:
					w.instances = append(w.instances, to)
				}
			}
			w.near = len(w.instances)
			w.instances = append(w.instances, far...)
			if len(w.instances) == 0 { // as when a gateway is lost, which all of them were behind
				w.instances = suspects
			}
			w.percent = w.spread.returns(len(w.instances) > 0, now, by)
			if len(w.instances) > 0 {
				w.percent = min(w.percent, r.Percent())
				ways = append(ways, w)
				share = max(share, w.percent)
			} else if hopes.After(now) {
				waits = true
				by(hopes)
			}
			waits = waits || r.looking
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
func (b *balancing) probes(p *point, now time.Time) bool {
	if p.name == "" || !b.plan.channel.names.evidence.bad(p) {
		return false
	}
	if p.rested.IsZero() {
		p.rested = now
	}
	if now.Sub(p.rested) > probeFor {
		return false
	}
	if p.state == connectivity.Idle && p.sc != nil {
		p.state, p.since = connectivity.Connecting, now
		p.sc.Connect()
	}
	return true
}

// doubtful are the ways to what says nothing, or refuses: the last there is is not left.
func (b *balancing) doubtful() (ways []way) {
	for i := range b.plan.routes {
		r := &b.plan.routes[i]
		w := way{route: r, spread: b.spread(r.Cluster)}
		for t := range r.targets {
			to := instance{}
			for _, address := range r.targets[t].addresses {
				if p := b.points[pointName{r.targets[t].name, address}]; p != nil && p.state == connectivity.Ready {
					to.points = append(to.points, p)
				}
			}
			if len(to.points) > 0 {
				w.instances = append(w.instances, to)
			}
		}
		if len(w.instances) > 0 {
			w.percent = 100
			return append(ways, w)
		}
	}
	return nil
}

func (b *balancing) spread(cluster string) *spread {
	s := b.spreads[cluster]
	if s == nil {
		s = &spread{}
		b.spreads[cluster] = s
	}
	return s
}

// why is why calls fail. It wants the lock.
func (b *balancing) why() error {
	var parts []string
	for i := range b.plan.routes {
		r := &b.plan.routes[i]
		reason := "no gateway is known; check the gateways of the object Cluster " + r.Cluster
		if r.err != nil {
			reason = r.err.Error()
		}
		for t := range r.targets {
			for _, address := range r.targets[t].addresses {
				if p := b.points[pointName{r.targets[t].name, address}]; p != nil {
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
func (b *balancing) fail(err error) {
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: &failing{b.plan, err}})
}

// ResolverError is an error of the channel's, which has none.
func (b *balancing) ResolverError(error) {}

// UpdateSubConnState is an older way to tell of connections, which is not used.
func (b *balancing) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle has nothing to do: a channel is never idle.
func (b *balancing) ExitIdle() {}

// Close ends all connections.
func (b *balancing) Close() {
	b.mu.Lock()
	b.closed = true
	if b.wake != nil {
		b.wake.Stop()
	}
	var all []*point
	for p := range b.leaving {
		p.ending.Stop()
		all = append(all, p)
	}
	for _, p := range b.points {
		p.gone = true
		p.channel.names.evidence.forget(p)
		all = append(all, p)
	}
	b.leaving, b.points = nil, nil
	b.mu.Unlock()
	for _, p := range all {
		p.end() // it may close a socket, of which we are told
	}
}
