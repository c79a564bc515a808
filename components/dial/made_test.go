package dial

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"

	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// ended tells how calls of one dialer have ended since it was called last, as "cluster: end 1".
func (w *testDialer) ended() string {
	var all []string
	for _, m := range w.Made() {
		before := w.before[m.Cluster]
		news := m.Counts.Since(&before)
		w.before[m.Cluster] = m.Counts
		for end, n := range news.Ends {
			if n > 0 {
				all = append(all, fmt.Sprintf("%s: %s %d", m.Cluster, traffic.End(end), n))
			}
		}
		if news.Calls() > news.Good() {
			all = append(all, m.Code)
		}
		if m.UnderWay > 0 {
			all = append(all, fmt.Sprintf("%d under way", m.UnderWay))
		}
		if news.Retries > 0 {
			all = append(all, fmt.Sprintf("%d retries", news.Retries))
		}
	}
	return strings.Join(all, ", ")
}

// TestHowCallsEnd has calls to one app end in each way, as the service is told.
func TestHowCallsEnd(t *testing.T) {
	p := newTimedServer(0)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(startGateway(t, p.register).Address))
	conn := w.dial(t)
	want := func(what, want string) {
		t.Helper()
		if got := w.ended(); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	want("all is well", "west: ok 1")
	p.fails.Store(true)
	_ = invoke(t.Context(), conn, time.Minute)
	want("a call fails", "west: cut off 1, Unavailable")
	p.fails.Store(false)
	_ = invoke(t.Context(), conn, time.Minute)
	want("the next is answered", "west: ok 1")
	p.after.Store(int64(time.Minute))
	_ = invoke(t.Context(), conn, 50*time.Millisecond)
	want("one times out", "west: timed out 1, DeadlineExceeded")
	_ = invoke(t.Context(), conn, traffic.GivenUpAfter+100*time.Millisecond)
	want("one is given up", "west: given up 1, DeadlineExceeded")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_ = invoke(ctx, conn, time.Minute)
	want("one is cancelled", "west: cancelled 1")
	want("none is made", "")
}

// TestAnswersOfHTTPAppsEndCalls has a sidecar answer 403 by its guard, and for its app.
func TestAnswersOfHTTPAppsEndCalls(t *testing.T) {
	p := newTimedServer(0)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(startGateway(t, p.register).Address))
	conn := w.dial(t)
	for byApp, want := range map[bool]string{false: "west: refused 1, PermissionDenied", true: "west: client error 1"} {
		p.fails.Store(byApp)
		stream, err := internalv1.NewServiceInvocationClient(conn).CallLocalStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if got := w.ended(); err != io.EOF || got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestNothingConnectedIsReportedWithItsReason has no endpoint that takes a connection.
func TestNothingConnectedIsReportedWithItsReason(t *testing.T) {
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(deadAddress(t)))
	if err := invoke(t.Context(), w.dial(t), time.Minute); err == nil {
		t.Fatal("a call without a connection went through")
	}
	if all := w.Made(); !slices.ContainsFunc(all, func(m nameresolution.Made) bool { return m.Cluster == "" && m.Why != "" }) {
		t.Errorf("reported: %+v", all)
	}
	if got := w.ended(); got != ": not reached 1, Unavailable" {
		t.Errorf("reported: %q", got)
	}
}

// TestWhenCallsCountAsHanging has calls begin, and be answered, at these times.
func TestWhenCallsCountAsHanging(t *testing.T) {
	m := &made{}
	for _, step := range []struct {
		at   time.Duration
		do   func(time.Duration)
		want uint64
	}{
		{time.Second, m.beginWait, 0},
		{4 * time.Second, m.beginWait, 0},
		{5 * time.Second, nil, 0},
		{6 * time.Second, nil, 2},
		{7 * time.Second, m.endWait, 0}, // an answer came: the other one may be next
		{11 * time.Second, nil, 0},
		{12 * time.Second, nil, 1},
		{13 * time.Second, m.endWait, 0},
	} {
		if step.do != nil {
			step.do(step.at)
		}
		if got := m.hanging(step.at); got != step.want {
			t.Errorf("at %s: %d wait, want %d", step.at, got, step.want)
		}
	}
}

// BenchmarkCounting is what counting adds to a call, beside the call itself.
func BenchmarkCounting(b *testing.B) {
	to := &callee{counts: &callCounts{}}
	state := to.counts.open("west")
	at := &endpoint{route: state}
	c := &madeCall{channel: &channel{dialer: &Dialer{answers: answerOf}, callee: to}, answers: true}
	ctx := context.WithValue(b.Context(), madeKey{}, c)
	answer := &internalv1.InternalInvokeResponseStream{Response: &internalv1.InternalInvokeResponse{Status: &internalv1.Status{Code: 200}}}
	b.ReportAllocs()
	for b.Loop() {
		c.at.Store(nil)
		c.messages.Store(0)
		c.start = time.Since(processStart)
		picked(ctx, at, trace.TraceID{})
		c.message(answer)
		c.end(nil)
	}
}

// answerOf reads answers as a sidecar does.
func answerOf(m any) (status int32, byGuard bool) {
	var answer *internalv1.InternalInvokeResponse
	switch m := m.(type) {
	case *internalv1.InternalInvokeResponseStream:
		answer = m.GetResponse()
	case *internalv1.InternalInvokeResponse:
		answer = m
	}
	return ReadAnswer(answer.GetStatus().GetCode(), answer.GetHeaders())
}
