package conformance

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	nr "github.com/dapr/components-contrib/nameresolution"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/kit/logger"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isthmus-mesh/isthmus/components/daprd/component"
	"github.com/isthmus-mesh/isthmus/components/dial"
)

// dialed is the component as it is in daprd: what it answers is for the dialer beside it. The
// connections are daprd's.
type dialed struct {
	nr.Resolver
	dialer *dial.Dialer

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func newDialed(l logger.Logger) nr.Resolver {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	d := &dialed{dialer: dial.New(quiet, trace.SpanFromContext, component.Answer), conns: map[string]*grpc.ClientConn{}}
	names := registry.NewRegistry()
	names.Logger = l
	component.New(quiet, d.dialer).Register(names)
	var err error
	if d.Resolver, err = names.Create(component.Name, "v1", component.Name); err != nil {
		panic(err)
	}
	return d
}

func (d *dialed) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for answer, conn := range d.conns {
		errs = append(errs, conn.Close())
		delete(d.conns, answer)
	}
	d.dialer.Close()
	return errors.Join(append(errs, d.Resolver.Close())...)
}

func (d *dialed) conn(answer string) (*grpc.ClientConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if conn := d.conns[answer]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+answer, append(d.dialer.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(d.dialer.Wrap(resolver.Get("passthrough"))))...)
	if err == nil {
		d.conns[answer] = conn
	}
	return conn, err
}

// dialedEndpoints makes a call, and returns where it went.
func dialedEndpoints(ctx context.Context, r nr.Resolver, answer string) ([]string, error) {
	conn, err := r.(*dialed).conn(answer)
	if err != nil {
		return nil, err
	}
	var at peer.Peer
	if err := conn.Invoke(ctx, "/conformance/Call", &emptypb.Empty{}, &emptypb.Empty{}, grpc.Peer(&at)); err != nil {
		return nil, err
	}
	return []string{at.Addr.String()}, nil
}

// serveCalls is a sidecar that takes any call.
func serveCalls(t *testing.T, i nr.Instance) {
	listener, err := net.Listen("tcp", endpointOf(i))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
}
