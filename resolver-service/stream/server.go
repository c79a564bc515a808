// Package stream is the gRPC service Resolver: it streams each sidecar its app's view,
// first whole and then as differences, and registers it as an instance for as long as
// its stream lives.
//
// Each stream has one goroutine that follows the app's view and one that reads. For
// each stream only the view that was sent last is kept, and compared with the newest
// one when the client has room: a slow client skips revisions, and nothing queues up
// for it.
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
	"github.com/isthmus-mesh/isthmus/resolver-service/budget"
	"github.com/isthmus-mesh/isthmus/resolver-service/destination"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/throttle"
)

// Config is what a Server can be told. The zero Config works.
type Config struct {
	// Operators are the apps that may ask for the decisions of others.
	Operators []catalog.App
	// Snapshot is the file that keeps the registered instances over a restart of the
	// service. Without one, a restart withdraws every instance until its sidecar is
	// back. One of several replicas has none: its instances may be with another by now.
	Snapshot string
	// Source is the IP address that a stream comes from, where it can't be taken from its
	// connection: in tests and benchmarks, whose sidecars of many hosts are one process. claimed
	// is the address that it registers; invalid for none. Nil: that of the connection.
	Source func(ctx context.Context, claimed netip.Addr) netip.Addr
	// Delegates may register instances from elsewhere.
	Delegates []Delegate
	// MaxInstances is how many instances of one app one source may register at a time, and
	// MaxStreams how many streams of that app it may have that register no instance, or the
	// same. 0 means DefaultMaxInstances and DefaultMaxStreams.
	MaxInstances int
	MaxStreams   int
	// Destinations are the rules for the addresses of instances.
	Destinations *destination.Rules
	// Share tells other replicas what registers here; nil where there are none, or where
	// all of them learn of instances elsewhere.
	Share Sharer
	// Gone tells whether an instance of the former life is gone for certain. It is called by
	// many goroutines, and returns when ctx ends. Nil: nobody knows.
	Refuses func(ctx context.Context, address netip.AddrPort) bool
	// Settle is how long an instance of the former life stands without its sidecar
	// having come back, after the first that did. 0 means DefaultSettle.
	RejoinTimeout time.Duration
	// Settled is closed once views have what peers and sidecars that were here before are
	// to tell; nil: they have it from the start. Until then views are provisional. Who has
	// no other is sent them; a client that has a view from before keeps it, since the new
	// one would lack what the service knew before it was started again.
	Settled <-chan struct{}
	// Peer says how the resolver service of a cluster is heard, for operators; nil:
	// nothing is said.
	Peer func(cluster string) string
	// Refute is told that callers agree that they don't reach a cluster, in words, and, without
	// words, that they do no more. It must not wait. Nil: nobody is told.
	Unreachable func(cluster, why string)
	// HelloTimeout is how long a client may take for its first message. 0 means
	// DefaultHelloTimeout.
	HelloTimeout time.Duration
	// MaxKnown is how many entries a hello may name. 0 means DefaultMaxKnown.
	MaxKnown int
	// StallTimeout is how long a client may take nothing while there is something for it.
	// 0 means DefaultStallTimeout.
	StallTimeout time.Duration
	// Hangup closes the connection of a client that takes nothing, by the address that gRPC
	// has of it. It must not wait. Nil: such a client's stream ends when it reads.
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
	if c.StallTimeout <= 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	return c
}

// MaxRequestBytes is the longest message that the server takes: a hello with as many known
// entries as clients name.
const MaxRequestBytes = 1 << 20

// Bytes that all streams together may take, and a client: an app, or an address where apps
// have no certificates.
const (
	helloBytes    = 4 * MaxRequestBytes // for each first message that is being read
	hellosTotal   = 32 * helloBytes
	hellosShare   = hellosTotal / 4
	knownTotal    = 64 << 20 // of known entries that are held
	knownShare    = knownTotal / 4
	messagesTotal = 256 << 20 // of messages longer than uncounted that are on their way
	messagesShare = messagesTotal / 4
)

// handshakeTimeout is how long a client may take from connecting to its HTTP/2 settings.
const handshakeTimeout = 5 * time.Second

// UserTimeout is what a listener should set as TCP_USER_TIMEOUT: as long as gRPC waits for the
// answer to a ping.
const UserTimeout = 4 * time.Second

// maxStreams is how many calls a client may make at once on a connection. A sidecar makes one.
const maxStreams = 16

// ServerOptions are what a gRPC server that has this service must be made with:
// clients that die silently are noticed within 10 s, and a stream costs little
// memory.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: UserTimeout, MaxConnectionIdle: time.Minute}),
		// Clients ping every 10 s; see nameresolution.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 4 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(MaxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.WriteBufferSize(8 << 10),
		grpc.ReadBufferSize(2 << 10),
		// Windows that don't grow: measuring how far they might would cost a ping for
		// every message. They are what a client can have the service hold that it does not read.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(128 << 10),
	}
}

// Server is the service Resolver. Register it with a gRPC server that was made with
// [ServerOptions], and have [Server.Run] run beside it.
type Server struct {
	pb.UnsafeResolverServer

	cfg       Config
	topology  *topology.Topology
	registry  *registry
	evidence  *evidence
	limiter   streamLimiter
	snapshot  *snapshotFile
	metrics   *metrics
	log       *slog.Logger
	throttled *throttle.Log  // for lines that clients cause
	hellos    *budget.Budget // first messages that are being read
	known     *knownSets
	messages  *budget.Budget // long messages on their way

	stopping context.Context // ends, with a cause, when streams must
	stop     context.CancelCauseFunc
	settling context.Context // ends once the service has settled
	settle   context.CancelFunc

	closing sync.Mutex // guards ended, and users against Wait
	ended   bool
	running sync.WaitGroup // streams and their readers

	restoring sync.Mutex
	restored  chan struct{} // closed once the former life's instances are published

	latest atomic.Pointer[prepared] // the message that was made last
}

// linesEvery is how often a client can cause one and the same line of the log.
const logInterval = 10 * time.Second

// errStopping ends the streams of a service that stops. Clients keep what they have
// and come back.
var errStopping = status.Error(codes.Unavailable, "the resolver service is stopping; come back")

// New makes a server of the views of t, and starts nothing.
func New(cfg Config, t *topology.Topology, reg prometheus.Registerer, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, topology: t, registry: newRegistry(t, cfg.Share, cfg.RejoinTimeout, log), log: log, restored: make(chan struct{}), limiter: streamLimiter{open: map[appSource]map[string]int{}}}
	s.evidence = newEvidence(cfg.Unreachable)
	s.throttled = throttle.New(log, logInterval)
	s.hellos, s.messages = budget.New(hellosTotal, hellosShare), budget.New(messagesTotal, messagesShare)
	s.known = newKnownSets(budget.New(knownTotal, knownShare))
	s.snapshot = &snapshotFile{path: cfg.Snapshot, rules: cfg.Destinations, log: log}
	var err error
	if s.metrics, err = newMetrics(reg, s.registry); err != nil {
		return nil, err
	}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	s.settling, s.settle = context.WithCancel(context.Background())
	if cfg.Settled == nil {
		s.settle()
	}
	return s, nil
}

// Instances is how many instances are registered, those of before a restart included.
func (s *Server) Instances() int { return int(s.registry.count.Load()) }

// Restore publishes the instances that the service's former life has left. Call it once
// the topology runs, and before it has its objects or anything listens: then nobody is
// served a view without them. If nobody did, Run does.
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

// Run registers instances until ctx ends. Then it saves them, ends all streams and
// waits for them: a service that stops withdraws nobody, since the sidecars will come
// back to the next one. The topology must run until Run has returned.
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

// ignoreEnd is err, unless it only says that ctx has ended.
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

// enter counts a stream with its reader in, unless the service stops. Each of both
// calls users.Done.
func (s *Server) enter() bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.ended {
		return false
	}
	s.running.Add(2)
	return true
}
