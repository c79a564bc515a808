package dial

import (
	"sync"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/connectivity"
)

// leaveAfter is how long a connection outlasts the last call that was given to it. A call
// is given a connection a moment before it begins there, and gRPC has one that begins on a
// connection which is to end wait until it has ended, be it for hours.
const leaveAfter = time.Second

// followerKey is the attribute by which a follower tells the policy of itself.
type followerKey struct{}

// told is what a follower tells with its addresses.
type told struct {
	follower *follower
	turn     uint32 // another one wants new connections
}

func (t told) attributes() *attributes.Attributes { return attributes.New(followerKey{}, t) }

// balancing is the policy: round_robin, and another one beside it while all connections
// are made anew. The former has the calls until one of the new connections is ready.
type balancing struct {
	cc   balancer.ClientConn
	opts balancer.BuildOptions

	closing sync.WaitGroup

	mu       sync.Mutex
	current  *turn // has the calls; nil before the first
	pending  *turn // is to have them; nil where there is none
	leaving  map[*watchedConn]*time.Timer
	finished bool
}

// turn is one round_robin.
type turn struct {
	balancer.Balancer
	watching *watching
	number   uint32
	state    balancer.State // as gRPC is to see it; of balancing.mu
}

func (b *balancing) UpdateClientConnState(s balancer.ClientConnState) error {
	t, ok := s.ResolverState.Attributes.Value(followerKey{}).(told)
	latest := b.latest()
	if latest == nil || ok && latest.number != t.turn {
		latest = b.begin(t.turn)
	}
	if ok {
		latest.watching.follow(t.follower)
	}
	return latest.UpdateClientConnState(s)
}

func (b *balancing) latest() *turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending != nil {
		return b.pending
	}
	return b.current
}

// begin makes a round_robin, which is the first or to take over.
func (b *balancing) begin(number uint32) *turn {
	w := &watching{ClientConn: b.cc, balancing: b}
	t := &turn{watching: w, number: number, state: balancer.State{ConnectivityState: connectivity.Connecting, Picker: waiting}}
	w.turn = t
	t.Balancer = balancer.Get(roundrobin.Name).Build(w, b.opts)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		b.current = t
		return t
	}
	if b.pending != nil {
		b.end(b.pending)
	}
	b.pending = t
	return t
}

// end ends a round_robin, elsewhere: it may be what calls. It wants the lock.
func (b *balancing) end(t *turn) {
	b.closing.Go(func() {
		t.watching.close()
		t.Close()
	})
}

// publish tells gRPC how a turn stands, when that has the calls or now gets them. One that
// is ready is not left for one that is not, however long that takes.
func (b *balancing) publish(t *turn, s balancer.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.state = s
	if b.finished || t != b.current && t != b.pending {
		return
	}
	if p := b.pending; p != nil && (b.current.state.ConnectivityState != connectivity.Ready || p.state.ConnectivityState == connectivity.Ready) {
		b.end(b.current)
		b.current, b.pending = p, nil
		t = p
	}
	if t == b.current {
		b.cc.UpdateState(t.state)
	}
}

// leave ends a connection, once no call can be about to begin on it.
func (b *balancing) leave(c *watchedConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving[c] == nil && !b.finished {
		b.leaving[c] = time.AfterFunc(leaveAfter, func() { b.left(c) })
	} else if b.finished {
		b.closing.Go(c.end)
	}
}

func (b *balancing) left(c *watchedConn) {
	b.mu.Lock()
	_, here := b.leaving[c]
	delete(b.leaving, c)
	b.mu.Unlock()
	if here {
		c.end()
	}
}

// ResolverError is an error of the follower's.
func (b *balancing) ResolverError(err error) {
	t := b.latest()
	if t == nil {
		t = b.begin(0)
	}
	t.ResolverError(err)
}

// UpdateSubConnState is an older way to tell of connections, which round_robin does not use.
func (b *balancing) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle has round_robin connect.
func (b *balancing) ExitIdle() {
	if t := b.latest(); t != nil {
		t.ExitIdle()
	}
}

// Close ends all connections. What is under way on them ends by itself.
func (b *balancing) Close() {
	b.mu.Lock()
	leaving := b.leaving
	b.leaving, b.finished = nil, true
	for _, t := range []*turn{b.current, b.pending} {
		if t != nil {
			b.end(t)
		}
	}
	b.mu.Unlock()
	for c, timer := range leaving {
		timer.Stop()
		c.end()
	}
	b.closing.Wait()
}
