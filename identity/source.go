package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/strict"
	"github.com/isthmus-mesh/isthmus/throttle"
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
	app    catalog.App
	log    *slog.Logger
	origin origin // nil: insecure

	poll     time.Duration // time between two loads
	retryMax time.Duration // longest pause after a failure

	loading chan struct{} // holds a token while a load runs
	current live.Value[*material]
	failure atomic.Pointer[error] // of the latest load; nil if it succeeded

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
	s := &Source{app: app, log: log, refusals: throttle.New(log, time.Second), loading: make(chan struct{}, 1)}
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

// Insecure tells whether plain text was configured. Then there is no identity, no peer is
// checked, and every caller counts as allowed.
func (s *Source) Insecure() bool { return s.origin == nil }

// ID is the current identity; false before the first one, and when insecure.
func (s *Source) ID() (ID, bool) {
	m, ok := s.current.Load()
	if !ok {
		return ID{}, false
	}
	return m.id, true
}

// Expires is the end of the current certificate's validity; false if there is none.
func (s *Source) Expires() (time.Time, bool) {
	m, ok := s.current.Load()
	if !ok {
		return time.Time{}, false
	}
	return m.cert.Leaf.NotAfter, true
}

// Ready is nil if handshakes can succeed, or when insecure. Otherwise it says why not, and when
// the next attempt is due.
func (s *Source) Ready() error {
	if s.Insecure() {
		return nil
	}
	_, err := s.usable()
	return err
}

// Err is the error of the latest load, or nil. A source with an error may still be ready, with
// its old credentials.
func (s *Source) Err() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Wait returns nil once there is an identity, at once when insecure. If ctx ends before, it
// returns why there is none. It needs a [Source.Run] beside it.
func (s *Source) Wait(ctx context.Context) error {
	if s.Insecure() {
		return nil
	}
	if _, err := s.current.Wait(ctx); err != nil {
		return joinErrors(s.Ready(), err)
	}
	return nil
}

// joinErrors puts two errors into one line; either may be nil.
func joinErrors(err, more error) error {
	if err == nil || more == nil {
		return errors.Join(err, more)
	}
	return fmt.Errorf("%w (%w)", err, more)
}

// Run loads the identity and keeps it fresh until ctx ends, and then returns nil. While the
// origin fails, the old identity stays in use.
func (s *Source) Run(ctx context.Context) error {
	if s.Insecure() {
		s.warnInsecure()
		<-ctx.Done()
		return nil
	}
	complaints := throttle.New(s.log, time.Minute)
	var warned *material
	for failures := 0; ; {
		var delay time.Duration
		err := s.load(ctx, func(err error) {
			if ctx.Err() == nil {
				delay = live.Jitter(live.Backoff(firstRetry, maxWait(err, s.retryMax), failures))
				s.noteFailure(err, delay, complaints)
			}
		})
		if ctx.Err() != nil {
			return nil
		}
		if failures++; err == nil {
			failures, delay = 0, s.untilNext()
		}
		warned = s.warnExpiry(warned)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// Load makes one attempt to load the identity. It is for a program that ends before a renewal is
// due, and does not run [Source.Run]. It does nothing when insecure.
func (s *Source) Load(ctx context.Context) error {
	if s.Insecure() {
		return nil
	}
	return s.load(ctx, func(err error) { s.failure.Store(&err) })
}

// load is one attempt. failed records its error, for Err.
func (s *Source) load(ctx context.Context, failed func(error)) error {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	old, _ := s.current.Load()
	m, err := s.origin.load(ctx, old)
	if err == nil && m != old {
		err = m.check(s.app, time.Now())
	}
	if err != nil {
		err = fmt.Errorf("identity: %s: %w", s.origin, err)
		failed(err)
		return err
	}
	s.failure.Store(nil)
	if m != old {
		s.log.Info("identity loaded", "app", m.id.App.String(), "trustDomain", m.id.TrustDomain,
			"expires", m.cert.Leaf.NotAfter, "from", s.origin.String())
		s.current.Store(m)
		if old == nil || !slices.EqualFunc(old.roots, m.roots, (*x509.Certificate).Equal) {
			s.recheck(false)
		}
	}
	return nil
}

// recheck ends the connections that would be refused now: all, or only those of peers.
func (s *Source) recheck(peersOnly bool) {
	s.connections.recheck(peersOnly, func(c net.Conn, err error) {
		s.refusals.Warn("ended", "ended a connection that is no longer trusted", "remote", c.RemoteAddr().String(), "err", err)
	})
}

// usable returns the material for a handshake, or why there is none.
func (s *Source) usable() (*material, error) {
	m, ok := s.current.Load()
	if !ok {
		if err := s.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("identity: %s: first attempt not finished", s.origin)
	}
	if err := m.valid(time.Now()); err != nil {
		return nil, joinErrors(fmt.Errorf("identity: %s: %w", s.origin, err), s.Err())
	}
	return m, nil
}

// untilNext is the pause after a success.
func (s *Source) untilNext() time.Duration {
	m, _ := s.current.Load()
	if m.renewAt.IsZero() {
		return s.poll
	}
	return max(min(s.poll, time.Until(m.renewAt)), 50*time.Millisecond)
}

// firstRetry is the pause after the first failure; it doubles with each further one.
const firstRetry = 200 * time.Millisecond

// maxWait is the longest pause after an error. A missing file is checked more often, since that
// costs only this process.
func maxWait(err error, otherwise time.Duration) time.Duration {
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return min(otherwise, 2*time.Second)
	}
	return otherwise
}

// noteFailure records a failure: always in Err, and in the log if it is new or a minute old.
func (s *Source) noteFailure(err error, delay time.Duration, complaints *throttle.Log) {
	text := err.Error()
	err = fmt.Errorf("%w; retrying in %s", err, delay.Round(100*time.Millisecond))
	defer s.failure.Store(&err) // after the log line, so that tests find it
	if m, ok := s.current.Load(); ok {
		complaints.Warn(text, "identity not renewed; the old certificate stays in use", "err", err, "app", m.id.App.String(), "expires", m.cert.Leaf.NotAfter)
		return
	}
	complaints.Warn(text, "no identity yet; no connection can be made or accepted", "err", err)
}

// warnExpiry warns once when the last fifth of a certificate's validity begins. It returns the
// material that it last warned about.
func (s *Source) warnExpiry(warned *material) *material {
	m, ok := s.current.Load()
	if !ok || m == warned {
		return warned
	}
	leaf := m.cert.Leaf
	left := time.Until(leaf.NotAfter)
	if left > leaf.NotAfter.Sub(leaf.NotBefore)/5 {
		return warned
	}
	s.log.Warn("certificate is about to expire and was not renewed; connections will fail after that",
		"app", m.id.App.String(), "expires", leaf.NotAfter, "left", left.Round(time.Second).String(), "from", s.origin.String())
	return m
}

func (s *Source) warnInsecure() {
	s.log.Warn("identity: insecure: connections are plain text, and anyone who reaches this process can read every view and register as any app; " +
		"configure identity: files {cert, key, ca} or identity: sentry {address, trustAnchors}")
}
