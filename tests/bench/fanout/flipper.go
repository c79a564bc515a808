package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
)

// flipper is the one instance of app 0. Each flip is a new stream that registers it
// anew at another address, as a sidecar does that comes back.
type flipper struct {
	conn *grpc.ClientConn
	n    int
	end  []context.CancelFunc // of the streams
}

func newFlipper(at place, address string) (*flipper, error) {
	app := fleet.App(0)
	id, err := identity.New(at.certificates().Identity(app), app, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := id.Load(context.Background()); err != nil {
		return nil, err
	}
	service := identity.OneOf(identity.ServiceApp("", cluster))
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(id.ClientCredentials(service)))
	if err != nil {
		return nil, err
	}
	return &flipper{conn: conn}, nil
}

// address is where the instance is since the last flip.
func (f *flipper) address() string { return flipAddress(f.n) }

// flipAddress is where the instance that changes is after so many changes.
func flipAddress(n int) string { return fmt.Sprintf("10.200.0.%d:%d", n%2+1, fleet.Port) }

// flip gives the instance another address. It returns as soon as that is on its way.
func (f *flipper) flip(ctx context.Context) error {
	f.n++
	ctx, end := context.WithCancel(ctx)
	f.end = append(f.end, end)
	stream, err := pb.NewResolverClient(f.conn).Watch(ctx)
	if err != nil {
		return fmt.Errorf("open the stream of the instance that changes: %w", err)
	}
	hello := &pb.Hello{App: wire.App(fleet.App(0)), Instance: &pb.Instance{Id: "changing", Address: f.address()}}
	err = stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: hello}})
	if err != nil {
		_, why := stream.Recv()
		return errors.Join(err, why)
	}
	return nil
}

func (f *flipper) close() {
	for _, end := range f.end {
		end()
	}
	_ = f.conn.Close() // the streams have ended
}
