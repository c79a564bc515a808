package dial

import (
	"context"
	"fmt"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
)

// blockingServer reports each call on given, and answers when answer has a value or is closed.
type blockingServer struct {
	internalv1.UnimplementedServiceInvocationServer
	given  chan struct{}
	answer chan struct{}
}

func newBlockingServer() *blockingServer {
	return &blockingServer{given: make(chan struct{}, 10), answer: make(chan struct{})}
}

func (s *blockingServer) register(server *grpc.Server) {
	internalv1.RegisterServiceInvocationServer(server, s)
}

func (s *blockingServer) CallLocal(context.Context, *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	s.given <- struct{}{}
	<-s.answer
	return &internalv1.InternalInvokeResponse{}, nil
}

// An instance that dies cuts off its calls. Each is repeated once elsewhere, unless the user turned
// repeats off. Then it fails.
func TestACallThatWasCutOffIsMadeAgainElsewhere(t *testing.T) {
	for _, retry := range []bool{true, false} {
		t.Run(fmt.Sprintf("retry %v", retry), func(t *testing.T) {
			a, b := newBlockingServer(), newBlockingServer()
			first, second := startGateway(t, a.register), startGateway(t, b.register)
			w := newTestDialer(t)
			w.retry = retry
			w.Use(w)
			w.setRoutes(nil, localRoute(first.Address, second.Address))
			conn := w.dial(t)
			callUntil(t, conn, first.Address)
			callUntil(t, conn, second.Address)
			ended := startInvoke(t, conn)
			var lost *gateway
			var other *blockingServer
			select {
			case <-a.given:
				lost, other = first, b
			case <-b.given:
				lost, other = second, a
			}
			stopped := make(chan struct{})
			go func() { defer close(stopped); lost.server.Stop() }()
			if retry {
				select {
				case <-other.given:
				case <-time.After(time.Minute):
					t.Error("the call was not made again")
				}
				close(a.answer)
				close(b.answer)
			}
			if err := <-ended; (err == nil) != retry {
				t.Errorf("the call ended with %v", err)
			}
			if !retry {
				close(a.answer)
				close(b.answer)
			}
			<-stopped
			if len(a.given)+len(b.given) > 0 {
				t.Error("the call ran once more")
			}
		})
	}
}

// When one call ends with Unavailable, daprd closes the connection of all its calls.
func TestACallsEndDoesNotEndOthers(t *testing.T) {
	s := newBlockingServer()
	gw := startGateway(t, s.register)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(gw.Address))
	conn := w.dial(t)
	ended := startInvoke(t, conn)
	<-s.given
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	again := w.dial(t)
	mustCall(t, again)
	close(s.answer)
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	if sni, _ := gw.seen(); len(sni) != 1 {
		t.Errorf("%d connections were made, want one for both", len(sni))
	}
}

// daprd opens another connection for more calls. Closing one does not affect the other.
func TestSeveralConnectionsToOneApp(t *testing.T) {
	gw := startGateway(t)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(gw.Address))
	first, second := w.dial(t), w.dial(t)
	mustCall(t, second)
	mustCall(t, first)
	second.Close()
	mustCall(t, first)
}
