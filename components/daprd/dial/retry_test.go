package dial

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	internalv1 "github.com/dapr/dapr/pkg/proto/internals/v1"
	"google.golang.org/grpc"
)

// sidecar answers a call only once told to, and then says it was given one.
type sidecar struct {
	internalv1.UnimplementedServiceInvocationServer
	given  chan struct{}
	answer chan struct{}
}

func (s *sidecar) CallLocal(context.Context, *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	s.given <- struct{}{}
	<-s.answer
	return &internalv1.InternalInvokeResponse{}, nil
}

// A gateway that dies cuts off the calls under way through it. If daprd were told, it
// would close the connection for the calls through all other gateways too; a user who
// wants no call to run twice has it told.
func TestACallThatALostGatewayCutsOffIsTriedThroughAnother(t *testing.T) {
	for _, retry := range []bool{true, false} {
		t.Run(fmt.Sprintf("retry %v", retry), func(t *testing.T) {
			s := &sidecar{given: make(chan struct{}, 10), answer: make(chan struct{})}
			register := func(server *grpc.Server) { internalv1.RegisterServiceInvocationServer(server, s) }
			first, second := startGateway(t, register), startGateway(t, register)
			names, gateways := east(first.Address, "127.0.0.1:1") // nobody listens there
			names.Use(gateways, nil, retry)
			conn := mustDial(t, names, ordersInEast)
			mustCall(t, conn)
			var called sync.WaitGroup
			called.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := internalv1.NewServiceInvocationClient(conn).CallLocal(ctx, &internalv1.InternalInvokeRequest{})
				if (err == nil) != retry {
					t.Errorf("the call ended with %v", err)
				}
			})
			<-s.given
			gateways.Store(eastAt(first.Address, second.Address))
			until(t, conn, second.Address)
			first.stop()
			if retry {
				select {
				case <-s.given: // again, by the second
				case <-time.After(time.Minute):
					t.Error("the call was not tried again")
				}
			} else {
				called.Wait()
			}
			close(s.answer)
			called.Wait()
			if len(s.given) > 0 {
				t.Error("the call ran once more")
			}
		})
	}
}
