// Package stream is the gRPC service Resolver. It streams to each sidecar its app's view, first
// whole and then as differences. It registers the sidecar as an instance for as long as its
// stream lives.
//
// Each stream has one goroutine that follows the app's view and one that reads. For each stream,
// only the view that was sent last is kept. It is compared with the newest view once the client
// has room. A slow client skips revisions, and nothing queues up for it.
package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/rawgrpc"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/budget"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Config configures a Server. The zero Config works.
type Config struct {
	// Operators are the apps that may ask for the decisions of other apps.
	Operators []catalog.App
	// Snapshot is the file that keeps the registered instances over a restart of the service.
	// Without one, a restart withdraws each instance until its sidecar reconnects. Replicas have
	// no snapshot, since a sidecar may be at another replica by then.
	Snapshot string
	// Source returns the source IP address of a stream if its connection does not tell: in tests
	// and benchmarks, where one process stands for sidecars of many hosts. claimed is the address
	// that the stream registers, invalid for none. Nil means the address of the connection.
	Source func(ctx context.Context, claimed netip.Addr) netip.Addr
	// Delegates may register instances from elsewhere.
	Delegates destination.Delegates
	// MaxInstances is how many instances of one app one source may register at a time, and
	// MaxStreams how many streams of that app it may have that register no instance, or the
	// same. 0 means DefaultMaxInstances and DefaultMaxStreams.
	MaxInstances int
	MaxStreams   int
	// Destinations are the rules for the addresses of instances.
	Destinations *destination.Rules
	// Clock gives registrations their times; nil: one of the server's own.
	Clock *topology.Clock
	// Share tells other replicas what registers here; nil where there are none, or where
	// all of them learn of instances elsewhere.
	Share Sharer
	// Refuses tells whether connections to a restored instance are refused, so that it is
	// certainly gone. It is called concurrently, and returns when ctx ends. Nil: no instance is
	// checked.
	Refuses func(ctx context.Context, address netip.AddrPort) bool
	// RejoinTimeout is how long a restored instance stays without its sidecar, from the first
	// sidecar that reconnects. 0 means DefaultRejoinTimeout.
	RejoinTimeout time.Duration
	// Settled is closed once views have what peers and known sidecars will report. Nil means that
	// views have it from the start. Until then views are provisional. A client without a view
	// gets the provisional one. A client with a view keeps its own, because the provisional one
	// may lack what the service knew before it restarted.
	Settled <-chan struct{}
	// Refusal returns why the newest version of an object can't be used, or nil, and whether an
	// older one is in force. Alone tells whether there is no Cluster object. Either may be nil.
	Refusal func(catalog.Key) (why error, inForce bool)
	Alone   func() bool
	// Peer describes the link to a cluster, for operators; nil: no description.
	Peer func(cluster string) string
	// Roots returns the SHA-256 of each root of a cluster, in hexadecimal; none if they are those of
	// this cluster. Nil: of none.
	Roots func(cluster string) []string
	// Events is told of sidecars that come and go, also where they are many; nil: nobody is.
	Events *slog.Logger
	// Unreachable is called when callers agree that they don't reach a cluster, with a reason,
	// and with an empty reason once they no longer do. It must not block. Nil: no call.
	Unreachable func(cluster, why string)
	// Calls takes in what sidecars of an app report of calls; nil: nobody does. Its error says that a
	// report breaks the rules, and ends the stream.
	Calls func(app catalog.App, sidecar uint64, m *pb.CallReport, now time.Time) error
	// Went returns how many calls of a caller have lately gone to each cluster; nil: nobody knows.
	Went func(caller, callee catalog.App, now time.Time) map[string]uint64
	// Cluster is the name of this cluster, for single calls.
	Cluster string
	// Gone is told of sidecars that have left. Nil stands for nobody.
	Gone func(app catalog.App, sidecar uint64)
	// Faults returns all that is wrong with calls; nil: nobody knows.
	Faults func(now time.Time) []*pb.CallFault
	// HelloTimeout bounds the wait for a client's first message. 0 means DefaultHelloTimeout.
	HelloTimeout time.Duration
	// MaxKnown bounds the known entries of a hello. 0 means DefaultMaxKnown.
	MaxKnown int
	// StallTimeout is how long a client may read nothing while a message waits for it. 0 means
	// DefaultStallTimeout.
	StallTimeout time.Duration
	// Hangup closes the connection of a client that does not read, by the address that gRPC has
	// for it. It must not block. Nil: the client's stream ends when the client reads again.
	Hangup func(client net.Addr)
}

// The defaults of a Config.
const (
	DefaultRejoinTimeout = 15 * time.Second
	DefaultHelloTimeout  = 10 * time.Second
	DefaultMaxKnown      = 20_000 // as nameresolution
	DefaultStallTimeout  = 20 * time.Second
	DefaultMaxInstances  = 64
	DefaultMaxStreams    = 8
)

func (c Config) withDefaults() Config {
	if c.RejoinTimeout <= 0 {
		c.RejoinTimeout = DefaultRejoinTimeout
	}
	if c.HelloTimeout <= 0 {
		c.HelloTimeout = DefaultHelloTimeout
	}
	if c.MaxKnown <= 0 {
		c.MaxKnown = DefaultMaxKnown
	}
	if c.MaxInstances <= 0 {
		c.MaxInstances = DefaultMaxInstances
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = DefaultMaxStreams
	}
	if c.Events == nil {
		c.Events = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = &topology.Clock{}
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	return c
}

// MaxRequestBytes is the longest message that the server accepts: a hello with as many known
// entries as clients send.
const MaxRequestBytes = 1 << 20

// Memory limits, for all streams together and for one client. A client is an app, or an address
// if apps have no certificates.
const (
	helloBytes    = 4 * MaxRequestBytes // for each first message that is being read
	hellosTotal   = 32 * helloBytes
	hellosShare   = hellosTotal / 4
	knownTotal    = 64 << 20 // for known entries
	knownShare    = knownTotal / 4
	messagesTotal = 256 << 20 // for unsent messages longer than uncountedBytes
	messagesShare = messagesTotal / 4
)

// handshakeTimeout is how long a client may take from connecting to its HTTP/2 settings.
const handshakeTimeout = 5 * time.Second

// UserTimeout is the TCP_USER_TIMEOUT that a listener should set: how long gRPC waits for the
// answer to a ping.
const UserTimeout = 4 * time.Second

// maxStreams bounds the concurrent calls on a connection. A sidecar makes one.
const maxStreams = 16

// ServerOptions are the options for the gRPC server of this service. It notices within 10 s that
// a client has died silently, and a stream costs little memory.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: UserTimeout, MaxConnectionIdle: time.Minute}),
		// Clients ping every 10 s; see nameresolution.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 4 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(MaxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		rawgrpc.ServerCodec(),
		grpc.WriteBufferSize(8 << 10),
		grpc.ReadBufferSize(0), // clients say little, and TLS has a buffer of its own
		// Fixed windows: measuring the bandwidth would cost a ping for every message. They bound
		// the unread bytes of a client that this service buffers.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(128 << 10),
	}
}

// Server is the service Resolver. Register it with a gRPC server made with [ServerOptions], and
// run [Server.Run] beside it.
type Server struct {
	pb.UnsafeResolverServer

	cfg       Config
	topology  *topology.Topology
	registry  *registry
	evidence  *evidence
	limiter   streamLimiter
	calls     callLog
	away      *turnAway
	snapshot  *snapshotFile
	metrics   *metrics
	log       *slog.Logger
	throttled *throttle.Log  // for log lines that clients cause
	hellos    *budget.Budget // for first messages that are being read
	known     *knownSets
	messages  *budget.Budget // for long unsent messages

	stopping context.Context // ends, with a cause, when streams must end
	stop     context.CancelCauseFunc
	settling context.Context // ends once Config.Settled is closed
	settle   context.CancelFunc

	taps    taps
	closing sync.Mutex // guards ended, and running against Wait
	ended   bool
	running sync.WaitGroup // streams and their readers

	restoring sync.Mutex
	restored  chan struct{} // closed once the restored instances are published

	latest atomic.Pointer[prepared] // the newest encoded message
}

// errStopping ends the streams of a service that stops. Clients keep their views and reconnect.
// Stopping ends, with a cause, when the server ends its streams.
func (s *Server) Stopping() context.Context { return s.stopping }

var errStopping = status.Error(codes.Unavailable, "the resolver service is stopping; reconnect")

// New makes a server for the views of t. It starts nothing.
func New(cfg Config, t *topology.Topology, reg prometheus.Registerer, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, topology: t, registry: newRegistry(t, cfg.Share, cfg.Clock, cfg.RejoinTimeout, log), log: log, restored: make(chan struct{}), limiter: streamLimiter{open: map[appSource]map[string]int{}}}
	s.away = newTurnAway()
	s.evidence = newEvidence(cfg.Unreachable)
	s.throttled = throttle.New(log, throttle.Interval)
	s.hellos, s.messages = budget.New(hellosTotal, hellosShare), budget.New(messagesTotal, messagesShare)
	s.known = newKnownSets(budget.New(knownTotal, knownShare))
	s.snapshot = &snapshotFile{path: cfg.Snapshot, rules: cfg.Destinations, log: log}
	var err error
	if s.metrics, err = newMetrics(reg, s); err != nil {
		return nil, err
	}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	s.settling, s.settle = context.WithCancel(context.Background())
	if cfg.Settled == nil {
		s.settle()
	}
	return s, nil
}

// Instances is how many instances are registered, including restored ones.
func (s *Server) Instances() int { return int(s.registry.count.Load()) }

// Restore publishes the instances of the snapshot. Call it once the topology runs, and before it
// has objects or anything listens, so that no view lacks them. Run calls it otherwise.
func (s *Server) Restore(ctx context.Context) error {
	s.restoring.Lock()
	defer s.restoring.Unlock()
	select {
	case <-s.restored:
		return nil
	default:
	}
	former, revision := s.snapshot.load()
	former = s.withoutRefusing(ctx, former)
	if err := s.topology.AtLeast(ctx, catalog.App{}, revision); err != nil {
		return fmt.Errorf("restore instances: %w", err)
	}
	if err := s.registry.restore(ctx, former); err != nil {
		return fmt.Errorf("restore instances: %w", err)
	}
	close(s.restored)
	return nil
}

// Run registers instances until ctx ends. Then it saves them, ends all streams and waits for
// them. A stopping service withdraws no instance, since the sidecars will reconnect to the next
// one. The topology must run until Run has returned.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	if err := s.Restore(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	saving, saved := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error {
		select {
		case <-s.cfg.Settled:
			s.settle()
		case <-ctx.Done():
		}
		return nil
	})
	group.Go(func() error { return s.evidence.run(ctx) })
	group.Go(func() error { return s.snapshot.follow(saving, &s.registry.published, s.topology.Revision) })
	group.Go(func() error {
		defer saved() // only now is there nothing left to save
		return s.registry.run(ctx)
	})
	return ignoreEnd(ctx, group.Wait())
}

// ignoreEnd returns err, or nil if err only says that ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// close ends all streams and waits for them.
func (s *Server) close() {
	s.closing.Lock()
	s.ended = true
	s.closing.Unlock()
	s.stop(errStopping)
	s.running.Wait()
}

// enter counts a stream and its reader, unless the service stops. Each calls running.Done.
func (s *Server) enter() bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.ended {
		return false
	}
	s.running.Add(2)
	return true
}
