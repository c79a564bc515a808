package resolverservice

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/answers"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/selfcheck"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/traffic"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/guests"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/introductions"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/invitation"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/rotation"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies/keeper"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
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
	listeners *process.Listeners // nil until [Service.Listen]

	spans    *otlp.Provider
	identity *identity.Source
	access   *authz.Authorizer
	store    configstore.ReadWriter
	// storeIdentity tells replicas of this cluster from another cluster of its name.
	storeIdentity configstore.ClusterIdentity
	topology      *topology.Topology
	// destinations are the rules for addresses, which all parts share.
	destinations *destination.Rules
	feed         *objects.Feed
	heard        *introductions.Heard
	sources      sources
	links        *peering.Links
	peers        *peering.Server
	tunnels      tunnels

	registry    *prometheus.Registry
	metrics     *admin.Metrics
	age         admin.RevisionAge
	findings    selfcheck.Findings
	cutOff      *peering.CutOff   // nil: there are no other replicas
	replicas    *answers.Replicas // nil: there are no others
	problems    *selfcheck.Problems
	health      *callhealth.Health
	calling     *traffic.Store
	files       selfcheck.Files
	checks      *answers.Checks
	connections *limits.Connections

	resolver *resolver
	ingress  *ingress
	link     *invitation.Server
	rotation *rotation.Server
	guests   *guests.Server
	policies *keeper.Keeper // nil: none are kept
	accounts check.Accounts // in Kubernetes
	edges    builtEdges
}

// New makes a service, and starts nothing.
func New(cfg *Config, log *slog.Logger) *Service {
	ring := events.New()
	log = ring.Tee(log)
	return &Service{
		cfg: cfg, log: log, events: ring, often: throttle.New(log, throttle.Interval),
		sources: sources{settled: make(chan struct{})},
	}
}

// Listen opens every listener that the configuration names, or none and returns an
// error. [Service.Run] does it when it was not done before.
func (s *Service) Listen() (err error) {
	if s.listeners == nil {
		s.listeners, err = process.Listen(s.cfg.process(), s.log)
	}
	return err
}

// Addr is where an edge such as resolver, gateway or dns listens, after [Service.Listen]; nil when
// it does not. Of several addresses it is the first.
func (s *Service) Addr(name string) net.Addr { return s.listeners.Addr(name) }

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
	defer s.listeners.Close() // most are closed by then
	if err := s.listeners.ReleasePredecessor(); err != nil {
		return err
	}
	release, err := s.cfg.dataDir().Hold(s.log)
	if err != nil {
		return err
	}
	release = sync.OnceValue(release)
	defer func() { err = errors.Join(err, release()) }()
	successor := s.listeners.Successor()
	s.started = time.Now()
	if err := s.build(ctx); err != nil {
		return errors.Join(err, s.closeStores())
	}
	failed := make(chan error, 1)
	core, serving, draining := process.NewGroup(failed), process.NewGroup(failed), process.NewGroup(failed)
	if err := s.startCore(ctx, core); err != nil {
		core.End()
		if ctx.Err() != nil {
			err = nil // told to end before it had begun
		}
		return errors.Join(err, s.closeStores(), s.closeSpans())
	}
	s.edges.start(serving, draining, core)
	draining.Start("taking over", func(ctx context.Context) error { // whichever edges listen
		s.listeners.AwaitPredecessor(ctx, s.topology.Ready())
		<-ctx.Done()
		return nil
	})
	s.log.Info("resolver service is running", append([]any{"version", s.cfg.Version}, s.listeners.LogArgs()...)...)
	select {
	case <-ctx.Done():
		s.log.Info("shutting down; a second signal ends at once")
	case err = <-failed:
		// Said here as well as returned: the connections that run may take a while.
		s.log.Error("a part has failed; shutting down", "err", err)
	}
	s.stopping.Store(true)
	rest := sync.OnceValue(func() error { // all but the gateway
		serving.End()
		core.End()
		return s.closeStores()
	})
	if err == nil {
		gateway := s.ingress.gateway
		successor.HandOver(gateway.BeginDrain(), s.peers.HasSubscribers(), gateway.Idle, func() { err = errors.Join(err, rest(), release()) })
	}
	successor.Close()
	draining.Cancel()
	s.peers.Leave(restartWithin) // their connections come through the gateway, and would not end otherwise
	if s.cfg.Replicas != nil {
		serving.End() // sidecars go to another replica at once, and need not wait for the gateway
	}
	draining.End()
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
	who, err := s.cfg.Identity.Followed(s.log)
	if err != nil {
		return strict.Below("identity", err)
	}
	if s.identity = s.cfg.Self; s.identity == nil {
		if s.identity, err = identity.New(who, self, s.log); err != nil {
			return err
		}
	}
	if who.Sentry != nil {
		s.accounts.Add(who.Sentry.Anchors)
	}
	if err := s.cfg.announceNewStore(s.log); err != nil {
		return err
	}
	if s.store, err = s.cfg.Store.Open(configstore.Scope{}, s.log); err != nil {
		return err
	}
	s.accounts.Add(s.store)
	domain := catalog.Domain(s.cfg.Domain)
	s.destinations = s.cfg.destinations(s.listeners.Addresses())
	s.access = &authz.Authorizer{
		Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace, TrustDomains: s.cfg.Identity.TrustDomains, Operators: s.cfg.operators(),
		Identity: s.identity, Options: append(stream.ServerOptions(), tracing.ServerOption(s.spans, s.cfg.Cluster)), Log: s.often,
	}
	guard, err := catalog.ParseGuardMode(s.cfg.Guard)
	if err != nil {
		return err
	}
	s.tunnels = s.newTunnels()
	s.topology = topology.New(topology.Config{
		Cluster: s.cfg.Cluster, Network: s.cfg.Network, Domain: domain, Open: s.cfg.DefaultSelection == selectLocal,
		PreferZone: s.cfg.preferZone(), Guard: guard, SelectionIsConsent: s.cfg.SelectionIsConsent, Declared: topology.Declared(s.cfg.Declared),
		Kubernetes: catalog.Kubernetes(s.cfg.DNS.Kubernetes), Destinations: s.destinations, Tunnels: s.tunnels.internal,
		Events: s.events.Logger(), AnyInstance: s.cfg.XDS.Gateway != nil,
	}, s.log)
	s.problems = &selfcheck.Problems{Dirs: s.cfg.written(), Name: s.cfg.Store.Name(), Store: s.store, Identity: &s.storeIdentity, Log: s.log}
	s.feed = objects.NewFeed(s.store, s.topology, s.log)
	s.health = callhealth.New(callhealth.Config{Cluster: s.cfg.Cluster, Decide: s.topology.Resolve, Change: s.feed.LastChange, Unreached: func() []callhealth.Unreached { return s.resolver.stream.UnreachedCallees() }})
	s.calling = traffic.New(s.cfg.Cluster, time.Now())
	peers := peering.Config{Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace, Domain: domain, Version: s.cfg.Version, Now: s.cfg.clock, Resolver: s.edges.resolver}
	peers.Service = s.storeIdentity.Get
	peers.Tunnel = s.tunnels.connect
	peers.Announcement = func() *v1alpha1.RootsAnnouncement { return s.rotation.Announcement() }
	peers.Announced = func(cluster, roots string, by []*x509.Certificate) { s.rotation.Announced(cluster, roots, by) }
	s.heard = introductions.NewHeard(introductions.Config{
		Cluster: s.cfg.Cluster, Domains: s.ownDomains, Anchors: s.identity.Anchors, Authority: s.identity.Authority, Reachable: s.destinations.Elsewhere, File: s.cfg.dataDir().Own("introductions"),
	}, s.log)
	s.heard.SetDeriver(s.feed)
	s.feed.Deriving(s.heard.Add, s.heard.Foresee)
	peers.Introduces, peers.Heard = introductions.NewDirectory(s.cfg.Cluster, s.feed.Clusters()), s.heard
	s.links = peering.NewLinks(peers, s.topology, s.identity, s.log)
	s.peers = peering.NewServer(peers, s.topology, s.log)
	peering.Join(s.links, s.peers)
	if err := s.sources.build(s.cfg, s.feed, s.topology, s.destinations, func() map[string]string { return s.cfg.sharedSettings(s.identity) }, s.log); err != nil {
		return err
	}
	if s.sources.kubernetes != nil {
		s.accounts.Add(s.sources.kubernetes)
	}
	if err := s.buildPolicies(); err != nil {
		return err
	}
	return s.buildEdges()
}

func (s *Service) buildEdges() (err error) {
	s.registry = prometheus.NewRegistry()
	if s.metrics, err = admin.NewMetrics(s.registry, s.status, s.age.Since); err != nil {
		return err
	}
	if err = errors.Join(s.registry.Register(&s.findings), s.registry.Register(s.calling)); err != nil {
		return err
	}
	if s.connections, err = limits.NewConnections(s.registry); err != nil {
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
func (s *Service) startCore(ctx context.Context, core *process.Group) error {
	core.Start("topology", s.topology.Run)
	core.Start("memory", func(ctx context.Context) error { return process.SaveMemory(ctx, s.topology.Ready()) })
	if err := s.edges.restore(ctx); err != nil {
		return err
	}
	core.Start("identity", s.identity.Run)
	core.Start("sources of instances", func(ctx context.Context) error { return ended(ctx, s.sources.feed.Run(ctx)) })
	if s.sources.shared != nil {
		core.Start("shared instances", s.sources.shared.Run)
	}
	core.Start("config store", s.feed.Run)
	core.Start("guests", s.feed.RunGuests)
	core.Start("identity of the config store", func(ctx context.Context) error { return s.storeIdentity.Follow(ctx, s.store, s.feed.Follower()) })
	core.Start("settling", func(ctx context.Context) error {
		s.sources.settle(ctx, s.links.Settled(), s.topology)
		<-ctx.Done()
		return nil
	})
	if s.policies != nil {
		core.Start("policies", s.policies.Run)
	}
	if !s.identity.Insecure() {
		core.Start("rotation of roots", s.rotation.Run)
		core.Start("guests", s.guests.Run)
	}
	core.Start("introductions", s.heard.Run)
	core.Start("rules of introductions", func(ctx context.Context) error { return s.heard.Follow(ctx, s.identity.Changed) })
	core.Start("peers", func(ctx context.Context) error {
		if s.identity.Wait(ctx) != nil {
			return nil // ctx has ended
		}
		if err := s.heard.Reconsider(); err != nil { // now that the own trust domain is known
			return ended(ctx, err)
		}
		return s.links.Run(ctx, s.feed.Clusters())
	})
	core.Start("tunnels", func(ctx context.Context) error { return s.tunnels.run(ctx, s.feed.Clusters()) })
	core.Start("findings", func(ctx context.Context) error {
		return s.findings.Run(ctx, func(ctx context.Context) (*check.Facts, error) {
			facts, err := s.checks.Facts(ctx, s.status(), answers.Limit{})
			if err == nil {
				facts.Faults = s.health.Own(facts.Now) // alerts add replicas up
			}
			return facts, err
		})
	})
	if s.cutOff != nil {
		core.Start("peers of replicas", s.cutOff.Run)
		core.Start("calls of replicas", func(ctx context.Context) error { return s.replicas.Run(ctx, s.health) })
	}
	core.Start("calls", func(ctx context.Context) error {
		return s.health.Run(ctx, callhealth.Watch{
			Topology: s.topology, Running: s.resolver.stream.Running, Wanted: s.peers.Wanted, SetWanted: s.links.SetWanted, Events: s.events.Logger(),
		})
	})
	core.Start("metrics", func(ctx context.Context) error { return otlp.RunMetrics(ctx, s.registry, s.cfg.Cluster, s.log) })
	core.Start("problems", s.problems.Run)
	core.Start("files", func(ctx context.Context) error { return s.files.Run(ctx, s.cfg.unusableFiles, s.log) })
	core.Start("revision", func(ctx context.Context) error { return s.age.Run(ctx, s.topology.Revision) })
	return nil
}

// ended is err, unless it only says that ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
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
