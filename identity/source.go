package identity

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// origin is where credentials come from.
type origin interface {
	// load returns the current credentials: old itself, which may be nil, if nothing changed.
	// Calls never overlap. It returns soon after ctx is done, and within a bounded time in any
	// case.
	load(ctx context.Context, old *material) (*material, error)

	// String names the origin in messages.
	String() string
}

// Source is the identity of this process. [Source.Run] keeps it fresh. [Source.ServerTLS],
// [Source.ClientTLS] and their gRPC counterparts use the current state at each handshake. A
// Source is safe for concurrent use.
type Source struct {
	credential

	refusals    *throttle.Log // for log lines about refused clients
	peers       peers
	connections connections
}

// New makes a source of the identity of app. It starts nothing. Credentials for another app are
// refused; the zero app accepts any in files.
func New(cfg Config, app catalog.App, log *slog.Logger) (*Source, error) {
	cfg = cfg.withDefaults(os.Getenv)
	if err := cfg.check(); err != nil {
		return nil, strict.Below("identity", err)
	}
	s := &Source{credential: credential{app: app, log: log, loading: make(chan struct{}, 1)}, refusals: throttle.New(log, time.Second)}
	s.rootsChanged = func() { s.recheck(func(*trackedConn) bool { return true }) }
	switch {
	case cfg.Files != nil:
		s.origin, s.poll, s.retryMax = &filesOrigin{files: *cfg.Files, log: log}, 2*time.Second, 2*time.Second
	case cfg.Sentry != nil:
		o, err := newSentryOrigin(*cfg.Sentry, app)
		if err != nil {
			return nil, fmt.Errorf("identity: sentry: %w", err)
		}
		s.origin, s.poll, s.retryMax = o, 5*time.Second, 30*time.Second
	}
	return s, nil
}

// recheck ends those of some connections that would be refused now.
func (s *Source) recheck(which func(*trackedConn) bool) {
	s.connections.recheck(which, func(c net.Conn, err error) {
		s.refusals.Warn("ended", "ended a connection that is no longer trusted", "remote", c.RemoteAddr().String(), "err", err)
	})
}
