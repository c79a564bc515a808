package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// credential is this process's own identity, kept fresh.
type credential struct {
	app    catalog.App
	log    *slog.Logger
	origin origin // nil: insecure

	poll     time.Duration // time between two loads
	retryMax time.Duration // longest pause after a failure

	loading      chan struct{} // holds a token while a load runs
	current      live.Value[*material]
	failure      atomic.Pointer[error] // of the latest load; nil if it succeeded
	rootsChanged func()
}

// Changed returns a channel that is closed once there are other credentials or roots than now.
// Without an identity it stays open.
func (c *credential) Changed() <-chan struct{} {
	_, _, changed := c.current.Follow()
	return changed
}

// Insecure tells whether plain text was configured. Then there is no identity, no peer is
// checked, and every caller counts as allowed.
func (c *credential) Insecure() bool { return c.origin == nil }

// ID is the current identity; false before the first one, and when insecure.
func (c *credential) ID() (ID, bool) {
	m, ok := c.current.Load()
	if !ok {
		return ID{}, false
	}
	return m.id, true
}

// Domain is the trust domain of this cluster's apps, by the own certificate; empty, for any, when
// insecure. known is false before there is a certificate.
func (c *credential) Domain() (domain string, known bool) {
	own, ok := c.ID()
	return own.TrustDomain, ok || c.Insecure()
}

// Expires is when the current certificate ends to count, by itself or with its issuer; false if
// there is none.
func (c *credential) Expires() (time.Time, bool) {
	m, ok := c.current.Load()
	if !ok {
		return time.Time{}, false
	}
	return m.ends.NotAfter, true
}

// Ready is nil if handshakes can succeed, or when insecure. Otherwise it says why not, and when
// the next attempt is due.
func (c *credential) Ready() error {
	if c.Insecure() {
		return nil
	}
	_, err := c.usable()
	return err
}

// Err is the error of the latest load, or nil. A source with an error may still be ready, with
// its old credentials.
func (c *credential) Err() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Wait returns nil once there is an identity, at once when insecure. If ctx ends before, it
// returns why there is none. It needs a [Source.Run] beside it.
func (c *credential) Wait(ctx context.Context) error {
	if c.Insecure() {
		return nil
	}
	if _, err := c.current.Wait(ctx); err != nil {
		return joinErrors(c.Ready(), err)
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
func (c *credential) Run(ctx context.Context) error {
	if c.Insecure() {
		c.warnInsecure()
		<-ctx.Done()
		return nil
	}
	if o, ok := c.origin.(*sentryOrigin); ok && o.cfg.Anchors != nil {
		var following sync.WaitGroup
		following.Go(func() { o.cfg.Anchors.Run(ctx) })
		defer following.Wait()
	}
	complaints := throttle.New(c.log, time.Minute)
	var warned warning
	for failures := 0; ; {
		var delay time.Duration
		err := c.load(ctx, func(err error) {
			if ctx.Err() == nil {
				delay = live.Jitter(live.Backoff(firstRetry, maxWait(err, c.retryMax), failures))
				c.noteFailure(err, delay, complaints)
			}
		})
		if ctx.Err() != nil {
			return nil
		}
		if failures++; err == nil {
			failures, delay = 0, c.untilNext()
		}
		warned, delay = c.warnExpiry(warned, delay)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// Load makes one attempt to load the identity. It is for a program that ends before a renewal is
// due, and does not run [Source.Run]. It does nothing when insecure.
func (c *credential) Load(ctx context.Context) error {
	if c.Insecure() {
		return nil
	}
	return c.load(ctx, func(err error) { c.failure.Store(&err) })
}

// load is one attempt. failed records its error, for Err.
func (c *credential) load(ctx context.Context, failed func(error)) error {
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	old, _ := c.current.Load()
	m, err := c.origin.load(ctx, old)
	if err == nil && m != old {
		err = m.check(c.app, time.Now())
	}
	if err != nil {
		err = fmt.Errorf("identity: %s: %w", c.origin, err)
		failed(err)
		return err
	}
	c.failure.Store(nil)
	if m != old {
		c.log.Info("identity loaded", "app", m.id.App.String(), "trustDomain", m.id.TrustDomain,
			"expires", m.ends.NotAfter, "from", c.origin.String())
		c.current.Store(m)
		if old == nil || !slices.EqualFunc(old.roots, m.roots, (*x509.Certificate).Equal) {
			c.rootsChanged()
		}
	}
	return nil
}

// usable returns the material for a handshake, or why there is none.
func (c *credential) usable() (*material, error) {
	m, ok := c.current.Load()
	if !ok {
		if err := c.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("identity: %s: first attempt not finished", c.origin)
	}
	if err := m.valid(time.Now()); err != nil {
		return nil, joinErrors(fmt.Errorf("identity: %s: %w", c.origin, err), c.Err())
	}
	return m, nil
}

// untilNext is the pause after a success.
func (c *credential) untilNext() time.Duration {
	m, _ := c.current.Load()
	if m.renewAt.IsZero() {
		return c.poll
	}
	return max(min(c.poll, time.Until(m.renewAt)), 50*time.Millisecond)
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
func (c *credential) noteFailure(err error, delay time.Duration, complaints *throttle.Log) {
	text := err.Error()
	err = fmt.Errorf("%w; retrying in %s", err, delay.Round(100*time.Millisecond))
	defer c.failure.Store(&err) // after the log line, so that tests find it
	if m, ok := c.current.Load(); ok {
		complaints.Warn(text, "identity not renewed; the old certificate stays in use", "err", err, "app", m.id.App.String(), "expires", m.ends.NotAfter)
		return
	}
	complaints.Warn(text, "no identity yet; no connection can be made or accepted", "err", err)
}

// warning is what was said last of a certificate that ends.
type warning struct {
	of      *material
	expired bool
}

// warnExpiry warns once when the last fifth of a certificate's validity begins, and once when it has
// ended. It returns what it has said, and a delay that does not go on beyond that end.
func (c *credential) warnExpiry(said warning, delay time.Duration) (warning, time.Duration) {
	m, ok := c.current.Load()
	if !ok {
		return said, delay
	}
	if m != said.of {
		said = warning{}
	}
	ends, life := m.ends.NotAfter, m.ends.NotAfter.Sub(m.cert.Leaf.NotBefore)
	left := time.Until(ends)
	switch {
	case left <= 0 && !said.expired:
		c.log.Error("certificate has expired; connections fail until it is renewed", "app", m.id.App.String(), "expired", ends, "from", c.origin.String())
		said = warning{m, true}
	case left > 0 && left <= life/5 && said.of == nil:
		c.log.Warn("certificate is about to expire and was not renewed; connections will fail after that",
			"app", m.id.App.String(), "expires", ends, "left", left.Round(time.Second).String(), "from", c.origin.String())
		said = warning{m, false}
	}
	if left > 0 {
		delay = min(delay, left)
	}
	return said, delay
}

func (c *credential) warnInsecure() {
	c.log.Warn("identity: insecure: connections are plain text, and anyone who reaches this process can read every view and register as any app; " +
		"configure identity: files {cert, key, ca} or identity: sentry {address, trustAnchors}")
}
