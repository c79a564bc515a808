// Package admin is the HTTP edge for operators and their machines: health,
// Prometheus metrics, what is served at the moment, and profiles. It shows no key,
// token or certificate.
package admin

import (
	"context"
	"errors"
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
	"github.com/isthmus-mesh/isthmus/live"
)

// Config is what the pages are made from. Its functions are called for each request,
// from any goroutine, and must not block.
type Config struct {
	Status   func() *v1alpha1.StatusResponse
	Registry *prometheus.Registry
	// Apps are those with a selection, in order.
	Apps func() []catalog.App
	// View is what an app may resolve; false until the store's full set is in.
	View func(catalog.App) (*catalog.View, bool)
	// Stopping holds true once the service is shutting down.
	Stopping *live.Value[bool]
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

// shutdownTimeout is how long requests that run may go on after the end.
const shutdownTimeout = 2 * time.Second

// Serve answers on a listener until ctx ends, and then closes it and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           limitBody(s.Handler()),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		deadline, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(deadline) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin: serve %s: %w", l.Addr(), err)
}

// Handler answers every page.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /livez", livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{Registry: s.cfg.Registry}))
	mux.HandleFunc("GET /debug/store", s.store)
	mux.HandleFunc("GET /debug/views", s.views)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func index(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `Isthmus resolver service

/livez         the process runs
/readyz        lookups can be answered; ?format=json
/metrics       for Prometheus
/debug/store   the config store, and what of it can't be used
/debug/views   apps with a selection; ?app=namespace/app-id for a view
/debug/pprof/  profiles
`)
}

func livez(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
