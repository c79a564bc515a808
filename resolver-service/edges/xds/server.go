package xds

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/keypair"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/rawgrpc"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/budget"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts/lookup"
)

// userTimeout is how long a client may leave bytes unacknowledged.
const userTimeout = 20 * time.Second

// stallTimeout is how long a client may take to read maxResponse bytes.
const stallTimeout = 20 * time.Second

// nodeTimeout is how long a client may take for its first request.
const nodeTimeout = 10 * time.Second

type config struct {
	settings *Settings
	host     edge.Host
}

// Server answers clients of xDS.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	host     edge.Host
	maker    *maker
	gateway  *gatewayMaker // nil: no client is one
	gateways []catalog.App
	hubs     hubs
	hosts    *hosts.Hosts
	clients  *clients
	counters counters
	known    *budget.Budget // for what clients have from earlier streams
	pair     *keypair.Pair  // nil: the service's own certificate
	grpc     *grpc.Server
	listener *bounded.Listener

	settled  chan struct{} // closed once views have what peers, sidecars and host names add to them
	stopping context.Context
	stop     context.CancelCauseFunc
	running  sync.WaitGroup
}

// methods are those that clients may call.
var methods = []string{
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName,
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName,
}

func newServer(cfg config) (*Server, error) {
	s := &Server{
		host: cfg.host, clients: newClients(cfg.host.Listen.Connections), counters: newCounters(), settled: make(chan struct{}), known: budget.New(knownTotal, knownShare),
		maker: &maker{domain: cfg.host.Cluster.Domain, cluster: cfg.host.Cluster.Name, provider: cfg.settings.Certificates},
	}
	if s.maker.provider == "" {
		s.maker.provider = DefaultProvider
	}
	if cfg.host.Listen.Insecure {
		s.maker.provider = ""
	}
	if g := cfg.settings.Gateway; g != nil {
		listen, err := netip.ParseAddrPort(cmp.Or(g.Listen, DefaultGatewayListen))
		if err != nil {
			return nil, fmt.Errorf("xds.gateway.listen: %w", err)
		}
		s.gateway = &gatewayMaker{listen, g.Peering}
		for _, name := range g.Apps {
			app, err := catalog.ParseApp(name)
			if err != nil {
				return nil, fmt.Errorf("xds.gateway.apps: %w", err)
			}
			s.gateways = append(s.gateways, app)
		}
	}
	s.hosts = hosts.New("xds", s.host.Views.Topology.Clusters(), s.host.Cluster.Domain, lookup.Through(s.host.Views.Resolver), s.host.Tell.Log)
	s.hubs = hubs{server: s, all: map[hubKey]*hub{}}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	var show identity.Certificate
	if files := cfg.settings.TLS; files != nil {
		pair, err := keypair.Load(identity.XDSCertificate, files.Cert, files.Key, cfg.host.Tell.Log)
		if err != nil {
			return nil, fmt.Errorf("xds.tls: %w", err)
		}
		s.pair, show = pair, pair.Get
	}
	s.grpc = cfg.host.Listen.GRPC(methods, show, rawgrpc.ServerCodec(), grpc.MaxRecvMsgSize(maxRequest),
		// The first responses can take a client seconds to read.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: userTimeout, MaxConnectionIdle: time.Minute}))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	if err := cfg.host.Tell.Metrics.Register(s); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return s, nil
}

// run serves until ctx ends.
func (s *Server) run(ctx context.Context, l *bounded.Listener) error {
	s.listener = l
	defer s.running.Wait()
	stop := func() { s.stop(status.Error(codes.Unavailable, "xds: the service is stopping; reconnect")) }
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	s.running.Go(s.settle)
	return edge.ServeGRPC(ctx, l, s.grpc)
}

// settle waits until views have all that they had before the service started, as far as that can be
// known.
func (s *Server) settle() {
	for _, heard := range []<-chan struct{}{s.host.Views.Settled, s.hosts.Looked()} {
		select {
		case <-heard:
		case <-s.stopping.Done():
			return
		}
	}
	close(s.settled)
}

// StreamAggregatedResources is the protocol of the state of the world.
func (s *Server) StreamAggregatedResources(ss discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(ss, false)
}

// DeltaAggregatedResources is the protocol of differences.
func (s *Server) DeltaAggregatedResources(ss discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(ss, true)
}

func receive(ss grpc.ServerStream, delta bool) (r *request, node []byte, err error) {
	var raw rawgrpc.Received
	if err := ss.RecvMsg(&raw); err != nil {
		return nil, nil, err
	}
	return decode(raw.Bytes, delta)
}

// serve serves one stream.
func (s *Server) serve(ss grpc.ServerStream, delta bool) error {
	s.running.Add(1)
	defer s.running.Done()
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	defer context.AfterFunc(s.stopping, func() { end(context.Cause(s.stopping)) })()
	first, who, err := s.greet(ctx, ss, delta)
	if err != nil {
		return err
	}
	who.delta = delta
	st := &stream{s: s, delta: delta, client: who, key: hubKey{gateway: who.gateway, nameless: who.nameless}, wake: make(chan struct{}, 1)}
	before := 0 // bytes of the last message, which gRPC may still be sending
	st.send = func(m encoded) error {
		timeout := stallTimeout * time.Duration(1+before/maxResponse)
		before = len(m)
		defer time.AfterFunc(timeout, func() { s.hangup(ss.Context(), timeout) }).Stop()
		return ss.SendMsg(m)
	}
	if err := s.clients.add(st); err != nil {
		s.host.Tell.Often.Warn("xds streams", "refused an xDS client", "remote", remote(ctx), "err", err)
		return err
	}
	defer s.clients.remove(st)
	own, stop := s.own(&who)
	defer stop()
	has, _ := own()
	st.open(has)
	defer st.close()
	s.running.Go(func() {
		end(st.read(first, func() (*request, error) {
			r, _, err := receive(ss, delta)
			return r, err
		}))
	})
	if err := st.run(ctx, own); ctx.Err() == nil {
		return err
	}
	return edge.StreamError(ctx)
}

// greet takes the first request, which says who the client is.
func (s *Server) greet(ctx context.Context, ss grpc.ServerStream, delta bool) (*request, client, error) {
	type arrival struct {
		r    *request
		node []byte
		err  error
	}
	arrived := make(chan arrival, 1)
	s.running.Go(func() {
		r, node, err := receive(ss, delta)
		arrived <- arrival{r, node, err}
	})
	late := time.NewTimer(nodeTimeout)
	defer late.Stop()
	var first arrival
	select {
	case first = <-arrived:
	case <-late.C:
		return nil, client{}, status.Errorf(codes.DeadlineExceeded, "xds: no request came within %s", nodeTimeout)
	case <-ctx.Done():
		return nil, client{}, edge.StreamError(ctx)
	}
	if first.err != nil {
		return nil, client{}, first.err
	}
	node, err := decodeNode(first.node)
	if err != nil {
		return nil, client{}, err
	}
	who, err := s.clientOf(ctx, node)
	if err != nil { // some clients keep it to themselves
		s.host.Tell.Often.Warn("xds node", "refused an xDS client", "remote", remote(ctx), "err", err)
	}
	return first.r, who, err
}

// hangup ends the connection of a client that reads nothing: the end of its stream alone would
// wait behind what it has not read.
func (s *Server) hangup(ctx context.Context, after time.Duration) {
	if p, ok := peer.FromContext(ctx); ok {
		s.host.Tell.Often.Warn("xds stalled", "closed the connection of an xDS client that does not read", "remote", remote(ctx), "after", after)
		s.listener.Hangup(p.Addr)
	}
}

func remote(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// clientOf is who a stream is from: the app of its certificate, which its node id must not
// contradict. Without certificates the node id alone says it.
func (s *Server) clientOf(ctx context.Context, node *corev3.Node) (client, error) {
	named := node.GetId()
	app, err := nodeApp(named)
	id, known := identity.FromContext(ctx)
	switch {
	case known && named == "":
		app = id.App
	case known && (err != nil || app != id.App):
		return client{}, status.Errorf(codes.PermissionDenied,
			"xds: the node id is %q, and the certificate is that of %s; write \"id\": %q into the bootstrap", catalog.Printable(short(named)), id.App, id.App.String())
	case !known && err != nil:
		return client{}, status.Errorf(codes.InvalidArgument, "xds: node id: %v; write \"id\": \"namespace/app-id\" into the bootstrap", err)
	}
	return client{app: app, node: short(named), gateway: slices.Contains(s.gateways, app), nameless: sendsNoName(node), program: short(node.GetUserAgentName() + " " + node.GetUserAgentVersion()), since: time.Now()}, nil
}

// namelessKey in the metadata of a node says, if true, that the client sends no server name.
const namelessKey = "isthmus.dev/no-server-name"

func sendsNoName(node *corev3.Node) bool {
	return node.GetMetadata().GetFields()[namelessKey].GetBoolValue()
}

// nodeApp is the app of a node id: namespace/app-id, and more behind another slash.
func nodeApp(id string) (catalog.App, error) {
	if parts := strings.SplitN(id, "/", 3); len(parts) == 3 {
		id = parts[0] + "/" + parts[1]
	}
	return catalog.ParseApp(short(id))
}

func short(s string) string {
	return strings.Clone(catalog.Clip(strings.TrimSpace(s), maxWords)) // which may be a small part of a long text
}

// follow is how the state of a view is followed, until stop. There is no state before the first,
// and after the end of an app's own view.
func (s *Server) follow(key hubKey) (follow func() (state, changes), stop func()) {
	if key.gateway {
		return func() (state, changes) {
			table, _, changed := s.host.Views.Topology.Gateway().Follow()
			if table == nil {
				return nil, changes{changed}
			}
			return &gatewayState{gatewayMaker: s.gateway, table: table}, changes{changed}
		}, func() {}
	}
	view, stop := s.host.Views.Topology.FollowOpen, func() {}
	if key.app != (catalog.App{}) {
		sub := s.host.Views.Topology.Subscribe(key.app)
		view, stop = sub.FollowOwn, sub.Close
	}
	return func() (state, changes) {
		v, changed := view()
		waits := changes{changed}
		var nameless *catalog.Gateways
		if key.nameless {
			nameless, _, waits[1] = s.host.Views.Topology.Clusters().Follow()
		}
		addresses, _, newer := s.hosts.Published().Follow()
		waits[2] = newer
		if v == nil || key.nameless && nameless == nil {
			return nil, waits
		}
		return &appState{s.maker, v, nameless, known{addresses, newer}}, waits
	}, stop
}

// own follows whether an app has a view of its own, until stop.
func (s *Server) own(who *client) (own func() (bool, <-chan struct{}), stop func()) {
	if who.gateway {
		return func() (bool, <-chan struct{}) { return false, nil }, func() {}
	}
	sub := s.host.Views.Topology.Subscribe(who.app)
	return sub.Owns, sub.Close
}

func (s *Server) trusted() []identity.Trusted {
	if s.pair == nil {
		return nil
	}
	return []identity.Trusted{s.pair.Trusted()}
}
