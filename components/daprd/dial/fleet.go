package dial

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// fleet is the gateways of one cluster, as the connections to them fare: all
// connections of this process, whatever app they are for.
type fleet struct {
	cluster string
	log     *slog.Logger
	knock   func(context.Context, *gate) outcome

	mu    sync.Mutex
	gates map[string]*gate // by "ip:port"

	trials map[string]*trial // the same; of the last seconds
}

func newFleet(cluster string, log *slog.Logger) *fleet {
	return &fleet{cluster: cluster, log: log, knock: knock, gates: map[string]*gate{}, trials: map[string]*trial{}}
}

// gate is one gateway. What calls and connections touch is atomic; all that takes more
// is done by watch, which runs only while there are calls.
type gate struct {
	fleet   *fleet
	address string

	calls   atomic.Int64  // under way
	words   atomic.Uint64 // reads that brought something, on any connection
	doubted atomic.Bool   // being probed: calls go through others, where there are
	watched atomic.Bool   // watch runs, or is about to
	trip    atomic.Int64  // nanoseconds there and back, at least; 0 when unknown

	ctx  context.Context // ends with the last user
	stop context.CancelFunc

	mu      sync.Mutex
	users   int // of fleet.mu
	conns   map[*conn]struct{}
	stopped bool
	running sync.WaitGroup
}

// use returns the gate of an address, for a user that calls leave once.
func (f *fleet) use(address string) *gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.gates[address]
	if g == nil {
		g = &gate{fleet: f, address: address, conns: map[*conn]struct{}{}}
		g.ctx, g.stop = context.WithCancel(context.Background())
		f.gates[address] = g
	}
	g.users++
	return g
}

// leave lets go of a gate. The last user waits for what still runs for it.
func (g *gate) leave() {
	g.fleet.mu.Lock()
	g.users--
	last := g.users == 0
	if last {
		delete(g.fleet.gates, g.address)
	}
	g.fleet.mu.Unlock()
	if !last {
		return
	}
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.stop()
	g.running.Wait()
}

// begin counts a call in, and sees to it that somebody watches.
func (g *gate) begin() {
	g.calls.Add(1)
	if !g.watched.Load() && g.watched.CompareAndSwap(false, true) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.stopped {
			g.running.Go(g.watch)
		}
	}
}

// end counts a call out.
func (g *gate) end() { g.calls.Add(-1) }

// rest ends the watch, unless a call has just begun.
func (g *gate) rest() bool {
	g.watched.Store(false)
	return g.calls.Load() == 0 || !g.watched.CompareAndSwap(false, true)
}

// join adds a connection that is ready for calls.
func (g *gate) join(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
}

// part takes a connection out.
func (g *gate) part(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

func (g *gate) connected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns) > 0
}

// cut breaks all connections off, and says how many. gRPC ends the calls on them with
// Unavailable, and picks these connections no more.
func (g *gate) cut() int {
	g.mu.Lock()
	conns := g.conns
	g.conns = map[*conn]struct{}{}
	g.mu.Unlock()
	for c := range conns {
		c.breakOff()
	}
	return len(conns)
}

// others are the fleet's other gates to which there are connections.
func (g *gate) others() []*gate {
	g.fleet.mu.Lock()
	defer g.fleet.mu.Unlock()
	var others []*gate
	for _, o := range g.fleet.gates {
		if o != g && o.connected() {
			others = append(others, o)
		}
	}
	return others
}

// took notes how long something took there and back. It rises at once and falls
// slowly: a link that loses packets has a long way now and then.
func (g *gate) took(d time.Duration) {
	last := g.trip.Load()
	g.trip.Store(max(int64(d), last-(last-int64(d))/4))
}
