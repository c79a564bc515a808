package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// parts are those of the service that is measured, as they stand in production but for
// its store and its other edges.
type parts struct {
	id       *identity.Source
	topology *topology.Topology
	links    *peering.Links
	peers    *peering.Server
	streams  *stream.Server
	server   *grpc.Server
	listener net.Listener
	clusters live.Value[[]*catalog.Cluster]
	told     told
}

var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

// service runs the service that is measured, and answers the benchmark on standard input
// and output until the input ends.
func service(ctx context.Context, at place) error {
	s, err := newParts(ctx, at)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answers := rpc.NewServer()
	c := &Control{ctx: ctx, parts: s}
	if err := answers.Register(c); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run(ctx) })
	group.Go(func() error { return c.sights.follow(ctx, s.topology) })
	group.Go(func() error {
		defer stop()
		answers.ServeCodec(jsonrpc.NewServerCodec(pipe{os.Stdin, os.Stdout}))
		return nil
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// pipe is what two processes talk through.
type pipe struct {
	io.Reader
	io.WriteCloser
}

func newParts(ctx context.Context, at place) (s *parts, err error) {
	s = &parts{}
	app := identity.ServiceApp("", ours)
	if s.id, err = identity.New(at.identity(app), app, quiet); err != nil {
		return nil, err
	}
	if err := s.id.Load(ctx); err != nil {
		return nil, err
	}
	s.topology = topology.New(topology.Config{Cluster: ours, Domain: catalog.DefaultDomain, Open: true}, quiet)
	s.links, s.peers = newPeering(ours, nil, s.topology, s.id)
	if s.streams, err = stream.New(stream.Config{Source: manyHosts}, s.topology, prometheus.NewRegistry(), quiet); err != nil {
		return nil, err
	}
	s.server = grpc.NewServer(append(stream.ServerOptions(), grpc.MaxRecvMsgSize(4<<20),
		grpc.Creds(s.id.PeeringCredentials()), grpc.StreamInterceptor(s.told.watch))...)
	pb.RegisterResolverServer(s.server, s.streams)
	pb.RegisterPeeringServer(s.server, s.peers)
	s.listener, err = net.Listen("tcp", "127.0.0.1:0")
	return s, err
}

func newPeering(cluster string, dial func(context.Context, string) (net.Conn, error), t *topology.Topology, id *identity.Source) (*peering.Links, *peering.Server) {
	cfg := peering.Config{Cluster: cluster, Domain: catalog.DefaultDomain, Dial: dial}
	links, server := peering.NewLinks(cfg, t, id, quiet), peering.NewServer(cfg, t, quiet)
	peering.Join(links, server)
	return links, server
}

func (s *parts) run(ctx context.Context) error {
	// What the streams stand on ends after them.
	below, endBelow := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.topology.Run(below) })
	group.Go(func() error { return resolverservice.SaveMemory(below, s.topology.Ready()) })
	group.Go(func() error { return s.id.Run(below) })
	group.Go(func() error { return s.server.Serve(s.listener) })
	group.Go(func() error {
		defer endBelow()
		defer s.server.Stop()
		defer s.peers.Stop()
		return s.streams.Run(ctx)
	})
	group.Go(func() error { return s.links.Run(ctx, &s.clusters) })
	return group.Wait()
}

// manyHosts takes each sidecar for one of another host: here all of them are one process.
func manyHosts(_ context.Context, claimed netip.Addr) netip.Addr { return claimed }
