package dial

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/tracing"
)

// pointName says what a point is: a target's host name, which a gateway routes by, or none,
// and the address that is dialled.
type pointName struct{ name, address string }

// point is one connection of a channel: to an instance, or to one through a gateway.
type point struct {
	pointName
	given   string // the address as the view has it; "" through a gateway
	channel *channel
	policy  *balancing
	cluster string
	sc      balancer.SubConn
	gate    *gate
	plain   metadata.MD // has :authority, where a gateway routes by it

	calls   atomic.Int64 // under way
	doubted atomic.Bool  // it was asked to say something, and does not
	refused atomic.Int32 // calls in a row that ended with Unavailable
	pace    *pace        // the same for all points of an instance

	// Of balancing.mu.
	state  connectivity.State
	since  time.Time // of that state
	err    error     // why the last attempt failed
	tried  bool      // an attempt has ended
	wanted bool
	rested time.Time // since when it is not wanted
	until  time.Time // until then others get the calls, for what was refused
	left   int       // times in a row that this was so
	ending *time.Timer
	gone   bool
}

// doubt notes whether the point says nothing any more.
func (p *point) doubt(doubted bool) {
	if p.doubted.Load() != doubted && p.doubted.CompareAndSwap(!doubted, doubted) {
		p.policy.heard(p)
	}
}

// spare tells whether calls have anywhere else to go.
func (p *point) spare() bool { return p.policy.others(p) }

// lost says in the log that a connection is broken off.
func (p *point) lost() {
	p.channel.names.log.Warn("an endpoint does not answer any more; its connection is broken off and calls go elsewhere. See whether its process, machine and link are up",
		"app", p.channel.app.String(), "endpoint", p.name, "address", p.address, "calls", p.calls.Load())
}

// leftAfter is how many calls in a row have to end with Unavailable before others get the
// calls, for leftFor, doubled each time, at most mostLeft times. One error says nothing: it
// may be the app's own.
const (
	leftAfter = 5
	leftFor   = time.Second
	mostLeft  = 2
)

// begin counts a call in, and returns what counts it out.
func (p *point) begin() func(balancer.DoneInfo) {
	p.calls.Add(1)
	p.channel.calls.Add(1)
	p.channel.names.watch.begin()
	at := time.Since(began)
	return func(info balancer.DoneInfo) {
		p.calls.Add(-1)
		p.channel.calls.Add(-1)
		p.channel.names.watch.end()
		switch {
		case info.Err == nil:
			now := time.Since(began)
			p.pace.took(now, now-at)
			if p.refused.Load() != 0 {
				p.refused.Store(0)
			}
		case info.BytesReceived && status.Code(info.Err) == codes.Unavailable:
			if p.refused.Add(1) >= leftAfter {
				p.policy.refuses(p)
			}
		}
	}
}

// trace notes on daprd's span of the call where the call goes, each time that it goes
// anywhere.
func (p *point) trace(ctx context.Context) {
	span := utils.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{tracing.Cluster.String(p.cluster), tracing.Address.String(p.address)}
	if p.name != "" {
		attributes = append(attributes, tracing.Gateway.String(p.name))
	}
	span.AddEvent("isthmus.endpoint", trace.WithAttributes(attributes...))
}

// pace is how long calls take at an instance: a mean in which what is older counts less. It
// forgets while there are no calls, so that one that was slow is tried again.
type pace struct {
	mean    atomic.Uint64 // float64 of seconds
	last    atomic.Int64  // since began
	penalty atomic.Uint32 // calls count so many times; 0 stands for 1
}

const paceHalf = 5 * time.Second

// took notes a call that took so long. Two at a time may lose one of them, which does no
// harm.
func (p *pace) took(now, d time.Duration) {
	old, last := math.Float64frombits(p.mean.Load()), time.Duration(p.last.Load())
	share := 0.1
	if d.Seconds() > old {
		share = 0.3 // what has become slow is to be known within a call or two
		if last != 0 {
			d = min(d, time.Duration(mostSlower*old*float64(time.Second))) // streams last long
		}
	}
	if idle := now - last; last == 0 || idle > 0 {
		share = max(share, 1-math.Exp2(-float64(idle)/float64(paceHalf)))
	}
	if last == 0 {
		share = 1
	}
	p.last.Store(int64(now))
	p.mean.Store(math.Float64bits(old + share*(d.Seconds()-old)))
}

// forget is for a new connection.
func (p *pace) forget() {
	p.mean.Store(0)
	p.last.Store(0)
	p.penalty.Store(0)
}

// now is the mean as it counts at a moment; ok is false where nothing is known.
func (p *pace) now(at time.Duration) (seconds float64, ok bool) {
	last := time.Duration(p.last.Load())
	if last == 0 {
		return 0, false
	}
	idle := max(0, at-last)
	return math.Float64frombits(p.mean.Load()) * math.Exp2(-float64(idle)/float64(paceHalf)), true
}

const (
	// slowFactor is how many times longer than at most others calls have to take somewhere
	// before that counts, and slowLeast by how much at least, in seconds.
	slowFactor = 5
	slowLeast  = 0.005
	mostSlow   = 1000
	// mostSlower is how many times longer than the mean a call counts at most.
	mostSlower = 100
)

// weigh compares the points of each route by how long calls take there. What most take is
// the measure: a point that is quick because it fails is not one that others are slow
// beside.
func weigh(conns []*conn) {
	type way struct {
		channel *channel
		cluster string
	}
	ways := map[way][]*point{}
	for _, c := range conns {
		w := way{c.point.channel, c.point.cluster}
		ways[w] = append(ways[w], c.point)
	}
	now := time.Since(began)
	for _, points := range ways {
		var means []float64
		for _, p := range points {
			if mean, ok := p.pace.now(now); ok {
				means = append(means, mean)
			}
		}
		slices.Sort(means)
		for _, p := range points {
			mean, ok := p.pace.now(now)
			var penalty uint32
			if ok && len(means) > 2 {
				if middle := means[len(means)/2]; mean > slowFactor*middle && mean > middle+slowLeast {
					penalty = uint32(min(mean/max(middle, 1e-6), mostSlow))
				}
			}
			p.pace.penalty.Store(penalty)
		}
	}
}
