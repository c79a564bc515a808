// Package consulapi serves the part of Consul's HTTP API that finds and registers services, so that
// programs which know Consul find apps by Isthmus: above all Dapr's stock name resolution
// hashicorp.consul.
//
// A token names the caller. It sees the view of its app: instances of this cluster, and other
// clusters' gateways under the apps' host names. It registers instances of its app, like any other.
// docs/reference/consul-api.md lists the endpoints.
package consulapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/keypair"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// consulVersion is the version of Consul that this API follows.
const consulVersion = "1.21.0"

// Server is the API. The parts are made by New, and Restore, Run and Serve make them work.
type Server struct {
	cfg       Config
	log       *slog.Logger
	often     *throttle.Log // for lines that clients cause
	node      *api.Node     // of this cluster
	registry  *registry
	metrics   *metrics
	pair      *keypair.Pair // nil without TLS
	callers   map[catalog.App]*caller
	anonymous *caller
	tokens    atomic.Pointer[tokens]
	unread    atomic.Pointer[error] // why the tokens can't be read again; nil while they can
	counter   atomic.Uint64
	filters   *filters
	pages     http.Handler
	stopping  chan struct{} // closed by Run when it ends
	stopped   sync.Once
}

// New makes a server, and reads the tokens. It starts nothing.
func New(cfg Config) (*Server, error) {
	log := cfg.Log.With("part", "consulapi")
	s := &Server{
		cfg: cfg, log: log, often: throttle.New(log, throttle.Interval), node: cfg.node(), callers: map[catalog.App]*caller{},
		filters: newFilters(), stopping: make(chan struct{}),
	}
	// Indexes begin with the time, so that after a restart each is above all of before.
	s.counter.Store(uint64(time.Now().UnixMilli()))
	s.registry = newRegistry(cfg.Topology, cfg.Share, newStore(cfg.Directory, log), s.node, cfg.portKey(), &s.counter, s.log)
	s.registry.delegates, s.registry.holder, s.registry.streams = cfg.Delegates, cfg.Topology.Inventory().Holder, cfg.Streams
	if cfg.Clock != nil {
		s.registry.clock = cfg.Clock
	}
	s.registry.targets.rules = cfg.Destinations
	if cfg.Prober != nil {
		s.registry.targets.prober = cfg.Prober
	}
	for _, t := range cfg.Tokens {
		app, err := catalog.ParseApp(t.App)
		if err != nil {
			return nil, err
		}
		s.caller(app)
	}
	s.anonymous = newCaller(catalog.App{})
	if cfg.Anonymous != "" {
		app, err := catalog.ParseApp(cfg.Anonymous)
		if err != nil {
			return nil, err
		}
		s.anonymous = s.caller(app)
	}
	t, err := s.readTokens()
	if err != nil {
		s.close()
		return nil, err
	}
	s.tokens.Store(t)
	if s.metrics, err = newMetrics(cfg.Metrics, s); err != nil {
		s.close()
		return nil, err
	}
	if cfg.TLS != nil {
		if s.pair, err = keypair.Load(identity.ConsulCertificate, cfg.TLS.Cert, cfg.TLS.Key, s.log); err != nil {
			s.close()
			return nil, fmt.Errorf("consul.tls: %w", err)
		}
	}
	s.routes()
	return s, nil
}

// Trusted is the certificate that clients are shown; none without TLS.
func (s *Server) Trusted() []identity.Trusted {
	if s.pair == nil {
		return nil
	}
	return []identity.Trusted{s.pair.Trusted()}
}

// caller returns the caller of an app, made on first use.
func (s *Server) caller(app catalog.App) *caller {
	c := s.callers[app]
	if c == nil {
		c = newCaller(app)
		c.sub = s.cfg.Topology.Subscribe(app)
		s.callers[app] = c
	}
	return c
}

func (s *Server) close() {
	for _, c := range s.callers {
		c.sub.Close()
	}
}

// Restore takes over the services of before a restart. It comes before Run.
func (s *Server) Restore(ctx context.Context) error {
	all := slices.DeleteFunc(s.registry.store.load(s.log), s.abandoned)
	if len(all) == 0 {
		return nil
	}
	n := s.registry.restore(all)
	s.log.Info("took over the services that were registered before the restart", "services", n)
	return s.registry.publish(ctx)
}

// abandoned tells whether a service is of an app that may not ask any more: nobody could
// deregister it. Its file stays, should the app have a token again.
func (s *Server) abandoned(was *saved) bool {
	app := catalog.App{Namespace: was.Namespace, ID: was.App}
	if s.callers[app] != nil {
		return false
	}
	s.log.Warn("a service is not taken over, since its app has no token any more; give the app one in consul.tokens, or delete the file",
		"app", app.String(), "service", was.Service.ID, "file", s.registry.store.path(app, was.Service.ID))
	return true
}

// Run follows views, runs checks and reads the tokens again, until ctx ends. Then it has waiting
// queries answered, so that Serve can end.
func (s *Server) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer s.close()
	defer parts.Wait()
	defer s.stopped.Do(func() { close(s.stopping) })
	for _, c := range s.callers {
		parts.Go(func() { c.run(ctx) })
	}
	parts.Go(func() { s.followTokens(ctx) })
	return s.registry.run(ctx)
}

// Instances is how many services are registered. It waits for no file.
func (s *Server) Instances() (n int) {
	for _, o := range s.registry.all() {
		all, _ := o.roster.Load()
		n += len(all.services)
	}
	return n
}

// settled tells whether views have all that they had before the service started.
func (s *Server) settled() bool {
	if s.cfg.Settled == nil {
		return true
	}
	select {
	case <-s.cfg.Settled:
		return true
	default:
		return false
	}
}

// impatient is a server that waits for no client for long, but has all the time for an answer.
func impatient(pages http.Handler) *http.Server {
	return &http.Server{Handler: pages, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader}
}

// Serve answers requests until ctx ends. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	served := s.bound(l)
	if s.cfg.TLS != nil {
		served = tls.NewListener(served, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.pair.Get})
	}
	return edge.ServeHTTP(ctx, impatient(s), served, s.log, endTimeout, func() { s.stopped.Do(func() { close(s.stopping) }) })
}
