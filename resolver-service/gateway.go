package resolverservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/answers"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/tunnel"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/guests"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/invitation"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/rotation"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
)

// ingress is the edge of other clusters: the gateway, its listeners of single apps, and the
// server of peers, whose connections come through the gateway.
type ingress struct {
	gateway   *gateway.Gateway
	apps      []AppListener
	listeners *process.Listeners
	await     func(context.Context) // until a predecessor serves no more

	peers      *peering.Server
	grpc       *grpc.Server      // of peers; nil: they are not served
	dispatcher *authz.Dispatcher // their connections
	linking    *grpc.Server      // of invited clusters; nil with grpc
	invited    *authz.Dispatcher // their connections
	links      *peering.Links
	guests     *guests.Server

	tunnels  tunnels
	clusters *live.Value[[]*catalog.Cluster]
}

func (s *Service) buildIngress() (err error) {
	i := &ingress{apps: s.cfg.Listen.Apps, listeners: s.listeners, await: func(ctx context.Context) { s.listeners.AwaitPredecessor(ctx, s.topology.Ready()) }, peers: s.peers, links: s.links, guests: s.guests, tunnels: s.tunnels, clusters: s.feed.Clusters()}
	s.ingress = i
	g, most := s.cfg.Gateway, s.listeners.Bounds().Of["gateway"]
	cfg := gateway.Config{
		Table: s.topology.Gateway(), Logger: s.log, Metrics: s.registry, Plaintext: g.Plaintext, Check: s.destinations.Exported,
		HelloTimeout: g.HelloTimeout, DialTimeout: g.DialTimeout, DrainTimeout: g.DrainTimeout, StallTimeout: g.StallTimeout, AnswerTimeout: g.AnswerTimeout,
		MaxConnections: most, MaxPerSource: min(g.MaxPerSource, most), MaxHellos: g.MaxHellos, MaxPeers: maxPeers(process.OpenFiles()),
	}
	at, listens := s.Addr("gateway"), s.listeners.TCP("gateway") != nil
	if !listens { // connections come by tunnels, if any
		at, cfg.MaxConnections = &net.TCPAddr{}, min(most, max(process.OpenFiles()/4, 1))
	}
	switch {
	case !s.identity.Insecure():
		i.buildServer(s.access, at)
		i.buildLinking(s, at)
		cfg.Peers, cfg.Link, cfg.Linking = i.dispatcher.Dispatch, i.invited.Dispatch, s.link.Open
		cfg.Tunnels, cfg.OpenTunnel = s.tunnels.accepter.Take, s.tunnels.open
	case listens: // nobody could tell which peer calls
		s.log.Warn("other clusters can't ask this one for its exports: identity is insecure; give this service and theirs an identity; gateway.plaintext lets in calls alone")
	}
	i.gateway, err = gateway.New(cfg)
	return err
}

// Bounds of the gateway's connections. Each takes a client's and a backend's socket. Pipes between
// them are few, and where none is to be had bytes are copied, so the reserve has room for them.
const (
	defaultGatewayConnections       = 50_000
	descriptorsPerGatewayConnection = 2
)

// maxPeers is how many connections to the resolver service the gateway takes, of so many descriptors.
func maxPeers(limit int) int { return min(gateway.DefaultMaxPeers, max(limit/16, 1)) }

// Bounds of a peer's calls: a connection has one stream, and a request names what the peer
// has already.
const (
	peerStreams = 8
	peerRequest = 4 << 20 // bytes
)

// buildServer makes the server that other clusters' resolver services reach through the gateway.
func (i *ingress) buildServer(access *authz.Authorizer, at net.Addr) {
	i.dispatcher = authz.NewDispatcher(at)
	i.grpc = access.NewServer(authz.At(authz.AtGateway), access.Identity.PeeringCredentials(), grpc.MaxConcurrentStreams(peerStreams), grpc.MaxRecvMsgSize(peerRequest))
	v1alpha1.RegisterPeeringServer(i.grpc, i.peers)
	v1alpha1.RegisterGuestsServer(i.grpc, i.guests)
}

// part is the edge for those that start and stop it.
func (i *ingress) part() (edge.Part, error) {
	var runs []func(context.Context) error
	if l := i.listeners.TCP("gateway"); l != nil {
		runs = append(runs, func(ctx context.Context) error {
			i.await(ctx)
			return i.gateway.Serve(ctx, l)
		})
	}
	if i.grpc != nil {
		runs = append(runs, i.servePeers, i.serveLinking, i.serveTunnels)
	}
	for n, at := range i.apps {
		name := appListener(n)
		runs = append(runs, func(ctx context.Context) error {
			i.await(ctx)
			if err := i.gateway.ServeApp(ctx, i.listeners.TCP(name), at.app()); err != nil {
				return fmt.Errorf("listen.%s: %w", name, err)
			}
			return nil
		})
	}
	return edge.Part{Run: edge.Together(runs...)}, nil
}

// serveTunnels serves what comes by tunnels until ctx ends and calls have finished.
func (i *ingress) serveTunnels(ctx context.Context) error {
	i.await(ctx)
	defer context.AfterFunc(ctx, i.tunnels.accepter.Leave)()
	dialer := i.tunnels.dialer
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- i.gateway.Serve(serving, dialer) }()
	err := dialer.Run(ctx, i.clusters)
	dialer.Leave()
	end()
	err = errors.Join(err, <-ended)
	dialer.End()
	return err
}

// tunnels are those of clusters of which only one can be reached. Without an identity there are none.
type tunnels struct {
	accepter *tunnel.Accepter
	dialer   *tunnel.Dialer
	internal []string // addresses of the gateway, for callers of this cluster
}

func (s *Service) newTunnels() tunnels {
	if s.identity.Insecure() {
		return tunnels{}
	}
	cfg := tunnel.Config{
		Cluster: s.cfg.Cluster, Domain: catalog.Domain(s.cfg.Domain), Identity: s.identity, Several: s.cfg.Replicas != nil, Log: s.log, Resolver: s.edges.resolver,
	}
	return tunnels{tunnel.NewAccepter(cfg), tunnel.NewDialer(cfg), s.cfg.internal(s.Addr("gateway"))}
}

func (t tunnels) run(ctx context.Context, clusters *live.Value[[]*catalog.Cluster]) error {
	if t.accepter == nil {
		<-ctx.Done()
		return nil
	}
	return t.accepter.Run(ctx, clusters)
}

var errInsecure = errors.New("tunnels need an identity, and this service has none: it is insecure")

// connect is for peering.
func (t tunnels) connect(ctx context.Context, cluster string) (net.Conn, error) {
	if t.accepter == nil {
		return nil, errInsecure
	}
	return t.accepter.Connect(ctx, cluster)
}

// open is for callers of apps.
func (t tunnels) open(ctx context.Context, cluster string) (relay.Conn, error) {
	s, err := t.accepter.Open(ctx, cluster)
	if err != nil {
		return nil, err // and no Conn that is not nil
	}
	return s, nil
}

// addStatus adds the tunnels to the states of peers.
func (t tunnels) addStatus(peers []*v1alpha1.PeerStatus) {
	if t.accepter == nil {
		return
	}
	t.accepter.AddStatus(peers)
	t.dialer.AddStatus(peers)
	for _, p := range peers {
		if own := p.GetTunnel(); own.GetMode() == catalog.TunnelAccept {
			p.Gateways = nil // it has none
			if len(t.internal) == 0 {
				own.Error = "no address is known at which callers of this cluster reach its own gateway, and the tunnels behind it"
			}
		}
	}
}

// peersWithin is how long peers wait for the Cluster objects of a service that starts.
const peersWithin = 5 * time.Second

// servePeers serves peers until ctx ends. Before the Cluster objects are known, which say
// who may ask, peers wait rather than be refused.
func (i *ingress) servePeers(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, peersWithin)
	defer cancel()
	select {
	case <-i.links.Known():
	case <-first.Done():
	}
	return edge.ServeGRPC(ctx, i.dispatcher, i.grpc)
}

// buildLink makes what connects this cluster with others by invitations.
func (s *Service) buildLink(lacking func(ctx context.Context, roots map[string][]string) map[string][]*v1alpha1.LackingApp) {
	s.guests = guests.New(guests.Config{
		Settings: s.cfg.Guests, Namespace: s.cfg.Identity.Namespace, Identity: s.identity, Objects: s.resolver.objects, Topology: s.topology, Clusters: s.feed.Stored(), Log: s.log,
	})
	cfg := invitation.Config{
		Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace, Domain: catalog.Domain(s.cfg.Domain), Replica: s.cfg.replica(),
		Gateways: s.cfg.advertised(s.Addr("gateway")), Identity: s.identity, Objects: s.resolver.objects, Lacking: lacking,
		MayWrite: func(ctx context.Context) error { return configstore.MayWrite(ctx, s.store) }, Log: s.log,
		MayCertify: s.guests.MayCertify, Certify: s.guests.Certify,
	}
	if domains := s.cfg.Identity.TrustDomains; len(domains) == 1 {
		cfg.AppDomain = domains[0]
	}
	if sentry := s.cfg.Identity.Sentry; sentry != nil {
		cfg.Sentry = cmp.Or(sentry.Namespace, "default")
	}
	s.link = invitation.New(cfg)
}

// buildRotation makes what changes roots.
func (s *Service) buildRotation(inventory *answers.Inventory) {
	cfg := rotation.Config{
		Cluster: s.cfg.Cluster, Replica: s.cfg.replica(), Identity: s.identity, Objects: s.resolver.objects, Clusters: s.feed.Clusters(),
		Lacking: inventory.Lacking, Reports: s.peers.TrustReports, Report: s.links.SetTrust, Reconnect: s.links.Reconnect, Log: s.log,
		Sidecars: inventory.Certified, Others: s.replicas.Rotations, Run: s.replicas.Name(),
	}
	if sentry := s.cfg.Identity.Sentry; sentry != nil {
		cfg.Sentry = cmp.Or(sentry.Namespace, "default")
	}
	s.rotation = rotation.New(cfg)
}

// advertised are the addresses at which other clusters reach the gateway, as far as that is known:
// those that are configured, or the one where it listens.
func (c *Config) advertised(at net.Addr) []string {
	if len(c.Gateway.Advertise) > 0 {
		return c.Gateway.Advertise
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() || tcp.IP.IsLoopback() && !c.Development.Loopback {
		return nil
	}
	return []string{netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), tcp.AddrPort().Port()).String()}
}

// internal are the addresses at which callers of this cluster reach its own gateway, as far as that
// is known.
func (c *Config) internal(at net.Addr) []string {
	if len(c.Gateway.Internal) > 0 {
		return c.Gateway.Internal
	}
	return c.advertised(at)
}

// Bounds of a meeting's messages: the largest has roots.
const meetingRequest = 128 << 10

// buildLinking makes the server that an invited cluster's resolver service reaches.
func (i *ingress) buildLinking(s *Service, at net.Addr) {
	i.invited = authz.NewDispatcher(at)
	i.linking = s.access.NewServer(authz.At(authz.AtInvitation), s.identity.BootstrapCredentials(), grpc.MaxConcurrentStreams(1), grpc.MaxRecvMsgSize(meetingRequest))
	v1alpha1.RegisterLinkingServer(i.linking, s.link)
}

func (i *ingress) serveLinking(ctx context.Context) error {
	return edge.ServeGRPC(ctx, i.invited, i.linking)
}
