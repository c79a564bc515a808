package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// bareServer is the least that a server in Go can do with gRPC and the service's options. It has no
// objects, views or registry. It sends one and the same message to every sidecar that a change
// reaches. So its figures are those of gRPC, TLS, the kernel and the sidecars.
type bareServer struct {
	pb.UnimplementedResolverServer
	reached map[string]bool // app-ids

	mu      sync.Mutex
	latest  *pb.WatchResponse
	streams map[chan *pb.WatchResponse]struct{}
}

// bareArgument is what the role needs to know.
type bareArgument struct {
	Place   place
	Callers int // apps that a change reaches
}

// bare is the process of a bareServer.
func bare(ctx context.Context, text []byte) error {
	var argument bareArgument
	if err := json.Unmarshal(text, &argument); err != nil {
		return err
	}
	app := identity.ServiceApp("", cluster)
	id, err := identity.New(argument.Place.certificates().Identity(app), app, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := id.Load(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b := &bareServer{reached: map[string]bool{}, latest: bareMessage("10.200.0.1:1", 1), streams: map[chan *pb.WatchResponse]struct{}{}}
	for i := range argument.Callers {
		b.reached[fleet.App(i+1).ID] = true
	}
	server := grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(id.ServerCredentials(identity.Anyone)))...)
	pb.RegisterResolverServer(server, b)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = measure.Answer(map[string]measure.Method{
		"Address": measure.Typed(func(measure.None) (string, error) { return listener.Addr().String(), nil }),
		"Flip": measure.Typed(func(address string) (measure.None, error) {
			b.flip(address)
			return measure.None{}, nil
		}),
	})
	server.Stop()
	return errors.Join(err, <-served)
}

// bareMessage says where app 0 is, as the service does.
func bareMessage(address string, revision uint64) *pb.WatchResponse {
	route := catalog.LocalRoute([]string{address}, 0)
	route.Cluster, route.Weight = cluster, catalog.DefaultWeight
	entry := catalog.NewEntry(fleet.App(0), catalog.TextRule("AppEndpoints shop/app-00001, spec.endpoints[20] (line 28)"), []catalog.Route{route})
	return &pb.WatchResponse{Revision: revision, Rule: "AppEndpoints shop/app-00001", Put: []*pb.ViewEntry{wire.Entry(entry)}}
}

func (b *bareServer) flip(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest = bareMessage(address, b.latest.Revision+1)
	for messages := range b.streams {
		messages <- b.latest // there is room: the last change was seen everywhere
	}
}

// Watch sends the newest message, and each after it to a sidecar that a change reaches.
func (b *bareServer) Watch(to grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	hello, err := to.Recv()
	if err != nil {
		return err
	}
	messages := make(chan *pb.WatchResponse, 2)
	b.mu.Lock()
	messages <- b.latest
	if b.reached[hello.GetHello().GetApp().GetId()] {
		b.streams[messages] = struct{}{}
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.streams, messages)
	}()
	for {
		select {
		case m := <-messages:
			if err := to.Send(m); err != nil {
				return err
			}
		case <-to.Context().Done():
			return nil
		}
	}
}

// bareFlipper changes where a bareServer says that app 0 is.
type bareFlipper struct {
	server *measure.Child
	n      int
}

func (f *bareFlipper) address() string { return flipAddress(f.n) }

func (f *bareFlipper) flip(context.Context) error {
	f.n++
	_, err := measure.Ask[measure.None](f.server, "Flip", f.address())
	return err
}

func (f *bareFlipper) close() {}
