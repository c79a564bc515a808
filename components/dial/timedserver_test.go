package dial

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// timedServer answers calls after a time that tests set.
type timedServer struct {
	internalv1.UnimplementedServiceInvocationServer
	after atomic.Int64
	given atomic.Int64
	fails atomic.Bool
}

func newTimedServer(after time.Duration) *timedServer {
	p := &timedServer{}
	p.after.Store(int64(after))
	return p
}

func (p *timedServer) register(server *grpc.Server) {
	internalv1.RegisterServiceInvocationServer(server, p)
}

func (p *timedServer) CallLocal(ctx context.Context, _ *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	p.given.Add(1)
	if p.fails.Load() {
		return nil, status.Error(codes.Unavailable, "not now")
	}
	select {
	case <-time.After(time.Duration(p.after.Load())):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &internalv1.InternalInvokeResponse{}, nil
}

// CallLocalStream answers as the sidecar of an HTTP app: with its guard's refusal or, if it fails, with
// the app's own.
func (p *timedServer) CallLocalStream(stream internalv1.ServiceInvocation_CallLocalStreamServer) error {
	answer := &internalv1.InternalInvokeResponse{Status: &internalv1.Status{Code: http.StatusForbidden}}
	if !p.fails.Load() {
		answer.Headers = map[string]*internalv1.ListStringValue{"isthmus-refused": {Values: []string{"ERR_ISTHMUS_DENIED"}}}
	}
	return stream.Send(&internalv1.InternalInvokeResponseStream{Response: answer})
}

// startFive starts five instances that answer in 1 ms, and returns a connection that has reached
// each. The connection dials the addresses that proxy returns.
func startFive(t *testing.T, proxy func(address string) string) (instances []*timedServer, conn *grpc.ClientConn) {
	w := newTestDialer(t)
	var addresses []string
	for range 5 {
		p := newTimedServer(time.Millisecond)
		instances = append(instances, p)
		addresses = append(addresses, proxy(startGateway(t, p.register).Address))
	}
	w.setRoutes(nil, localRoute(addresses...))
	conn = w.dial(t)
	for _, p := range instances {
		for deadline := time.Now().Add(time.Minute); p.given.Load() == 0; {
			if err := invoke(t.Context(), conn, time.Minute); err != nil || time.Now().After(deadline) {
				t.Fatalf("an instance has no call: %v", err)
			}
		}
	}
	return instances, conn
}

func direct(address string) string { return address }

// callMany makes n calls, four at a time, and returns how many each instance had.
func callMany(t *testing.T, conn *grpc.ClientConn, instances []*timedServer, n int) (given []int64) {
	t.Helper()
	for _, p := range instances {
		given = append(given, -p.given.Load())
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range n / 4 {
				if err := invoke(t.Context(), conn, time.Minute); err != nil {
					t.Errorf("call: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	for i, p := range instances {
		given[i] += p.given.Load()
	}
	return given
}

// waitForShare calls until the first of five instances has its share again, or half of it.
func waitForShare(t *testing.T, conn *grpc.ClientConn, instances []*timedServer) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); callMany(t, conn, instances, 400)[0] < 40; {
		if time.Now().After(deadline) {
			t.Fatal("the instance has recovered, but does not get its share of calls")
		}
	}
}
