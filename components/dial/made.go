package dial

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// made counts the calls to one app in one cluster by how they ended for their caller. An attempt that
// was repeated elsewhere counts as a retry alone.
type made struct {
	traffic.Counter
	open     atomic.Int64 // under way
	waiting  atomic.Int64 // for an answer
	progress atomic.Int64 // when one was last answered or given up, or the first began to wait; since processStart
	failure  atomic.Uint32
	why      atomic.Pointer[string]
}

func (m *made) beginWait(now time.Duration) {
	if m.waiting.Add(1) == 1 {
		m.progress.Store(int64(now))
	}
}

func (m *made) endWait(now time.Duration) {
	m.waiting.Add(-1)
	m.progress.Store(int64(now))
}

// hanging is how many calls wait while none has been answered for too long.
func (m *made) hanging(now time.Duration) uint64 {
	if waiting := m.waiting.Load(); waiting > 0 && now-time.Duration(m.progress.Load()) >= traffic.SlowAfter {
		return uint64(waiting)
	}
	return 0
}

// httpFailure is added to the status of an HTTP app's answer, beside codes of gRPC.
const httpFailure = 1000

func (m *made) fail(end traffic.End, failure uint32, took time.Duration) {
	m.failure.Store(failure)
	m.Add(end, took)
}

// HTTPCode names the status of an HTTP app's answer beside codes of gRPC.
func HTTPCode(status int32) string { return "HTTP " + strconv.Itoa(int(status)) }

// codeOf names a failure; none is empty.
func codeOf(failure uint32) string {
	if failure >= httpFailure {
		return HTTPCode(int32(failure - httpFailure))
	} else if failure > 0 {
		return codes.Code(failure).String()
	}
	return ""
}

// Made returns the calls to each app and cluster so far.
func (d *Dialer) Made() (all []nameresolution.Made) {
	now := time.Since(processStart)
	for c := range d.apps() {
		c.counts.mu.Lock()
		for cluster, counts := range c.counts.clusters {
			m := &counts.made
			one := nameresolution.Made{App: c.app, Cluster: cluster, Counts: m.Read(), Exemplars: m.Exemplars(), UnderWay: uint64(max(0, m.open.Load())), Waiting: m.hanging(now), Code: codeOf(m.failure.Load())}
			if why := m.why.Load(); why != nil {
				one.Why = *why
			}
			all = append(all, one)
		}
		c.counts.mu.Unlock()
	}
	return all
}

// madeCall is a call of daprd's under way.
type madeCall struct {
	channel *channel
	// answers tells that the first message is the answer: it is one of daprd's own calls. An app's
	// stream may wait for events as long as it likes.
	answers  bool
	start    time.Duration
	at       atomic.Pointer[endpoint] // where it went last; nil before it found a connection
	attempts atomic.Int32
	messages atomic.Int64
	refused  atomic.Bool                   // by the callee's guard
	status   atomic.Int32                  // of an HTTP app's answer
	first    atomic.Int64                  // when the first message came, since processStart
	reply    any                           // of a unary call
	tapped   *tapped                       // of a call that somebody looks at
	sampled  atomic.Pointer[trace.TraceID] // nil: its trace is not sampled
}

// madeKey is the key of a call in its context.
type madeKey struct{}

// answeringMethods are those by which daprd calls HTTP apps, gRPC apps by OnInvoke, and actors.
var answeringMethods = []string{
	"/dapr.proto.internals.v1.ServiceInvocation/CallLocal", "/dapr.proto.internals.v1.ServiceInvocation/CallLocalStream",
	"/dapr.proto.internals.v1.ServiceInvocation/CallActor",
}

// makeCall returns what to make a call with that beginCall has counted in. It ends the count.
func (c *channel) makeCall(ctx context.Context, method string, opts []grpc.CallOption) (*madeCall, context.Context, []grpc.CallOption) {
	made := &madeCall{channel: c, answers: slices.Contains(answeringMethods, method), start: time.Since(processStart)}
	if c.dialer.Tap.On() {
		made.tapped = &tapped{}
		made.tapped.headers, _ = ctx.Value(takeKey{}).([]catalog.HeaderValue)
		if span := c.dialer.span(ctx).SpanContext(); span.HasTraceID() {
			made.tapped.trace = span.TraceID().String()
		}
	}
	return made, context.WithValue(ctx, madeKey{}, made), append(slices.Clip(opts), grpc.OnFinish(made.end))
}

// picked notes where an attempt goes, and the trace if that is sampled.
func picked(ctx context.Context, to *endpoint, sampled trace.TraceID) *madeCall {
	c, ok := ctx.Value(madeKey{}).(*madeCall)
	if !ok {
		return nil
	}
	if sampled.IsValid() {
		id := sampled // so that others allocate nothing
		c.sampled.Store(&id)
	}
	counts, from := &to.route.counts.made, c.at.Swap(to)
	c.attempts.Add(1)
	if from != nil {
		counts.Retry()
		if from.route.counts == to.route.counts {
			return c
		}
		from.route.counts.made.open.Add(-1)
	}
	counts.open.Add(1)
	if !c.answers {
		return c
	}
	now := time.Since(processStart)
	counts.beginWait(now)
	if from != nil {
		from.route.counts.made.endWait(now)
	}
	return c
}

// RefusedHeader tells a guard's refusal of a call to an HTTP app from the app's own answers.
const RefusedHeader = "Isthmus-Refused"

// Answers reads a message as the answer of an HTTP app's sidecar: the app's status, and whether its
// guard gives it. Both are zero for other messages.
type Answers func(m any) (status int32, byGuard bool)

// ReadAnswer makes both from the status and the headers of an answer.
func ReadAnswer[V any](status int32, headers map[string]V) (int32, bool) {
	if status != http.StatusForbidden && status != http.StatusServiceUnavailable {
		return status, false
	}
	for name := range headers {
		if strings.EqualFold(name, RefusedHeader) {
			return status, true
		}
	}
	return status, false
}

// message notes that one came.
func (c *madeCall) message(m any) {
	if c.messages.Add(1) > 1 {
		return
	}
	status, byGuard := c.channel.dialer.answers(m)
	c.status.Store(status)
	c.refused.Store(byGuard)
	now := time.Since(processStart)
	c.first.Store(int64(now))
	if to := c.at.Load(); c.answers && to != nil {
		to.route.counts.made.endWait(now)
	}
}

// end counts how the call ended. gRPC calls it once.
func (c *madeCall) end(err error) {
	defer c.channel.endCall()
	if c.reply != nil && err == nil {
		status, byGuard := c.channel.dialer.answers(c.reply)
		c.status.Store(status)
		c.refused.Store(byGuard)
	}
	now, messages, to, code := time.Since(processStart), c.messages.Load(), c.at.Load(), status.Code(err)
	if to == nil {
		if traffic.OfCode(code) != traffic.ClientError && code != codes.Canceled {
			c.channel.callee.counts.mu.Lock()
			at := &c.channel.callee.counts.of("").made
			c.channel.callee.counts.mu.Unlock()
			why := status.Convert(err).Message()
			at.why.Store(&why)
			at.fail(traffic.Unreached, uint32(code), now-c.start)
			c.tap(traffic.Unreached, uint32(code), now-c.start, nil, why)
		}
		return
	}
	at := &to.route.counts.made
	at.open.Add(-1)
	if c.answers && messages == 0 {
		at.endWait(now)
	}
	first := time.Duration(c.first.Load())
	if messages == 0 {
		first = now // of a unary call, which ends with its answer
	}
	took := first - c.start
	late := took >= traffic.SlowAfter && (c.answers || messages == 1 && now-first < time.Second)
	end, failure := traffic.OfCode(code), uint32(code)
	switch {
	case messages == 0 && took >= traffic.GivenUpAfter && (code == codes.DeadlineExceeded || code == codes.Canceled && c.answers):
		end = traffic.GivenUp
	case c.refused.Load():
		end, failure = traffic.Refused, uint32(codes.PermissionDenied)
	case code == codes.OK:
		if end = traffic.OfHTTP(c.status.Load()); end == traffic.AppError {
			failure = httpFailure + uint32(c.status.Load())
		} else if late {
			end = traffic.Late
		}
	}
	if c.overloaded(code, err) {
		to.route.overload.refused.Add(1)
	}
	if end.Good() || end >= traffic.GivenUp {
		at.Add(end, took)
	} else {
		at.fail(end, failure, took)
	}
	if id := c.sampled.Load(); id != nil {
		at.Traced(end, traffic.Exemplar{At: time.Now(), TraceID: *id, Took: took})
	}
	c.tap(end, failure, took, to, "")
}

// tap tells of the call where somebody wants to know. why says why nothing was connected.
func (c *madeCall) tap(end traffic.End, failure uint32, took time.Duration, to *endpoint, why string) {
	tap := c.channel.dialer.Tap
	if !tap.On() {
		return
	}
	call := traffic.Call{At: time.Now(), Peer: c.channel.app, Attempts: int(c.attempts.Load()), End: end, Code: codeOf(failure), Took: took}
	if c.tapped != nil { // otherwise somebody looks since it began
		c.tapped.tell(&call)
	}
	if to != nil {
		call.Cluster, call.Address = to.cluster, to.address
	} else {
		call.Passed = []traffic.Passed{{Why: catalog.Clip(why, traffic.MaxReason)}}
	}
	tap.Add(call)
}

// countedStream notes its messages.
type countedStream struct {
	grpc.ClientStream
	call *madeCall
}

// RecvMsg is that of [grpc.ClientStream].
func (s *countedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.call.message(m)
	}
	return err
}
