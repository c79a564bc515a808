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

// endpointKey identifies an endpoint: the instance's host name at a gateway, empty without a
// gateway, and the address to dial.
type endpointKey struct{ name, address string }

// endpoint is one connection of a channel: to an instance directly, or through one gateway.
type endpoint struct {
	endpointKey
	viewAddress string // the address as the view has it; "" through a gateway
	channel     *channel
	balancer    *planBalancer
	cluster     string
	route       *routeState
	instance    *instance
	sc          balancer.SubConn
	remote      *remote
	headers     metadata.MD // :authority, where a gateway routes by it

	calls                 atomic.Int64 // under way
	unresponsive          atomic.Bool  // it was pinged and has not answered
	responsivenessChanged atomic.Int64 // when unresponsive last changed, since processStart
	unavailableInRow      atomic.Int32 // calls in a row that ended with Unavailable
	outOfZone             atomic.Bool  // the view prefers the caller's zone, and this is another

	// The fields below belong to planBalancer.mu.
	state         connectivity.State
	since         time.Time // when state last changed
	err           error     // of the last attempt to connect
	attempted     bool      // an attempt to connect has ended
	planned       bool      // the plan has this endpoint
	wanted        bool      // the priorities in use need it connected
	unwantedSince time.Time
	ejectedUntil  time.Time
	ejections     int // in a row
	drainTimer    *time.Timer
	removed       bool
}

// setUnresponsive records whether the endpoint answers pings.
func (e *endpoint) setUnresponsive(unresponsive bool) {
	if e.unresponsive.Load() != unresponsive && e.unresponsive.CompareAndSwap(!unresponsive, unresponsive) {
		e.responsivenessChanged.Store(int64(time.Since(processStart)))
		e.balancer.responsivenessChanged(e)
	}
}

// After ejectAfter calls in a row that end with Unavailable, an endpoint is ejected: others get
// its calls for baseEjection. Each further ejection lasts twice as long, up to
// maxEjectionDoublings times. A single error proves nothing: it may be the app's own.
const (
	ejectAfter           = 5
	baseEjection         = time.Second
	maxEjectionDoublings = 2
)

// beginCall counts a call in. gRPC calls the returned function when the call ends.
func (e *endpoint) beginCall() func(balancer.DoneInfo) {
	e.calls.Add(1)
	e.channel.dialer.watcher.callBegan()
	start := time.Since(processStart)
	return func(info balancer.DoneInfo) {
		e.calls.Add(-1)
		e.channel.dialer.watcher.callEnded()
		if info.Err != nil {
			e.route.counts.fail(status.Code(info.Err))
		}
		switch {
		case info.Err == nil:
			// A call that began before the endpoint hung or recovered measured the hang.
			if int64(start) >= e.responsivenessChanged.Load() {
				now := time.Since(processStart)
				e.instance.latency.observe(now, now-start)
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

// trace adds the endpoint to daprd's span of the call, once for each attempt. It returns the trace, if
// that is sampled.
func (e *endpoint) trace(ctx context.Context) (sampled trace.TraceID) {
	span := e.channel.dialer.span(ctx)
	if !span.IsRecording() {
		return sampled
	}
	attributes := []attribute.KeyValue{tracing.Cluster.String(e.cluster), tracing.Address.String(e.address)}
	if e.name != "" {
		attributes = append(attributes, tracing.Gateway.String(e.name))
	}
	if e.channel.callee.renamed() {
		attributes = append(attributes, tracing.App.String(e.channel.app.String()))
	}
	span.AddEvent("isthmus.endpoint", trace.WithAttributes(attributes...))
	if of := span.SpanContext(); of.IsSampled() {
		sampled = of.TraceID()
	}
	return sampled
}

// usable reports whether the endpoint is connected, answers and is not ejected. The caller holds
// the lock.
func (e *endpoint) usable() bool {
	return e.state == connectivity.Ready && !e.unresponsive.Load() && !time.Now().Before(e.ejectedUntil)
}

// connecting reports whether a connection may still come about: no attempt has failed since the
// endpoint was last connected. The caller holds the lock.
func (e *endpoint) connecting() bool {
	return (e.state == connectivity.Connecting || e.state == connectivity.Idle) && e.err == nil
}

// waitUntil returns until when calls wait for the connection before they go to the next priority.
// It is zero if they need not wait. The caller holds the lock.
func (e *endpoint) waitUntil() time.Time {
	if !e.connecting() {
		return time.Time{}
	}
	if e.attempted {
		return e.since.Add(min(reconnectWait+3*e.remote.roundTrip(), firstConnectWait))
	}
	return e.since.Add(firstConnectWait)
}
