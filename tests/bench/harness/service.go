package harness

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Certificates is a directory with the certificates of apps.
type Certificates string

func (c Certificates) path(name string) string { return filepath.Join(string(c), name) }

// Issue makes a root, and the certificates of apps.
func (c Certificates) Issue(apps ...catalog.App) { c.IssueBy(Must(sandbox.NewAuthority()), apps...) }

// IssueBy makes the certificates of apps by an authority, and trusts that one alone.
func (c Certificates) IssueBy(authority *sandbox.Authority, apps ...catalog.App) {
	for _, app := range apps {
		cert, key, err := authority.Leaf("public", app)
		Check(err)
		Check(os.WriteFile(c.path(app.ID+".crt"), cert, 0o600))
		Check(os.WriteFile(c.path(app.ID+".key"), key, 0o600))
	}
	Check(os.WriteFile(c.path("ca.crt"), authority.Anchors(), 0o600))
}

// config is how an app identifies itself: by its files, or not at all without any.
func (c Certificates) config(app catalog.App) identity.Config {
	if _, err := os.Stat(c.path("ca.crt")); err != nil {
		return identity.Config{Insecure: true}
	}
	return identity.Config{Files: &identity.Files{Cert: c.path(app.ID + ".crt"), Key: c.path(app.ID + ".key"), CA: c.path("ca.crt")}}
}

// Identity is that of an app, loaded.
func (c Certificates) Identity(b *B, app catalog.App) *identity.Source {
	id := Must(identity.New(c.config(app), app, Log))
	Check(id.Load(b))
	return id
}

// Config is what a service needs to know.
type Config struct {
	Cluster      string
	Certificates Certificates
	Streams      stream.Config                // for sidecars, each of which is taken for one of another host
	Peers        bool                         // other clusters' services may connect
	Many         int                          // of other clusters, as peering has it
	Listener     net.Listener                 // for other clusters
	Watch        grpc.StreamServerInterceptor // of other clusters' streams
}

// Service is a resolver service as it stands in production, but for its store and its other edges.
type Service struct {
	Topology *topology.Topology
	Clusters live.Value[[]*catalog.Cluster] // that it has links with

	Listener net.Listener // for sidecars

	// For other clusters, as behind a gateway; nil unless they may connect.
	PeerServer   *grpc.Server
	PeerListener net.Listener

	links   *peering.Links
	server  *grpc.Server
	streams *stream.Server
	peers   *peering.Server
	id      *identity.Source
}

// Listen takes a port of loopback.
func Listen() net.Listener { return Must(net.Listen("tcp", "127.0.0.1:0")) }

// NewService makes a service, which listens on a port of its own.
func (b *B) NewService(cfg Config) *Service {
	s := &Service{id: cfg.Certificates.Identity(b, identity.ServiceApp("", cfg.Cluster)), Listener: Listen()}
	s.Topology = topology.New(topology.Config{Cluster: cfg.Cluster, Domain: catalog.DefaultDomain, Open: true}, Log)
	cfg.Streams.Source = func(_ context.Context, claimed netip.Addr) netip.Addr { return claimed }
	s.streams = Must(stream.New(cfg.Streams, s.Topology, prometheus.NewRegistry(), Log))
	s.server = grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(s.id.ServerCredentials(identity.Anyone)))...)
	pb.RegisterResolverServer(s.server, s.streams)
	if cfg.Peers {
		peers := peering.Config{Cluster: cfg.Cluster, Domain: catalog.DefaultDomain, Many: cfg.Many}
		s.links, s.peers = peering.NewLinks(peers, s.Topology, s.id, Log), peering.NewServer(peers, s.Topology, Log)
		peering.Join(s.links, s.peers)
		s.PeerServer = grpc.NewServer(append(stream.ServerOptions(), grpc.MaxRecvMsgSize(4<<20),
			grpc.Creds(s.id.PeeringCredentials()), grpc.StreamInterceptor(cfg.Watch))...)
		pb.RegisterPeeringServer(s.PeerServer, s.peers)
		s.PeerListener = cfg.Listener
	}
	return s
}

// Address is where sidecars connect.
func (s *Service) Address() string { return s.Listener.Addr().String() }

// Run runs the service until the end, and with it more parts that end after its streams.
func (s *Service) Run(b *B, more ...func(context.Context) error) {
	b.Go(s.Topology.Run)
	Check(s.streams.Restore(b))
	for _, part := range append(more, s.id.Run) {
		b.Go(part)
	}
	b.Serve(s.server, s.Listener)
	if s.links != nil {
		b.Serve(s.PeerServer, s.PeerListener)
		b.Defer(s.peers.Stop)
		b.Go(func(ctx context.Context) error { return s.links.Run(ctx, &s.Clusters) })
	}
	b.Go(s.streams.Run)
}

// Serve has a server take connections until the end.
func (b *B) Serve(server *grpc.Server, l net.Listener) {
	b.Go(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, server.Stop)()
		return server.Serve(l)
	})
}

// Dial is a connection to a gRPC server, until the end; in plain text without credentials.
func (b *B) Dial(address string, creds credentials.TransportCredentials, more ...grpc.DialOption) *grpc.ClientConn {
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn := Must(grpc.NewClient("passthrough:///"+address, append(more, grpc.WithTransportCredentials(creds), grpc.WithNoProxy())...))
	b.Cleanup(conn.Close)
	return conn
}

// Sidecar is the resolver that the daprd of an instance would have loaded, until the end.
func (b *B) Sidecar(cluster, address string, certificates Certificates, own catalog.Instance) *nameresolution.Resolver {
	r := nameresolution.New(nameresolution.Options{Logger: Quiet})
	id := certificates.config(own.App)
	settings := map[string]any{"insecure": true}
	if !id.Insecure {
		settings = map[string]any{"files": map[string]any{"cert": id.Files.Cert, "key": id.Files.Key, "ca": id.Files.CA}}
	}
	configuration := map[string]any{"resolver": address, "cluster": cluster, "identity": settings, "resolveTimeout": "1m"}
	Check(r.Init(b, configuration, nameresolution.Instance{App: own.App, Address: own.Address.Addr().String(), Port: int(own.Address.Port())}))
	b.Cleanup(r.Close)
	return r
}
