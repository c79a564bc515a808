package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// callsTimeout is how long calls that run may go on after the end.
const callsTimeout = 2 * time.Second

// ServeGRPC has the first of the servers serve until ctx ends. Then all of them let calls
// that run finish, for at most 2 s. An edge ends its streams itself. A gRPC server that stops waits
// for handshakes, so those at a bounded listener are cut off.
func ServeGRPC(ctx context.Context, l net.Listener, servers ...*grpc.Server) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		cutOff(l)
		late := time.AfterFunc(callsTimeout, func() {
			cutOff(l)
			each(servers, (*grpc.Server).Stop)
		})
		defer late.Stop()
		each(servers, (*grpc.Server).GracefulStop)
	})
	err := servers[0].Serve(l)
	if stop() {
		each(servers, (*grpc.Server).Stop)
		return err
	}
	<-stopped
	return nil
}

// StreamError returns why a stream's context has ended, as a gRPC status. It is nil if the client
// closed its side, which the cause io.EOF tells.
func StreamError(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, io.EOF):
		return nil
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return status.FromContextError(cause).Err()
	default:
		return cause
	}
}

func cutOff(l net.Listener) {
	if b, ok := l.(*bounded.Listener); ok {
		b.HangupPending()
	}
}

// each calls do for all servers at once, and waits.
func each(servers []*grpc.Server, do func(*grpc.Server)) {
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() { do(server) })
	}
	all.Wait()
}
