package actors

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

// Bridge is the bridge of one namespace in one cluster.
type Bridge struct {
	internalv1.UnimplementedServiceInvocationServer

	cfg      *Config
	version  string
	log      *slog.Logger
	often    *throttle.Log // for lines that callers cause
	identity *identity.Source
	tracer   trace.Tracer
	metrics  *metrics

	dialer    *dial.Dialer
	resolver  *nameresolution.Resolver // set by Run, before anything is served
	placement *placement               // likewise

	view live.Value[*catalog.ActorView]

	ending context.Context // ends calls that outlast the bridge
	cut    context.CancelFunc

	mu    sync.Mutex
	peers map[string]*grpc.ClientConn // bridges of other clusters, by cluster
}

// New makes a bridge, and starts nothing.
func New(cfg *Config, version string, log *slog.Logger) (*Bridge, error) {
	who, err := cfg.Identity.Followed(log)
	if err != nil {
		return nil, err
	}
	source, err := identity.New(who, cfg.App(), log)
	if err != nil {
		return nil, err
	}
	b := &Bridge{
		cfg: cfg, version: version, log: log, often: throttle.New(log, throttle.Interval), identity: source,
		dialer: dial.New(log, trace.SpanFromContext, answerOf), peers: map[string]*grpc.ClientConn{},
	}
	b.ending, b.cut = context.WithCancel(context.Background())
	b.metrics = newMetrics(b)
	return b, nil
}

// answerOf reads the answer of an actor's app.
func answerOf(m any) (status int32, byGuard bool) {
	answer, _ := m.(*internalv1.InternalInvokeResponse)
	return dial.ReadAnswer(answer.GetStatus().GetCode(), answer.GetHeaders())
}

// Run runs the bridge until ctx ends, and then until the calls under way have ended.
func (b *Bridge) Run(ctx context.Context) error {
	provider, err := otlp.New(ctx, b.cfg.Tracing, b.cfg.Cluster, b.log)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		_ = provider.Shutdown(end) // it says so in the log
	}()
	b.tracer = provider.Tracer("github.com/isthmus-mesh/isthmus/components/actors")
	listener, err := net.Listen("tcp", b.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for sidecars and other bridges: %w; name another address in listen", err)
	}
	defer listener.Close()
	self := nameresolution.Instance{App: b.cfg.App(), Port: listener.Addr().(*net.TCPAddr).Port}
	if self.Address, err = b.cfg.reached(listener.Addr()); err != nil {
		return err
	}
	b.placement = newPlacement(b, net.JoinHostPort(self.Address, strconv.Itoa(self.Port)))
	// What calls under way need lasts until they have ended.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, running := errgroup.WithContext(serving)
	group.Go(func() error { return b.identity.Run(running) })
	group.Go(func() error { return b.follow(running) })
	group.Go(func() error { return b.observe(running) })
	group.Go(func() error {
		defer end()
		return b.run(ctx, running, listener, self)
	})
	return group.Wait()
}

// How long the bridge waits, when it ends, until nobody calls it any more, and then for calls under
// way.
const drainTimeout = 5 * time.Second

// run serves until ctx or running ends.
func (b *Bridge) run(ctx, running context.Context, listener net.Listener, self nameresolution.Instance) error {
	b.resolver = nameresolution.New(nameresolution.Options{
		Logger: b.log, Version: b.version, Runtime: "isthmus actors", Identity: b.identity,
		Made: b.dialer.Made, Tap: b.dialer.Tap, Health: b.placement.health,
	})
	configuration := map[string]any{"resolver": b.cfg.Resolver, "cluster": b.cfg.Cluster, "resolverNamespace": b.cfg.ResolverNamespace}
	if b.cfg.Advertise != "" {
		configuration["advertise"] = b.cfg.Advertise
	}
	if err := b.resolver.Init(ctx, configuration, self); err != nil {
		return err
	}
	defer b.resolver.Close()
	b.dialer.Use(onlyUnsent{b.resolver})
	defer b.dialer.Close()
	defer b.closePeers()

	server := grpc.NewServer(
		grpc.Creds(b.identity.ServerCredentials(identity.Anyone)), grpc.MaxRecvMsgSize(b.cfg.bodySize), grpc.MaxSendMsgSize(b.cfg.bodySize),
		grpc.MaxConcurrentStreams(maxCalls), grpc.ConnectionTimeout(10*time.Second),
		// Windows that grow by themselves cost a ping for each call.
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(connWindow), grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	internalv1.RegisterServiceInvocationServer(server, b)
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(listener, maxConnections)) }()
	following, leave := context.WithCancel(running)
	left := make(chan struct{})
	go func() {
		defer close(left)
		b.placement.run(following)
	}()
	b.log.Info("bridge for actors is running", "namespace", b.cfg.Namespace, "listen", listener.Addr().String(), "placement", b.cfg.Placement)
	var failed error
	select {
	case failed = <-served:
		served <- nil
		failed = fmt.Errorf("serve sidecars and other bridges: %w", failed)
	case <-ctx.Done():
	case <-running.Done():
	}
	b.end(running, server)
	leave()
	<-left
	<-served
	return failed
}

// end takes the bridge out of what others know, and lets calls under way end.
func (b *Bridge) end(ctx context.Context, server *grpc.Server) {
	limit, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var left sync.WaitGroup
	left.Go(func() { b.placement.leave(limit) })
	left.Go(func() { _ = b.resolver.Drain(limit) }) // it ends anyway
	left.Wait()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.GracefulStop()
	}()
	select {
	case <-ended:
	case <-time.After(drainTimeout):
		b.cut() // callers hear that their calls may have run, rather than lose the connection
		select {
		case <-ended:
		case <-time.After(time.Second):
			server.Stop()
			<-ended
		}
	}
}

// Bounds of what others may have open here. A call that finds none free waits at its caller.
const (
	maxCalls       = 1000 // on a connection
	maxConnections = 4096
	window         = 1 << 20 // bytes of a call that may be on their way
	connWindow     = 4 << 20 // of all calls of a connection
)

// dialOptions are those of each connection that the bridge makes for calls.
func (b *Bridge) dialOptions(expect func(identity.ID) error) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithNoProxy(), grpc.WithTransportCredentials(b.identity.ClientCredentials(expect)), grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(b.cfg.bodySize), grpc.MaxCallSendMsgSize(b.cfg.bodySize)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(connWindow),
	}
}

// onlyUnsent repeats no call that may have run: only its caller knows whether an actor may be called
// twice.
type onlyUnsent struct{ *nameresolution.Resolver }

// RetryCutOff is that of [dial.Resolver].
func (onlyUnsent) RetryCutOff() bool { return false }

// peer is the connection to the bridge of another cluster. Calls on it go as the view says.
func (b *Bridge) peer(ctx context.Context, cluster string, app catalog.App) (*grpc.ClientConn, error) {
	entry, err := b.resolver.Find(ctx, app)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if conn := b.peers[cluster]; conn != nil {
		return conn, nil
	}
	options := append(append(b.dialOptions(b.isBridge(cluster, app)), b.dialer.DialOptions()...), grpc.WithResolvers(b.dialer.Wrap(passthrough())))
	conn, err := grpc.NewClient("passthrough:///"+b.dialer.Name(entry), options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the bridge of cluster %s: %w", cluster, err)
	}
	conn.Connect() // which has the dialer take it over; its calls run on connections of the dialer's own
	b.peers[cluster] = conn
	return conn, nil
}

// isBridge authorizes the bridge of a cluster: of the trust domain that its Cluster object names.
func (b *Bridge) isBridge(cluster string, app catalog.App) func(identity.ID) error {
	return func(id identity.ID) error {
		view, _ := b.view.Load()
		other := view.Other(cluster)
		if other == nil {
			return fmt.Errorf("no Cluster object here is named %s any more", cluster)
		}
		if id.App != app || other.Domain != "" && other.Domain != id.TrustDomain {
			return fmt.Errorf("it is %s; want spiffe://%s/ns/%s/%s, the bridge of cluster %s", id, cmp.Or(other.Domain, "<any>"), app.Namespace, app.ID, cluster)
		}
		return nil
	}
}

func (b *Bridge) closePeers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.peers {
		conn.Close()
	}
}
