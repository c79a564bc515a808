package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
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
	// load returns the credentials that now stand: old itself when nothing changed,
	// which may be nil. Calls never overlap. It returns soon after ctx is done, and
	// after a bounded time in any case.
	load(ctx context.Context, old *material) (*material, error)

	// String names the origin in messages.
	String() string
}

// Source is the identity of this process. [Source.Run] keeps it fresh, and
// [Source.ServerTLS], [Source.ClientTLS] and their gRPC counterparts use what stands
// at each handshake. All methods can be called at any time from any goroutine.
type Source struct {
	app    catalog.App
	log    *slog.Logger
	origin origin // nil: insecure

	poll     time.Duration // between two looks at the origin
	retryMax time.Duration // longest wait after a failure

	loading chan struct{} // holds one token while a load runs
	current live.Value[*material]
	failure atomic.Pointer[error] // of the latest load; nil when it succeeded

	refusals    *throttle.Log // of log lines about refused clients
	peers       peers
	connections connections
}

// New makes a source of the identity of app, and starts nothing. Credentials that
// name another app are refused; the zero app takes what files say.
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

// Insecure tells whether plain text was asked for: then there is no identity, no
// peer is checked, and every caller counts as allowed.
func (s *Source) Insecure() bool { return s.origin == nil }

// ID is the identity that stands; false before the first one, and when insecure.
func (s *Source) ID() (ID, bool) {
	m, ok := s.current.Load()
	if !ok {
		return ID{}, false
	}
	return m.id, true
}

// Expires is when the certificate that stands runs out, unless it is renewed before;
// false when there is none.
func (s *Source) Expires() (time.Time, bool) {
	m, ok := s.current.Load()
	if !ok {
		return time.Time{}, false
	}
	return m.cert.Leaf.NotAfter, true
}

// Ready is nil when handshakes can succeed, and otherwise says why they can't and
// when the next attempt is due. It is nil when insecure.
func (s *Source) Ready() error {
	if s.Insecure() {
		return nil
	}
	_, err := s.usable()
	return err
}

// Err is the error of the latest load, and nil when that succeeded. A source can be
// ready all the same, with the credentials that it had before.
func (s *Source) Err() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Wait returns nil once there is an identity, at once when insecure, or the reason
// why there is none when ctx ends. It needs a [Source.Run] beside it.
func (s *Source) Wait(ctx context.Context) error {
	if s.Insecure() {
		return nil
	}
	if _, err := s.current.Wait(ctx); err != nil {
		return within(s.Ready(), err)
	}
	return nil
}

// within puts two errors into one line; either may be nil.
func within(err, more error) error {
	if err == nil || more == nil {
		return errors.Join(err, more)
	}
	return fmt.Errorf("%w (%w)", err, more)
}

// Run loads the identity and keeps it fresh until ctx ends, when it returns nil.
// While the origin fails, what it had yielded before stays in use.
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
				delay = backoff(failures, s.patience(err))
				s.complain(err, delay, complaints)
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

// Load makes one attempt to load the identity, for a program that is done before a
// renewal is due and runs no [Source.Run]. It does nothing when insecure.
func (s *Source) Load(ctx context.Context) error {
	if s.Insecure() {
		return nil
	}
	return s.load(ctx, func(err error) { s.failure.Store(&err) })
}

// load is one attempt. failed keeps its error, for Err.
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

// recheck ends the connections that would not be let in any more: of all, or of peers only.
func (s *Source) recheck(peersOnly bool) {
	s.connections.recheck(peersOnly, func(c net.Conn, err error) {
		s.refusals.Warn("ended", "ended a connection that is not trusted any more", "remote", c.RemoteAddr().String(), "err", err)
	})
}

// usable is the material for a handshake, or the reason why there is none.
func (s *Source) usable() (*material, error) {
	m, ok := s.current.Load()
	if !ok {
		if err := s.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("identity: %s: first attempt not finished", s.origin)
	}
	if err := m.valid(time.Now()); err != nil {
		return nil, within(fmt.Errorf("identity: %s: %w", s.origin, err), s.Err())
	}
	return m, nil
}

// untilNext is how long to wait after a success.
func (s *Source) untilNext() time.Duration {
	m, _ := s.current.Load()
	if m.renewAt.IsZero() {
		return s.poll
	}
	return max(min(s.poll, time.Until(m.renewAt)), 50*time.Millisecond)
}

// patience is the longest wait after an error: a file that is missing costs nobody but this process.
func (s *Source) patience(err error) time.Duration {
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return min(s.retryMax, 2*time.Second)
	}
	return s.retryMax
}

// backoff is a wait after so many failures before: twice as long each time, up to
// longest, and spread out so that many processes don't come back at once.
func backoff(failures int, longest time.Duration) time.Duration {
	d := min(200*time.Millisecond<<min(failures, 10), longest)
	return d*3/4 + rand.N(d/2)
}

// complain makes a failure visible: in Err always, in the log when it is news or a
// minute has passed.
func (s *Source) complain(err error, delay time.Duration, complaints *throttle.Log) {
	text := err.Error()
	err = fmt.Errorf("%w; retrying in %s", err, delay.Round(100*time.Millisecond))
	defer s.failure.Store(&err) // who hears of it finds it logged
	if m, ok := s.current.Load(); ok {
		complaints.Warn(text, "identity not renewed; the old one stays in use", "err", err, "app", m.id.App.String(), "expires", m.cert.Leaf.NotAfter)
		return
	}
	complaints.Warn(text, "no identity yet; connections can't be made or taken", "err", err)
}

// warnExpiry warns once when the last fifth of a certificate's life has begun, and
// returns the material that it last warned about.
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
	s.log.Warn("certificate is about to expire and was not renewed; connections will fail from then on",
		"app", m.id.App.String(), "expires", leaf.NotAfter, "left", left.Round(time.Second).String(), "from", s.origin.String())
	return m
}

func (s *Source) warnInsecure() {
	s.log.Warn("identity: insecure: connections are plain text, and anyone who reaches this process can read every view and register as any app; " +
		"configure identity: files {cert, key, ca} or identity: sentry {address, trustAnchors}")
}
