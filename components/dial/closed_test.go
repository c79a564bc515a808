package dial

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// daprd closes a connection when a call on it ends with Unavailable. Another call may have taken it
// from the pool just before. The tests make that call when the connection is closed for certain.

// callKinds are the ways in which daprd makes calls.
var callKinds = map[string]func(context.Context, *grpc.ClientConn) error{
	"unary": func(ctx context.Context, conn *grpc.ClientConn) error { return invoke(ctx, conn, time.Minute) },
	"stream": func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := internalv1.NewServiceInvocationClient(conn).CallLocalStream(ctx)
		if err != nil {
			return err
		}
		if err = stream.CloseSend(); err != nil {
			return err
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	},
}

func TestACallOnAConnectionThatDaprdHasClosed(t *testing.T) {
	down := deadAddress(t)
	for kind, call := range callKinds {
		for state, prepare := range map[string]func(*testing.T, *grpc.ClientConn){
			"before its first call": func(*testing.T, *grpc.ClientConn) {},
			"after a call":          func(t *testing.T, conn *grpc.ClientConn) { _ = call(t.Context(), conn) },
		} {
			for route, gateway := range map[string]string{"up": startGateway(t, newTimedServer(0).register).Address, "away": down} {
				t.Run(kind+" "+state+", the route is "+route, func(t *testing.T) {
					w := newEastDialer(t, gateway)
					closed := w.dial(t)
					prepare(t, closed)
					_ = closed.Close()
					err := call(t.Context(), closed)
					switch want := w.reference(t, call); {
					case status.Code(err) != status.Code(want):
						t.Errorf("the call ends with %v, and on an open connection with %v", err, want)
					case route == "away" && err.Error() != want.Error():
						t.Errorf("the call ends with %v, and on an open connection with %v", err, want)
					}
					if n := len(w.callee(calleeKey{orders, orders}).conns) + len(w.callee(calleeKey{orders, orders}).idle); n > 2 {
						t.Errorf("%d channels for two connections", n)
					}
				})
			}
		}
	}
}

// reference returns how a call on an open connection ends.
func (w *testDialer) reference(t *testing.T, call func(context.Context, *grpc.ClientConn) error) error {
	err := call(t.Context(), w.dial(t))
	if code := status.Code(err); code != codes.OK && code != codes.Unimplemented && code != codes.Unavailable {
		t.Fatalf("on an open connection: %v", err)
	}
	return err
}

// A call waits for the first view, while its connection is closed and its channel would be.
func TestAChannelWithACallThatWaitsIsKept(t *testing.T) {
	gw := startGateway(t, newTimedServer(0).register)
	for kind, call := range callKinds {
		t.Run(kind, func(t *testing.T) {
			w := newTestDialer(t)
			conn := w.dial(t)
			ended := make(chan error, 1)
			go func() { ended <- call(t.Context(), conn) }()
			c := w.awaitCalls(t, 1)
			_ = conn.Close()
			w.closeIdle(c)
			w.setEast(gw.Address)
			if err := <-ended; status.Code(err) == codes.Canceled {
				t.Errorf("the call ends with %v", err)
			}
			w.awaitCalls(t, 0)
			w.closeIdle(c)
			if c.beginCall() || len(w.channels) != 0 {
				t.Error("an idle channel without a call is not closed")
			}
		})
	}
}

// awaitCalls waits until the only channel has so many calls under way.
func (w *testDialer) awaitCalls(t *testing.T, n int64) *channel {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		w.Dialer.mu.Lock()
		for c := range w.channels {
			if c.calls.Load() == n {
				w.Dialer.mu.Unlock()
				return c
			}
		}
		w.Dialer.mu.Unlock()
	}
	t.Fatalf("no channel has %d calls", n)
	return nil
}
