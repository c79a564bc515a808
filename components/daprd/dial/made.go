package dial

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	internalv1 "github.com/dapr/dapr/pkg/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/nameresolution"
)

const (
	// slowAfter is how late an answer counts as slow, and for how long calls may wait without any
	// being answered before the app counts as hanging.
	slowAfter = 5 * time.Second
	// givenUpAfter is how long a call must have waited for its caller's giving it up to speak against
	// the app.
	givenUpAfter = time.Second
	// troubleFor is how long after a call that did not end well those that do are reported, too.
	troubleFor = time.Minute
)

// made counts the calls to one app in one cluster by how they ended for their caller, since they were
// taken last. An attempt that was repeated elsewhere counts nothing.
type made struct {
	fine, failed, slow atomic.Uint64
	waiting            atomic.Int64 // for an answer
	progress           atomic.Int64 // when one was last answered or given up, or the first began to wait; since processStart
	code               atomic.Uint32
	why                atomic.Pointer[string]

	troubled time.Duration // when a call last did not end well, since processStart; of take alone
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

// take returns what was counted since the last take; ok is false where all has been well for a while.
func (m *made) take(now time.Duration) (all nameresolution.Made, ok bool) {
	all.Fine, all.Failed, all.Slow = m.fine.Swap(0), m.failed.Swap(0), m.slow.Swap(0)
	if waiting := m.waiting.Load(); waiting > 0 && now-time.Duration(m.progress.Load()) >= slowAfter {
		all.Waiting = uint64(waiting)
	}
	if all.Failed+all.Slow+all.Waiting > 0 {
		m.troubled = max(now, 1)
	}
	if all.Failed > 0 {
		all.Code = codes.Code(m.code.Load()).String()
		if why := m.why.Load(); why != nil {
			all.Why = *why
		}
	}
	return all, m.troubled > 0 && now-m.troubled <= troubleFor
}

// Made returns the calls since it was called last, to the apps that some calls failed at lately: those
// with the most failures first.
func (d *Dialer) Made() (all []nameresolution.Made) {
	now := time.Since(processStart)
	d.byApp.Range(func(_, found any) bool {
		c := found.(*callee)
		c.counts.mu.Lock()
		defer c.counts.mu.Unlock()
		var some []nameresolution.Made
		troubled := false
		for cluster, counts := range c.counts.clusters {
			m, ok := counts.made.take(now)
			troubled = troubled || ok
			if ok || m.Fine > 0 {
				m.App, m.Cluster = c.app, cluster
				some = append(some, m)
			}
		}
		if troubled { // then what goes well counts as well, also in another cluster
			all = append(all, some...)
		}
		return true
	})
	slices.SortFunc(all, func(a, b nameresolution.Made) int {
		return cmp.Compare(b.Failed+b.Slow+b.Waiting, a.Failed+a.Slow+a.Waiting)
	})
	return all
}

// madeCall is a call of daprd's under way.
type madeCall struct {
	channel *channel
	// answers tells that the first message is the answer: it is one of daprd's own calls. An app's
	// stream may wait for events as long as it likes.
	answers  bool
	start    time.Duration
	at       atomic.Pointer[clusterCounts] // where it went last; nil before it found a connection
	messages atomic.Int64
	refused  atomic.Bool  // by the callee's guard
	first    atomic.Int64 // when the first message came, since processStart
}

// madeKey is the key of a call in its context.
type madeKey struct{}

// answeringMethods are those by which daprd calls HTTP apps, and gRPC apps by OnInvoke.
var answeringMethods = []string{
	"/dapr.proto.internals.v1.ServiceInvocation/CallLocal", "/dapr.proto.internals.v1.ServiceInvocation/CallLocalStream",
}

// makeCall returns what to make a call with that beginCall has counted in. It ends the count.
func (c *channel) makeCall(ctx context.Context, method string, opts []grpc.CallOption) (*madeCall, context.Context, []grpc.CallOption) {
	made := &madeCall{channel: c, answers: slices.Contains(answeringMethods, method), start: time.Since(processStart)}
	return made, context.WithValue(ctx, madeKey{}, made), append(slices.Clip(opts), grpc.OnFinish(made.end))
}

// picked notes where an attempt goes.
func picked(ctx context.Context, counts *clusterCounts) {
	c, ok := ctx.Value(madeKey{}).(*madeCall)
	if !ok {
		return
	}
	old := c.at.Swap(counts)
	if !c.answers || old == counts {
		return
	}
	now := time.Since(processStart)
	counts.made.beginWait(now)
	if old != nil {
		old.made.endWait(now)
	}
}

// RefusedHeader tells a guard's refusal of a call to an HTTP app from the app's own answers.
const RefusedHeader = "Isthmus-Refused"

// refusedByGuard tells whether the answer of an HTTP app's sidecar is that of its guard.
func refusedByGuard(m any) bool {
	answer, ok := m.(*internalv1.InternalInvokeResponseStream)
	if code := answer.GetResponse().GetStatus().GetCode(); !ok || code != http.StatusForbidden && code != http.StatusServiceUnavailable {
		return false
	}
	for name := range answer.GetResponse().GetHeaders() {
		if strings.EqualFold(name, RefusedHeader) {
			return true
		}
	}
	return false
}

// message notes that one came.
func (c *madeCall) message(m any) {
	if c.messages.Add(1) > 1 {
		return
	}
	c.refused.Store(refusedByGuard(m))
	now := time.Since(processStart)
	c.first.Store(int64(now))
	if at := c.at.Load(); c.answers && at != nil {
		at.made.endWait(now)
	}
}

// end counts how the call ended. gRPC calls it once.
func (c *madeCall) end(err error) {
	defer c.channel.endCall()
	now, messages, at := time.Since(processStart), c.messages.Load(), c.at.Load()
	if at == nil {
		if code := status.Code(err); fails(code) || code == codes.DeadlineExceeded {
			c.channel.callee.counts.mu.Lock()
			at = c.channel.callee.counts.of("")
			c.channel.callee.counts.mu.Unlock()
			why := status.Convert(err).Message()
			at.made.why.Store(&why)
			at.made.fail(code)
		}
		return
	}
	if c.answers && messages == 0 {
		at.made.endWait(now)
	}
	first := time.Duration(c.first.Load())
	if messages == 0 {
		first = now // of a unary call, which ends with its answer
	}
	late := first-c.start >= slowAfter && (c.answers || messages == 1 && now-first < time.Second)
	switch code := status.Code(err); {
	case messages == 0 && now-c.start >= givenUpAfter && (code == codes.DeadlineExceeded || code == codes.Canceled && c.answers), code == codes.OK && late:
		at.made.slow.Add(1)
	case c.refused.Load():
		at.made.fail(codes.PermissionDenied)
	case fails(code):
		at.made.fail(code)
	case code != codes.Canceled:
		at.made.fine.Add(1)
	}
}

func (m *made) fail(code codes.Code) {
	m.failed.Add(1)
	m.code.Store(uint32(code))
}

// fails tells whether a code says that a call failed. Others are answers of the app.
func fails(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented,
		codes.ResourceExhausted, codes.DataLoss:
		return true
	}
	return false
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
