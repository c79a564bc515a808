// Package admin is the HTTP edge for operators and their machines: health, Prometheus metrics, the
// current views, and profiles. It shows no key, token or certificate.
package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/hostcheck"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// Config is what the pages are made from. Its functions are called for each request,
// from any goroutine, and must not block.
type Config struct {
	Status func() *v1alpha1.StatusResponse
	// Ready is why the edges are not ready, and what else is wrong with them; nil: nothing.
	Ready    func() (reasons, notes []string)
	Registry *prometheus.Registry
	// Apps are those with a selection, in order.
	Apps func() []catalog.App
	// View is what an app may resolve; false until the store's full set is in.
	View   func(catalog.App) (*catalog.View, bool)
	Events *events.Ring
	// Stopping holds true once the service is shutting down.
	Stopping *live.Value[bool]
	// Hosts are the names that requests may have.
	Hosts hostcheck.Hosts
}

// Server serves the pages.
type Server struct {
	cfg Config
	log *slog.Logger
}

// New makes a server, and starts nothing.
func New(cfg Config, log *slog.Logger) *Server { return &Server{cfg: cfg, log: log} }

// bodyTimeout is how long a request's body may take to come. No page reads one, but
// net/http reads the rest of it before the next request, for as long as that takes.
const bodyTimeout = 5 * time.Second

func limitBody(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		pages.ServeHTTP(w, r)
	})
}

// Bounds of a request.
const (
	maxHeader    = 16 << 10
	maxScrapes   = 4               // of the metrics, at once
	writeTimeout = 2 * time.Minute // for the answer; a profile takes 30 s, unless asked for longer
)

// shutdownTimeout is how long requests that run may go on after the end.
const shutdownTimeout = 2 * time.Second

// serve answers pages on a listener until ctx ends, and then closes it and returns nil.
func (s *Server) serve(ctx context.Context, l net.Listener, pages http.Handler) error {
	server := &http.Server{
		Handler:           limitBody(pages),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ConnState:         bounded.HTTPState,
	}
	if err := edge.ServeHTTP(ctx, server, l, s.log, shutdownTimeout, nil); err != nil {
		return fmt.Errorf("admin: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Handler answers the pages of health and metrics.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", text(`Isthmus resolver service

/livez         the process runs
/readyz        lookups can be answered; ?format=json
/metrics       for Prometheus

listen.debug has views, events and profiles.
`))
	mux.HandleFunc("GET /livez", livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{Registry: s.cfg.Registry, MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true}))
	return s.cfg.Hosts.Handler(mux)
}

// DebugHandler answers the pages that show what the service holds.
func (s *Server) DebugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", text(`Isthmus resolver service, for debugging

/debug/events  what has happened lately; ?since=10m
/debug/store   the config store, and what of it can't be used
/debug/views   apps with a selection; ?app=namespace/app-id for a view
/debug/pprof/  profiles
`))
	mux.HandleFunc("GET /debug/events", s.events)
	mux.HandleFunc("GET /debug/store", s.store)
	mux.HandleFunc("GET /debug/views", s.views)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return s.cfg.Hosts.Handler(mux)
}

func text(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }
}

func livez(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
