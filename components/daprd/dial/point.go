package dial

import (
	"context"
	"sync/atomic"
	"time"

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
	spread  *spread // of the calls there
	sc      balancer.SubConn
	gate    *gate
	plain   metadata.MD // has :authority, where a gateway routes by it

	calls   atomic.Int64 // under way
	hushed  atomic.Int64 // when it last began or ceased to be doubted, since began
	doubted atomic.Bool  // it was asked to say something, and does not
	refused atomic.Int32 // calls in a row that ended with Unavailable
	pace    *pace        // the same for all points of an instance
	far     atomic.Bool  // it is not in the caller's zone, which is preferred

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
		p.hushed.Store(int64(time.Since(began)))
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
			if int64(at) >= p.hushed.Load() { // otherwise it waited for a process or a link that hung, which is over
				p.pace.took(now, now-at)
			}
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
	span := p.channel.names.span(ctx)
	if !span.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{tracing.Cluster.String(p.cluster), tracing.Address.String(p.address)}
	if p.name != "" {
		attributes = append(attributes, tracing.Gateway.String(p.name))
	}
	span.AddEvent("isthmus.endpoint", trace.WithAttributes(attributes...))
}

// takes tells whether a point is connected and nothing speaks against it. It wants the lock.
func (p *point) takes() bool {
	return p.state == connectivity.Ready && !p.doubted.Load() && !time.Now().Before(p.until)
}

// connecting tells whether an attempt to connect may yet bring something: none has failed since
// the point was last connected. It wants the lock.
func (p *point) connecting() bool {
	return (p.state == connectivity.Connecting || p.state == connectivity.Idle) && p.err == nil
}

// hopes is until when calls wait for that rather than go elsewhere; zero where they need not. It
// wants the lock.
func (p *point) hopes() time.Time {
	if !p.connecting() {
		return time.Time{}
	}
	if p.tried {
		return p.since.Add(min(againPatience+3*time.Duration(p.gate.trip.Load()), firstPatience))
	}
	return p.since.Add(firstPatience)
}
