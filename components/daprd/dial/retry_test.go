package dial

import (
	"context"
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
// would close the connection for the calls through all other gateways too.
func TestACallThatALostGatewayCutsOffIsTriedThroughAnother(t *testing.T) {
	s := &sidecar{given: make(chan struct{}, 10), answer: make(chan struct{})}
	register := func(server *grpc.Server) { internalv1.RegisterServiceInvocationServer(server, s) }
	first, second := startGateway(t, register), startGateway(t, register)
	names, gateways := east(first.Address)
	conn := mustDial(t, names, ordersInEast)
	mustCall(t, conn)
	var called sync.WaitGroup
	called.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := internalv1.NewServiceInvocationClient(conn).CallLocal(ctx, &internalv1.InternalInvokeRequest{}); err != nil {
			t.Error(err)
		}
	})
	<-s.given
	gateways.Store(eastAt(first.Address, second.Address))
	until(t, conn, second.Address)
	first.stop()
	select {
	case <-s.given: // again, by the second
	case <-time.After(5 * time.Second):
		t.Error("the call was not tried again")
	}
	close(s.answer)
	called.Wait()
}
