package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// Bridge is the bridge of one namespace in one cluster.
type Bridge struct {
	cfg      *Config
	log      *slog.Logger
	often    *throttle.Log // for lines that callers cause
	identity *identity.Source
	sidecar  Sidecar
	tokens   Tokens
	client   *http.Client

	view      live.Value[*catalog.ActorView]
	local     live.Value[map[string]string] // types that apps of this cluster host, and where
	announced atomic.Pointer[[]string]      // types that the sidecar was told of last
}

// New makes a bridge, and starts nothing. The sidecar has the same tokens.
func New(cfg *Config, sidecar Sidecar, tokens Tokens, log *slog.Logger) (*Bridge, error) {
	source, err := identity.New(cfg.Identity, cfg.App(), log)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.MaxIdleConnsPerHost, transport.DisableCompression = nil, idleConnections, true
	return &Bridge{
		cfg: cfg, log: log, often: throttle.New(log, throttle.Interval), identity: source, sidecar: sidecar, tokens: tokens,
		client: &http.Client{Transport: transport},
	}, nil
}

// idleConnections to the sidecar are kept; it is on the same machine.
const idleConnections = 256

// Run runs the bridge until ctx ends. It listens once it knows what to bridge, since the sidecar
// reads the types that it hosts when its app first listens.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.identity.Run(ctx) })
	group.Go(func() error { return b.follow(ctx) })
	group.Go(func() error { return b.watchPlacement(ctx) })
	group.Go(func() error {
		if _, err := b.view.Wait(ctx); err != nil {
			return nil
		}
		if _, err := b.local.Wait(ctx); err != nil {
			return nil
		}
		listener, err := net.Listen("tcp", b.cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen for the sidecar: %w; name another address in listen, and in the sidecar's app port", err)
		}
		b.log.Info("bridge for actors is running", "namespace", b.cfg.Namespace, "listen", listener.Addr().String(), "daprd", b.cfg.Daprd)
		// Until the sidecar has ended it hosts actors, and passes calls of them on.
		serving, ended := context.WithCancel(context.WithoutCancel(ctx))
		group.Go(func() error { return b.serve(serving, listener) })
		group.Go(func() error {
			defer ended()
			return b.sidecar.Run(ctx, b.tokens)
		})
		return b.host(ctx)
	})
	return group.Wait()
}

// How long the sidecar may take for the head of a call, and leave a connection without one. A call
// itself may take any time.
const (
	headerTimeout = 10 * time.Second
	quietTimeout  = 5 * time.Minute
)

// drainTimeout is how long calls under way may take when the bridge ends.
const drainTimeout = 5 * time.Second

func (b *Bridge) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: b.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: quietTimeout}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(within) != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the sidecar: %w", err)
	}
	<-drained
	return nil
}

// Handler is what the sidecar calls, and nobody else.
func (b *Bridge) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /dapr/config", b.config)
	mux.HandleFunc("PUT /actors/{type}/{id}/method/{method...}", b.passOn)
	mux.HandleFunc("DELETE /actors/{type}/{id}", func(http.ResponseWriter, *http.Request) {}) // the actor itself is in its owner cluster
	mux.HandleFunc("POST "+bridgePath, b.takeIn)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && !b.tokens.shownBy(r) {
			b.often.Warn("token", "refused a request that is not from the bridge's sidecar; if it is, give it the same "+appToken, "path", r.URL.Path, "from", r.RemoteAddr)
			http.Error(w, "only the bridge's sidecar may call here, by its "+appToken, http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// idleTimeout is how long the sidecar remembers an actor that nobody calls. It costs it a lock and a
// timer.
const idleTimeout = "1m"

// maxDepth is more than any owner's own bound on reentrant calls, which decides.
const maxDepth = 256

// config tells the sidecar which types it hosts. Reentrant calls pass, and the owner's own setting
// decides.
func (b *Bridge) config(w http.ResponseWriter, _ *http.Request) {
	types := b.hosted()
	b.announced.Store(&types)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the sidecar has gone when this fails
		"entities": types, "actorIdleTimeout": idleTimeout, "drainRebalancedActors": true,
		"reentrancy": map[string]any{"enabled": true, "maxStackDepth": maxDepth},
	})
}
