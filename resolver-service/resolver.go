package resolverservice

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/answers"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects/analysis"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
)

// resolver is the edge of sidecars and operators: streams, objects, inventory and status on one
// listener.
type resolver struct {
	listener *bounded.Listener // nil: sidecars are not served
	access   *authz.Authorizer
	metrics  *admin.Metrics
	stream   *stream.Server
	objects  *objects.Server
	register func(*grpc.Server)

	grpc       *grpc.Server      // of sidecars and operators
	trusted    *grpc.Server      // of operators; nil: grpc is for them, too
	local      *grpc.Server      // of operators at listen.operator
	dispatcher *authz.Dispatcher // from grpc to trusted
	streams    atomic.Int64      // of sidecars
}

// What calls of operators may be: "isthmus apply" sends all objects in one message.
const (
	maxTrustedRequest = 16 << 20
	maxTrustedStreams = 64
)

func (s *Service) buildResolver() (err error) {
	r := &resolver{access: s.access, metrics: s.metrics}
	s.resolver = r
	if l := s.listeners.TCP("resolver"); l != nil {
		r.listener = s.connections.Bound("resolver", l, s.cfg.Resolver.bounds(s.listeners.Bounds()))
	}
	cfg := stream.Config{
		Operators: s.access.Operators, Snapshot: s.cfg.snapshot(), Settled: s.sources.settled, Peer: s.links.Describe,
		Destinations: s.destinations, Delegates: s.cfg.delegates(), Clock: s.sources.clock, Source: s.cfg.source, Events: s.events.Logger(),
		Refusal: s.feed.Refusal, Roots: s.identity.PeerRoots, Alone: s.alone,
		Hangup: r.hangup, Unreachable: s.links.SetUnreachable, Calls: s.callReport, Gone: s.calling.Gone, Went: s.calling.Went, Cluster: s.cfg.Cluster, Faults: s.health.Faults,
	}
	if s.listeners.TCP("gateway") != nil { // otherwise it may have no way to instances, and can't tell
		cfg.Refuses = refuses
	}
	if s.sources.shared != nil {
		cfg.Share = s.sources.shared // and no Sharer that is not nil
	}
	if r.stream, err = stream.New(cfg, s.topology, s.registry, s.log); err != nil {
		return err
	}
	if s.cfg.Replicas != nil {
		s.cutOff = &peering.CutOff{Reach: s.links.Reach, TurnAway: r.stream.TurnAway}
		if shared := s.sources.shared; shared != nil {
			s.cutOff.Tell, s.cutOff.Others = shared.Hears, shared.Members
		}
	}
	r.objects = objects.NewServer(objects.Config{
		Cluster: s.cfg.Cluster, Domain: catalog.Domain(s.cfg.Domain), Store: s.cfg.Store.Name(), Service: analysis.Service{Listens: s.destinations.Listens, Absent: s.heard.Absent},
		PreferZone: s.cfg.preferZone(),
	}, s.store, s.feed, s.topology, s.log)
	if s.cfg.Replicas != nil {
		s.replicas = answers.NewReplicas(s.cfg.Replicas.Addresses, s.identity.ClientCredentials(identity.OneOf(identity.ServiceApp(s.cfg.Identity.Namespace, s.cfg.Cluster))))
	}
	inventory := &answers.Inventory{
		Topology: s.topology, Health: s.health, Calling: s.calling, Replicas: s.replicas, Stream: r.stream, Ring: s.events, Identity: s.identity, Writer: s.policyWriter, Stopping: r.stream.Stopping(),
	}
	s.checks = &answers.Checks{
		Inventory: inventory, Objects: r.objects, Store: s.store, Accounts: &s.accounts, Namespace: s.cfg.Identity.Namespace, Domain: catalog.Domain(s.cfg.Domain),
		Bundle: s.cfg.Identity.bundle(s.log), Zone: s.cfg.zone(net.DefaultResolver),
	}
	s.buildLink(inventory.Lacking)
	s.buildRotation(inventory)
	status := answers.Status{Now: s.status, Facts: s.checks.Facts, Files: answers.SupportFiles(s.cfg, s.registry, answers.Process{Version: s.cfg.Version, Started: s.started, OpenFiles: process.OpenFiles()})}
	r.register = func(server *grpc.Server) {
		v1alpha1.RegisterResolverServer(server, r.stream)
		v1alpha1.RegisterObjectsServer(server, r.objects)
		v1alpha1.RegisterInventoryServer(server, inventory)
		v1alpha1.RegisterActorsServer(server, &answers.Actors{Topology: s.topology, Access: s.access, Stopping: r.stream.Stopping()})
		v1alpha1.RegisterLinkServer(server, s.link)
		v1alpha1.RegisterRotationServer(server, s.rotation)
		v1alpha1.RegisterStatusServer(server, status)
	}
	r.buildServers(s.Addr("resolver"))
	return nil
}

// alone tells whether no other cluster has a Cluster object.
func (s *Service) alone() bool {
	clusters, _ := s.feed.Clusters().Load()
	return !slices.ContainsFunc(clusters, func(c *catalog.Cluster) bool { return c.Name != s.cfg.Cluster })
}

// callReport takes in what a sidecar tells of calls.
func (s *Service) callReport(app catalog.App, sidecar uint64, m *v1alpha1.CallReport, now time.Time) error {
	if err := s.health.Report(app, m, now); err != nil {
		return err
	}
	return s.calling.Report(app, sidecar, m, now)
}

// Defaults of the bounds of listen.resolver.
const (
	defaultConnections          = 20_000
	defaultConnectionsPerClient = 5_000
	maxHandshakes               = 2048 // at once
)

// bounds are those of the listener. However few connections there are, one client never has all, and
// neither have half-open ones.
func (c Resolver) bounds(of process.Bounds) bounded.Bounds {
	all := of.Of["resolver"]
	half := max(all/2, 1)
	b := bounded.Bounds{Max: all, PerClient: min(cmp.Or(c.MaxConnectionsPerClient, defaultConnectionsPerClient), half), Pending: min(maxHandshakes, half), UserTimeout: stream.UserTimeout}
	if c.MaxConnectionsPerClient > 0 && !slices.ContainsFunc(of.Reduced, func(e edge.Edge) bool { return e.Name == "resolver" }) {
		b.PerClient = c.MaxConnectionsPerClient
	}
	return b
}

func trustedOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxTrustedRequest), grpc.MaxConcurrentStreams(maxTrustedStreams)}
}

// buildServers makes the gRPC servers. Operators have one of their own, since they may send more
// than a sidecar. Without identities everybody is an operator.
func (r *resolver) buildServers(at net.Addr) {
	own := trustedOptions()
	creds := r.access.Identity.ServerCredentials(identity.Anyone)
	if r.access.Identity.Insecure() {
		r.grpc = r.newServer(authz.At(authz.AtResolver), creds, own...)
		return
	}
	r.dispatcher = authz.NewDispatcher(at)
	all, operators := r.access.SplitOperators(creds, r.dispatcher)
	r.trusted = r.newServer(authz.At(authz.AtResolver), operators, own...)
	r.grpc = r.newServer(authz.At(authz.AtResolver), all, grpc.InTapHandle(stream.NewCallLimiter().Tap))
}

// newServer makes a server of everything that listen.resolver serves, by the rules of a listener.
func (r *resolver) newServer(rules authz.Rules, creds credentials.TransportCredentials, own ...grpc.ServerOption) *grpc.Server {
	server := r.access.NewServer(rules, creds, append(own,
		grpc.ChainUnaryInterceptor(r.countLookup), grpc.ChainStreamInterceptor(r.countStream))...)
	r.register(server)
	return server
}

// countLookup counts lookups by outcome.
func (r *resolver) countLookup(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, req)
	if d, ok := answer.(*v1alpha1.Decision); ok && err == nil {
		r.metrics.Lookup(d.GetOutcome())
	}
	return answer, err
}

// countStream counts sidecars' streams.
func (r *resolver) countStream(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == v1alpha1.Resolver_Watch_FullMethodName {
		r.streams.Add(1)
		defer r.streams.Add(-1)
	}
	return handle(server, ss)
}

// hangup closes a client's connection, by the address that gRPC has of it.
func (r *resolver) hangup(client net.Addr) {
	if r.listener != nil {
		r.listener.Hangup(client)
	}
}

// part is the edge for those that start and stop it.
func (r *resolver) part() (edge.Part, error) {
	return edge.Part{Restore: r.stream.Restore, Run: edge.Together(r.stream.Run, r.serve)}, nil
}

// headStart is how long connections wait for the first identity. Without one each would
// fail in its handshake, and the client not know why.
const headStart = 2 * time.Second

// serve serves sidecars and operators until ctx ends.
func (r *resolver) serve(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, headStart)
	_ = r.access.Identity.Wait(first) // without one it serves all the same, and /readyz says so
	cancel()
	if r.trusted == nil {
		return edge.ServeGRPC(ctx, r.listener, r.grpc)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = r.trusted.Serve(r.dispatcher) }) // ends when it is stopped
	defer serving.Wait()
	return edge.ServeGRPC(ctx, r.listener, r.grpc, r.trusted)
}

// refuses tells whether a sidecar is gone for certain: its machine says that nobody listens
// there. No answer is no proof.
func refuses(ctx context.Context, address netip.AddrPort) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	conn.Close()
	return false
}
