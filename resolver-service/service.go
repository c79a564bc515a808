package resolverservice

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/destination"
	"github.com/isthmus-mesh/isthmus/resolver-service/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/gateway"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/throttle"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

// Service is one resolver service. The parts are made by [Service.Run].
type Service struct {
	cfg       *Config
	log       *slog.Logger
	events    *events.Ring // has what the log has
	listeners map[string]net.Listener
	bounds    bounds // of the listeners

	addresses map[string]string       // of the listeners, as they are configured
	sockets   map[string]edge.Sockets // of edges that open their own, by edge
	before    *predecessor            // nil: none was there, or stops
	handing   sockets                 // for a successor

	started  time.Time
	stopping live.Value[bool]

	store    configstore.ReadWriter
	identity *identity.Source
	topology *topology.Topology
	// destinations are the rules for addresses, which all parts share.
	destinations *destination.Rules
	feed         *objects.Feed
	sources      sources
	settled      chan struct{} // closed by settle
	links        *peering.Links
	registry     *prometheus.Registry
	metrics      *admin.Metrics
	age          revisionAge

	stream   *stream.Server
	grpc     *grpc.Server // of sidecars and operators
	trusted  *grpc.Server // of operators; nil: grpc is for them, too
	handover *handover    // from grpc to trusted
	reading  *reading
	peers    *peering.Server
	peerGRPC *grpc.Server // of peers; nil: they are not served
	handed   *handover    // their connections, from the gateway
	gateway  *gateway.Gateway
	prober   *probe.Prober // holds all checks to one set of rules
	parts    []part        // the other edges, in the order of the table
	spans    *otlp.Provider
	calls    calls

	operators   []catalog.App
	connections *connections
	resolver    *bounded.Listener // nil: sidecars are not served
	often       *throttle.Log     // for lines that clients cause
}

// linesEvery is how often a client can cause one and the same line of the log.
const linesEvery = 10 * time.Second

// New makes a service, and starts nothing.
func New(cfg *Config, log *slog.Logger) *Service {
	ring := events.New()
	log = ring.Tee(log)
	return &Service{cfg: cfg, log: log, events: ring, often: throttle.New(log, linesEvery), settled: make(chan struct{})}
}

// Run makes a service and runs it until ctx ends.
func Run(ctx context.Context, cfg *Config, log *slog.Logger) error { return New(cfg, log).Run(ctx) }

// Run runs every part that the configuration asks for until ctx ends or a part fails.
// Then it ends them in order: it reports not ready, lets the gateway's connections
// finish, ends the streams, and stops the rest. Where there are other replicas, the
// streams end first. A service runs once.
func (s *Service) Run(ctx context.Context) (err error) {
	if err := s.Listen(); err != nil {
		return err
	}
	defer closeAll(s.listeners) // most are closed by then
	defer s.closeSockets()
	if s.before != nil {
		defer s.before.part()
		if err := s.before.release(); err != nil {
			return err
		}
	}
	release, err := s.cfg.holdDataDir(s.log)
	if err != nil {
		return err
	}
	release = sync.OnceValue(release)
	defer func() { err = errors.Join(err, release()) }()
	s.awaits()
	s.started = time.Now()
	if err := s.build(ctx); err != nil {
		return errors.Join(err, s.closeStores())
	}
	failed := make(chan error, 1)
	core, edges, ingress := newStage(failed), newStage(failed), newStage(failed)
	if err := s.startCore(ctx, core); err != nil {
		core.end()
		if ctx.Err() != nil {
			err = nil // told to end before it had begun
		}
		return errors.Join(err, s.closeStores(), s.closeSpans())
	}
	s.startEdges(edges, ingress)
	s.log.Info("resolver service is running", append([]any{"version", s.cfg.Version}, s.addressArgs()...)...)
	select {
	case <-ctx.Done():
		s.log.Info("shutting down; a second signal ends at once")
	case err = <-failed:
		// Said here as well as returned: the connections that run may take a while.
		s.log.Error("a part has failed; shutting down", "err", err)
	}
	s.stopping.Store(true)
	rest := sync.OnceValue(func() error { // all but the gateway
		edges.end()
		core.end()
		return s.closeStores()
	})
	if err == nil {
		s.handOver(s.gateway.BeginDrain(), func() { err = errors.Join(err, rest(), release()) })
	}
	s.handing.close()
	ingress.cancel()
	s.peers.Leave(restartWithin) // their connections come through the gateway, and would not end otherwise
	if s.cfg.Replicas != nil {
		edges.end() // sidecars go to another replica at once, and need not wait for the gateway
	}
	ingress.end()
	return errors.Join(err, rest(), s.closeSpans())
}

// restartWithin is for how long peers are told that what this service said holds where it stops:
// enough for one that is started in its place.
const restartWithin = time.Second

// build makes every part, from the bottom up.
func (s *Service) build(ctx context.Context) (err error) {
	if s.spans, err = otlp.New(ctx, s.cfg.Tracing, s.cfg.Cluster, s.log); err != nil {
		return err
	}
	self := identity.ServiceApp(s.cfg.Identity.Namespace, s.cfg.Cluster)
	if s.identity, err = identity.New(s.cfg.Identity.Config, self, s.log); err != nil {
		return err
	}
	if err := s.cfg.announceNewStore(s.log); err != nil {
		return err
	}
	if s.store, err = s.cfg.Store.Open(configstore.Scope{}, s.log); err != nil {
		return err
	}
	domain := catalog.Domain(s.cfg.Domain)
	s.destinations, s.operators = s.rules(), s.cfg.operators()
	s.topology = topology.New(topology.Config{
		Cluster: s.cfg.Cluster, Network: s.cfg.Network, Domain: domain, Open: s.cfg.DefaultSelection == selectLocal,
		PreferZone: s.cfg.Locality == catalog.PreferZone.String(),
		Kubernetes: catalog.Kubernetes(s.cfg.DNS.Kubernetes), Destinations: s.destinations,
	}, s.log)
	s.feed = objects.NewFeed(s.store, s.topology, s.log)
	peers := peering.Config{Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace, Domain: domain}
	s.links = peering.NewLinks(peers, s.topology, s.identity, s.log)
	s.peers = peering.NewServer(peers, s.topology, s.log)
	peering.Join(s.links, s.peers)
	if err := s.buildSources(); err != nil {
		return err
	}
	return s.buildEdges()
}

func (s *Service) buildEdges() (err error) {
	s.registry = prometheus.NewRegistry()
	if s.metrics, err = admin.NewMetrics(s.registry, s.status, s.age.since); err != nil {
		return err
	}
	if s.connections, err = newConnections(s.registry); err != nil {
		return err
	}
	if l := s.listeners["resolver"]; l != nil {
		s.resolver = s.connections.bound("resolver", l, bounded.Bounds{
			Max: s.bounds.of["resolver"], PerClient: s.bounds.resolverPerClient, Pending: s.bounds.handshakes, UserTimeout: stream.UserTimeout,
		})
	}
	s.stream, err = stream.New(stream.Config{
		Operators: s.operators, Snapshot: s.cfg.snapshot(), Refuses: s.gone(), Settled: s.settled, Share: s.share(), Peer: s.links.Describe,
		Destinations: s.destinations, Delegates: s.cfg.delegates(), Clock: s.sources.clock, Source: s.cfg.source, Events: s.events.Logger(),
		Hangup: s.hangup, Unreachable: s.links.SetUnreachable,
	}, s.topology, s.registry, s.log)
	if err != nil {
		return err
	}
	s.reading = newReading()
	s.buildGRPC()
	g := s.cfg.Gateway
	s.gateway, err = gateway.New(gateway.Config{
		Table: s.topology.Gateway(), Logger: s.log, Metrics: s.registry, Plaintext: g.Plaintext, Peers: s.buildPeers(), Check: s.destinations.Exported,
		HelloTimeout: g.HelloTimeout, DialTimeout: g.DialTimeout, DrainTimeout: g.DrainTimeout, StallTimeout: g.StallTimeout, AnswerTimeout: g.AnswerTimeout,
		MaxConnections: s.bounds.of["gateway"], MaxPerSource: min(g.MaxPerSource, s.bounds.of["gateway"]), MaxHellos: g.MaxHellos,
	})
	if err != nil {
		return err
	}
	return s.buildParts()
}

func (s *Service) view(app catalog.App) (*catalog.View, bool) {
	sub := s.topology.Subscribe(app)
	defer sub.Close()
	return sub.View()
}

// closeStores lets go of where the service keeps things, and reads them from.
func (s *Service) closeStores() error {
	if s.store == nil {
		return nil
	}
	return errors.Join(s.closeSources(), s.store.Close())
}

// spansTimeout is how long the last spans may take to be sent.
const spansTimeout = 3 * time.Second

func (s *Service) closeSpans() error {
	ctx, cancel := context.WithTimeout(context.Background(), spansTimeout)
	defer cancel()
	if err := s.spans.Shutdown(ctx); err != nil {
		s.log.Warn("the last spans are lost", "err", err) // not a reason to fail
	}
	return nil
}
