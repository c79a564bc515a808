package resolverservice

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/invitation"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies/keeper"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/destination"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tracing"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

// Service is one resolver service. The parts are made by [Service.Run].
type Service struct {
	cfg       *Config
	log       *slog.Logger
	often     *throttle.Log // for lines that clients cause
	events    *events.Ring  // has what the log has
	started   time.Time
	stopping  live.Value[bool]
	listeners *listeners

	spans    *otlp.Provider
	identity *identity.Source
	access   *authorizer
	store    configstore.ReadWriter
	// storeIdentity tells replicas of this cluster from another cluster of its name.
	storeIdentity storeIdentity
	topology      *topology.Topology
	// destinations are the rules for addresses, which all parts share.
	destinations *destination.Rules
	feed         *objects.Feed
	sources      sources
	links        *peering.Links
	peers        *peering.Server

	registry    *prometheus.Registry
	metrics     *admin.Metrics
	age         revisionAge
	findings    findings
	cutOff      *cutOff // nil: there are no other replicas
	problems    problems
	health      *callhealth.Health
	files       files
	connections *connections

	resolver *resolver
	ingress  *ingress
	link     *invitation.Server
	policies *keeper.Keeper // nil: none are kept
	accounts accounts       // in Kubernetes
	edges    builtEdges
}

// New makes a service, and starts nothing.
func New(cfg *Config, log *slog.Logger) *Service {
	ring := events.New()
	log = ring.Tee(log)
	return &Service{
		cfg: cfg, log: log, events: ring, often: throttle.New(log, throttle.Interval),
		listeners: &listeners{cfg: cfg, log: log}, sources: sources{settled: make(chan struct{})},
	}
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
	defer s.listeners.close() // most are closed by then
	if p := s.listeners.predecessor; p != nil {
		defer p.close()
		if err := p.release(); err != nil {
			return err
		}
	}
	release, err := s.cfg.holdDataDir(s.log)
	if err != nil {
		return err
	}
	release = sync.OnceValue(release)
	defer func() { err = errors.Join(err, release()) }()
	successor := newSuccessor(s.listeners)
	s.started = time.Now()
	if err := s.build(ctx); err != nil {
		return errors.Join(err, s.closeStores())
	}
	failed := make(chan error, 1)
	core, serving, draining := newGroup(failed), newGroup(failed), newGroup(failed)
	if err := s.startCore(ctx, core); err != nil {
		core.end()
		if ctx.Err() != nil {
			err = nil // told to end before it had begun
		}
		return errors.Join(err, s.closeStores(), s.closeSpans())
	}
	s.edges.start(serving, draining, core)
	if s.listeners.predecessor != nil { // whichever edges listen
		draining.start("taking over", func(ctx context.Context) error {
			s.afterPredecessor(ctx)
			<-ctx.Done()
			return nil
		})
	}
	s.log.Info("resolver service is running", append([]any{"version", s.cfg.Version}, s.listeners.addressArgs()...)...)
	select {
	case <-ctx.Done():
		s.log.Info("shutting down; a second signal ends at once")
	case err = <-failed:
		// Said here as well as returned: the connections that run may take a while.
		s.log.Error("a part has failed; shutting down", "err", err)
	}
	s.stopping.Store(true)
	rest := sync.OnceValue(func() error { // all but the gateway
		serving.end()
		core.end()
		return s.closeStores()
	})
	if err == nil {
		gateway := s.ingress.gateway
		successor.handOver(gateway.BeginDrain(), s.peers.HasSubscribers(), gateway.Idle, func() { err = errors.Join(err, rest(), release()) })
	}
	successor.close()
	draining.cancel()
	s.peers.Leave(restartWithin) // their connections come through the gateway, and would not end otherwise
	if s.cfg.Replicas != nil {
		serving.end() // sidecars go to another replica at once, and need not wait for the gateway
	}
	draining.end()
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
	who, err := s.cfg.Identity.config(s.log)
	if err != nil {
		return strict.Below("identity", err)
	}
	if s.identity, err = identity.New(who, self, s.log); err != nil {
		return err
	}
	if who.Sentry != nil {
		s.accounts.add(who.Sentry.Anchors)
	}
	if err := s.cfg.announceNewStore(s.log); err != nil {
		return err
	}
	if s.store, err = s.cfg.Store.Open(configstore.Scope{}, s.log); err != nil {
		return err
	}
	s.accounts.add(s.store)
	domain := catalog.Domain(s.cfg.Domain)
	s.destinations = s.listeners.rules()
	s.access = &authorizer{
		cluster: s.cfg.Cluster, namespace: s.cfg.Identity.Namespace, trustDomains: s.cfg.Identity.TrustDomains, operators: s.cfg.operators(),
		identity: s.identity, tracing: tracing.ServerOption(s.spans, s.cfg.Cluster), log: s.often,
	}
	guard, err := catalog.ParseGuardMode(s.cfg.Guard)
	if err != nil {
		return err
	}
	s.topology = topology.New(topology.Config{
		Cluster: s.cfg.Cluster, Network: s.cfg.Network, Domain: domain, Open: s.cfg.DefaultSelection == selectLocal,
		PreferZone: s.cfg.preferZone(), Guard: guard, SelectionIsConsent: s.cfg.SelectionIsConsent, Declared: topology.Declared(s.cfg.Declared),
		Kubernetes: catalog.Kubernetes(s.cfg.DNS.Kubernetes), Destinations: s.destinations,
		Events: s.events.Logger(),
	}, s.log)
	s.feed = objects.NewFeed(s.store, s.topology, s.log)
	s.health = callhealth.New(callhealth.Config{Cluster: s.cfg.Cluster, Decide: s.topology.Resolve, Change: s.feed.LastChange, Unreached: s.unreachedCallees})
	peers := peering.Config{Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace, Domain: domain, Version: s.cfg.Version, Now: s.cfg.clock, Resolver: s.edges.resolver}
	peers.Service = s.storeIdentity.get
	s.links = peering.NewLinks(peers, s.topology, s.identity, s.log)
	s.peers = peering.NewServer(peers, s.topology, s.log)
	peering.Join(s.links, s.peers)
	if err := s.sources.build(s.cfg, s.feed, s.topology, s.destinations, s.sharedSettings, s.log); err != nil {
		return err
	}
	if s.sources.kubernetes != nil {
		s.accounts.add(s.sources.kubernetes)
	}
	if err := s.buildPolicies(); err != nil {
		return err
	}
	return s.buildEdges()
}

func (s *Service) buildEdges() (err error) {
	s.registry = prometheus.NewRegistry()
	if s.metrics, err = admin.NewMetrics(s.registry, s.status, s.age.since); err != nil {
		return err
	}
	if err = s.registry.Register(&s.findings); err != nil {
		return err
	}
	if s.connections, err = newConnections(s.registry); err != nil {
		return err
	}
	if err := s.buildResolver(); err != nil {
		return err
	}
	if err := s.buildIngress(); err != nil {
		return err
	}
	return s.buildParts()
}

// startCore starts what ends last: the topology, and all that feeds it. The instances
// of the former life are there before the objects, so no view is without them.
func (s *Service) startCore(ctx context.Context, core *group) error {
	core.start("topology", s.topology.Run)
	core.start("memory", func(ctx context.Context) error { return SaveMemory(ctx, s.topology.Ready()) })
	if err := s.edges.restore(ctx); err != nil {
		return err
	}
	core.start("identity", s.identity.Run)
	core.start("sources of instances", func(ctx context.Context) error { return ended(ctx, s.sources.feed.Run(ctx)) })
	if s.sources.shared != nil {
		core.start("shared instances", s.sources.shared.Run)
	}
	core.start("config store", s.feed.Run)
	core.start("identity of the config store", func(ctx context.Context) error { return s.storeIdentity.follow(ctx, s.store, s.feed.Follower()) })
	core.start("settling", func(ctx context.Context) error {
		s.sources.settle(ctx, s.links.Settled(), s.topology)
		<-ctx.Done()
		return nil
	})
	if s.policies != nil {
		core.start("policies", s.policies.Run)
	}
	core.start("peers", func(ctx context.Context) error { return s.links.Run(ctx, s.feed.Clusters()) })
	core.start("findings", func(ctx context.Context) error { return s.findings.run(ctx, s.look) })
	if s.cutOff != nil {
		core.start("replicas", s.cutOff.run)
	}
	core.start("calls", s.followCalls)
	core.start("problems", s.followProblems)
	core.start("files", s.followFiles)
	core.start("revision", func(ctx context.Context) error { return s.age.run(ctx, s.topology.Revision) })
	return nil
}

// ended is err, unless it only says that ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// afterPredecessor waits while a predecessor serves callers better than this service would.
func (s *Service) afterPredecessor(ctx context.Context) {
	s.listeners.afterPredecessor(ctx, s.topology.Ready())
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
	return errors.Join(s.sources.close(), s.store.Close())
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
