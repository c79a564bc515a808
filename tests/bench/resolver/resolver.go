// Package resolver runs resolver services inside benchmark programs, with their
// certificates and the sidecars' resolvers.
package resolver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Log has errors only.
var Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

// Config is what a service needs to know.
type Config struct {
	Cluster      string
	Certificates Certificates
	Streams      stream.Config // for sidecars, each of which is taken for one of another host
	Peers        bool          // other clusters' services may connect
	Dial         func(context.Context, string) (net.Conn, error)
	Watch        grpc.StreamServerInterceptor // of other clusters' streams
}

// Service is a resolver service as it stands in production, but for its store and its other
// edges.
type Service struct {
	Topology *topology.Topology
	Links    *peering.Links
	Clusters live.Value[[]*catalog.Cluster] // that it has links with

	Listener net.Listener // for sidecars

	// For other clusters, as behind a gateway; nil unless they may connect.
	PeerServer   *grpc.Server
	PeerListener net.Listener

	server  *grpc.Server
	streams *stream.Server
	peers   *peering.Server
	id      *identity.Source
}

// New makes a service, which listens on a port of its own.
func New(ctx context.Context, cfg Config) (s *Service, err error) {
	s = &Service{}
	app := identity.ServiceApp("", cfg.Cluster)
	if s.id, err = identity.New(cfg.Certificates.Identity(app), app, Log); err != nil {
		return nil, err
	}
	if err := s.id.Load(ctx); err != nil {
		return nil, err
	}
	s.Topology = topology.New(topology.Config{Cluster: cfg.Cluster, Domain: catalog.DefaultDomain, Open: true}, Log)
	cfg.Streams.Source = func(_ context.Context, claimed netip.Addr) netip.Addr { return claimed }
	if s.streams, err = stream.New(cfg.Streams, s.Topology, prometheus.NewRegistry(), Log); err != nil {
		return nil, err
	}
	s.server = grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(s.id.ServerCredentials(identity.Anyone)))...)
	pb.RegisterResolverServer(s.server, s.streams)
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil || !cfg.Peers {
		return s, err
	}
	peers := peering.Config{Cluster: cfg.Cluster, Domain: catalog.DefaultDomain, Dial: cfg.Dial}
	s.Links, s.peers = peering.NewLinks(peers, s.Topology, s.id, Log), peering.NewServer(peers, s.Topology, Log)
	peering.Join(s.Links, s.peers)
	s.PeerServer = grpc.NewServer(append(stream.ServerOptions(), grpc.MaxRecvMsgSize(4<<20),
		grpc.Creds(s.id.PeeringCredentials()), grpc.StreamInterceptor(cfg.Watch))...)
	pb.RegisterPeeringServer(s.PeerServer, s.peers)
	s.PeerListener, err = net.Listen("tcp", "127.0.0.1:0")
	return s, err
}

// Address is where sidecars connect.
func (s *Service) Address() string { return s.Listener.Addr().String() }

// PeerAddress is where other clusters connect.
func (s *Service) PeerAddress() string { return s.PeerListener.Addr().String() }

// Run runs the service until ctx ends, and with it more parts that end after its streams.
func (s *Service) Run(ctx context.Context, more ...func(context.Context) error) error {
	below, endBelow := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Topology.Run(below) })
	if err := s.streams.Restore(ctx); err != nil {
		endBelow()
		return errors.Join(err, group.Wait(), s.Listener.Close())
	}
	for _, part := range append(more, s.id.Run) {
		group.Go(func() error { return part(below) })
	}
	group.Go(func() error { return s.server.Serve(s.Listener) })
	if s.Links != nil {
		group.Go(func() error { return s.Links.Run(ctx, &s.Clusters) })
		group.Go(func() error {
			if err := s.PeerServer.Serve(s.PeerListener); !errors.Is(err, net.ErrClosed) { // who closes it serves another
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		defer endBelow()
		defer s.server.Stop()
		if s.Links != nil {
			defer s.PeerServer.Stop()
			defer s.peers.Stop()
		}
		return s.streams.Run(ctx)
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Sidecar is the resolver that the daprd of an instance would have loaded.
func Sidecar(ctx context.Context, cluster, address string, id identity.Config, own catalog.Instance) (*nameresolution.Resolver, error) {
	r := nameresolution.New(nameresolution.Options{Logger: slog.New(slog.DiscardHandler)})
	settings := map[string]any{"insecure": true}
	if !id.Insecure {
		settings = map[string]any{"files": map[string]any{"cert": id.Files.Cert, "key": id.Files.Key, "ca": id.Files.CA}}
	}
	configuration := map[string]any{"resolver": address, "cluster": cluster, "identity": settings, "resolveTimeout": "1m"}
	self := nameresolution.Instance{App: own.App, Address: own.Address.Addr().String(), Port: int(own.Address.Port())}
	if err := r.Init(ctx, configuration, self); err != nil {
		return nil, fmt.Errorf("sidecar %s: %w", own.App, err)
	}
	return r, nil
}
