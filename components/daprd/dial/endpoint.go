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
type endpointKey struct{ name, address string }

// point is one connection of a channel: to an instance, or to one through a gateway.
type endpoint struct {
	endpointKey
	viewAddress string // the address as the view has it; "" through a gateway
	channel     *channel
	balancer    *planBalancer
	cluster     string
	route       *routeState // of the calls there
	sc          balancer.SubConn
	remote      *remote
	headers     metadata.MD // has :authority, where a gateway routes by it

	calls                 atomic.Int64 // under way
	responsivenessChanged atomic.Int64 // when it last began or ceased to be doubted, since began
	unresponsive          atomic.Bool  // it was asked to say something, and does not
	unavailableInRow      atomic.Int32 // calls in a row that ended with Unavailable
	latency               *latency     // the same for all points of an instance
	outOfZone             atomic.Bool  // it is not in the caller's zone, which is preferred

	// Of balancing.mu.
	state         connectivity.State
	since         time.Time // of that state
	err           error     // why the last attempt failed
	attempted     bool      // an attempt has ended
	wanted        bool
	unwantedSince time.Time // since when it is not wanted
	ejectedUntil  time.Time // until then others get the calls, for what was refused
	ejections     int       // times in a row that this was so
	drainTimer    *time.Timer
	removed       bool
}

// doubt notes whether the point says nothing any more.
func (e *endpoint) setUnresponsive(doubted bool) {
	if e.unresponsive.Load() != doubted && e.unresponsive.CompareAndSwap(!doubted, doubted) {
		e.responsivenessChanged.Store(int64(time.Since(processStart)))
		e.balancer.responsivenessChanged(e)
	}
}

// spare tells whether calls have anywhere else to go.
func (e *endpoint) hasAlternative() bool { return e.balancer.hasAlternative(e) }

// lost says in the log that a connection is broken off.
func (e *endpoint) logAborted() {
	e.channel.dialer.log.Warn("an endpoint does not answer any more; its connection is broken off and calls go elsewhere. See whether its process, machine and link are up",
		"app", e.channel.app.String(), "endpoint", e.name, "address", e.address, "calls", e.calls.Load())
}

// leftAfter is how many calls in a row have to end with Unavailable before others get the
// calls, for leftFor, doubled each time, at most mostLeft times. One error says nothing: it
// may be the app's own.
const (
	ejectAfter           = 5
	baseEjection         = time.Second
	maxEjectionDoublings = 2
)

// begin counts a call in, and returns what counts it out.
func (e *endpoint) beginCall() func(balancer.DoneInfo) {
	e.calls.Add(1)
	e.channel.calls.Add(1)
	e.channel.dialer.watcher.callBegan()
	at := time.Since(processStart)
	return func(info balancer.DoneInfo) {
		e.calls.Add(-1)
		e.channel.calls.Add(-1)
		e.channel.dialer.watcher.callEnded()
		switch {
		case info.Err == nil:
			now := time.Since(processStart)
			if int64(at) >= e.responsivenessChanged.Load() { // otherwise it waited for a process or a link that hung, which is over
				e.latency.observe(now, now-at)
			}
			if e.unavailableInRow.Load() != 0 {
				e.unavailableInRow.Store(0)
			}
		case info.BytesReceived && status.Code(info.Err) == codes.Unavailable:
			if e.unavailableInRow.Add(1) >= ejectAfter {
				e.balancer.eject(e)
			}
		}
	}
}

// trace notes on daprd's span of the call where the call goes, each time that it goes
// anywhere.
func (e *endpoint) trace(ctx context.Context) {
	span := e.channel.dialer.span(ctx)
	if !span.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{tracing.Cluster.String(e.cluster), tracing.Address.String(e.address)}
	if e.name != "" {
		attributes = append(attributes, tracing.Gateway.String(e.name))
	}
	span.AddEvent("isthmus.endpoint", trace.WithAttributes(attributes...))
}

// takes tells whether a point is connected and nothing speaks against it. It wants the lock.
func (e *endpoint) usable() bool {
	return e.state == connectivity.Ready && !e.unresponsive.Load() && !time.Now().Before(e.ejectedUntil)
}

// connecting tells whether an attempt to connect may yet bring something: none has failed since
// the point was last connected. It wants the lock.
func (e *endpoint) connecting() bool {
	return (e.state == connectivity.Connecting || e.state == connectivity.Idle) && e.err == nil
}

// hopes is until when calls wait for that rather than go elsewhere; zero where they need not. It
// wants the lock.
func (e *endpoint) waitUntil() time.Time {
	if !e.connecting() {
		return time.Time{}
	}
	if e.attempted {
		return e.since.Add(min(reconnectWait+3*time.Duration(e.remote.roundTrip.Load()), firstConnectWait))
	}
	return e.since.Add(firstConnectWait)
}
