package dial

import (
	"io"
	"slices"
	"testing"
	"time"

	internalv1 "github.com/dapr/dapr/pkg/proto/internals/v1"
	"google.golang.org/grpc/codes"

	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// TestCallsThatDoNotEndWellAreReported has calls to one app end in each way, as the service is told.
func TestCallsThatDoNotEndWellAreReported(t *testing.T) {
	p := newTimedServer(0)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(startGateway(t, p.register).Address))
	conn := w.dial(t)
	want := func(what string, want ...nameresolution.Made) {
		t.Helper()
		if got := w.Made(); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	want("all is well, of which nobody is told")
	p.fails.Store(true)
	_ = invoke(t.Context(), conn, time.Minute)
	want("a call fails", nameresolution.Made{App: orders, Cluster: "west", Failed: 1, Code: codes.Unavailable.String()})
	p.fails.Store(false)
	_ = invoke(t.Context(), conn, time.Minute)
	want("the next is answered", nameresolution.Made{App: orders, Cluster: "west", Fine: 1})
	p.after.Store(int64(time.Minute))
	_ = invoke(t.Context(), conn, givenUpAfter+100*time.Millisecond)
	want("one is given up", nameresolution.Made{App: orders, Cluster: "west", Slow: 1})
	want("none is made", nameresolution.Made{App: orders, Cluster: "west"})
}

// TestARefusalByTheGuardIsNoAnswerOfTheApp has a sidecar answer 403 in both ways.
func TestARefusalByTheGuardIsNoAnswerOfTheApp(t *testing.T) {
	p := newTimedServer(0)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(startGateway(t, p.register).Address))
	conn := w.dial(t)
	for _, want := range []nameresolution.Made{
		{App: orders, Cluster: "west", Failed: 1, Code: codes.PermissionDenied.String()},
		{App: orders, Cluster: "west", Fine: 1}, // by the app
	} {
		p.fails.Store(want.Failed == 0)
		stream, err := internalv1.NewServiceInvocationClient(conn).CallLocalStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if got := w.Made(); err != io.EOF || !slices.Equal(got, []nameresolution.Made{want}) {
			t.Errorf("%v: %+v, want %+v", err, got, want)
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
	got := w.Made()
	if len(got) != 1 || got[0].Cluster != "" || got[0].Failed != 1 || got[0].Code != codes.Unavailable.String() || got[0].Why == "" {
		t.Errorf("reported: %+v", got)
	}
	// The service hears of calls that go well by then, so that it does not take one call for all.
	p := newTimedServer(0)
	w.setRoutes(nil, localRoute(startGateway(t, p.register).Address))
	if err := invoke(t.Context(), w.dial(t), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := w.Made(); !slices.Contains(got, nameresolution.Made{App: orders, Cluster: "west", Fine: 1}) {
		t.Errorf("reported beside it: %+v", got)
	}
}

// TestWhenCallsCountAsHanging has calls begin, and be answered, at these times.
func TestWhenCallsCountAsHanging(t *testing.T) {
	m := &made{}
	for _, step := range []struct {
		at      time.Duration
		do      func(time.Duration)
		want    uint64
		trouble bool
	}{
		{time.Second, m.beginWait, 0, false},
		{4 * time.Second, m.beginWait, 0, false},
		{5 * time.Second, nil, 0, false},
		{6 * time.Second, nil, 2, true},
		{7 * time.Second, m.endWait, 0, true}, // an answer came: the other one may be next
		{11 * time.Second, nil, 0, true},
		{12 * time.Second, nil, 1, true},
		{13 * time.Second, m.endWait, 0, true},
		{12*time.Second + troubleFor, nil, 0, true},
		{13*time.Second + troubleFor, nil, 0, false},
	} {
		if step.do != nil {
			step.do(step.at)
		}
		if got, trouble := m.take(step.at); got.Waiting != step.want || trouble != step.trouble {
			t.Errorf("at %s: %d wait, trouble %v; want %d, %v", step.at, got.Waiting, trouble, step.want, step.trouble)
		}
	}
}
