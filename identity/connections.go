package identity

import (
	"crypto/x509"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// connections are the open connections that certificates have authenticated. Each ends when its
// chain expires, or when a change of trust would refuse it.
type connections struct {
	mu    sync.Mutex
	open  map[*trackedConn]struct{}
	sweep int // number of connections that triggers a search for dead ones
}

// fewConnections don't trigger that search.
const fewConnections = 64

// trackedConn is one connection.
type trackedConn struct {
	net.Conn
	owner   *connections
	cluster string       // whose resolver service is at the other end; empty: it is no peer
	lasts   bool         // until its chain expires, also to or from a peer; see [Source.Prolong]
	check   func() error // fails if the connection would be refused now; set by track, and guarded by owner.mu
	until   time.Time
	end     *time.Timer // closes the connection then
}

// Close ends the connection.
func (w *trackedConn) Close() error {
	w.owner.mu.Lock()
	delete(w.owner.open, w)
	if w.end != nil {
		w.end.Stop()
	}
	w.owner.mu.Unlock()
	return w.Conn.Close()
}

// dead tells whether the connection was closed below. gRPC does so if it fails right after the
// handshake.
func (w *trackedConn) dead() bool {
	c, ok := w.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// track tracks a connection that a chain of certificates has authenticated. It returns an error,
// without closing the connection, if the trust has changed meanwhile. The connection is closed
// when the chain expires. That of a peer is closed earlier, so that the peer reconnects with a
// newer certificate; see [renewIn].
func (cs *connections) track(w *trackedConn, chain []*x509.Certificate, check func() error) error {
	cs.mu.Lock()
	in := closeIn(chain, w.cluster != "" && !w.lasts, time.Now())
	w.check, w.until = check, time.Now().Add(in)
	w.end = time.AfterFunc(in, func() { w.Close() })
	if cs.open == nil {
		cs.open = map[*trackedConn]struct{}{}
	}
	if len(cs.open) >= max(cs.sweep, fewConnections) {
		maps.DeleteFunc(cs.open, func(other *trackedConn, _ struct{}) bool {
			dead := other.dead()
			if dead {
				other.end.Stop()
			}
			return dead
		})
		cs.sweep = 2 * len(cs.open)
	}
	cs.open[w] = struct{}{}
	cs.mu.Unlock()
	return check()
}

// recheck ends those of some connections that would be refused now, and calls ended with each.
func (cs *connections) recheck(which func(*trackedConn) bool, ended func(net.Conn, error)) {
	cs.mu.Lock()
	checks := make(map[*trackedConn]func() error, len(cs.open))
	for w := range cs.open {
		if which(w) {
			checks[w] = w.check
		}
	}
	cs.mu.Unlock()
	for w, check := range checks {
		if err := check(); err != nil {
			ended(w, err)
			w.Close()
		}
	}
}

// Prolong lets a connection live on by the certificates of a later one between the same two services.
// It is false if the connection has ended.
func (s *Source) Prolong(info, by credentials.AuthInfo) bool {
	old, ok1 := info.(authInfo)
	next, ok2 := by.(authInfo)
	if !ok1 || !ok2 || old.id.App != next.id.App || old.peer != next.peer {
		return false
	}
	cs := &s.connections
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, open := cs.open[old.conn]; !open || !old.conn.end.Stop() {
		return false
	}
	old.conn.check, old.conn.until = next.conn.check, next.conn.until
	old.conn.end.Reset(time.Until(old.conn.until))
	return true
}

// errTrustChanged ends a connection whose principal has changed.
var errTrustChanged = errors.New("identity: the trust in the other end has changed; it may reconnect")

// endOf is the end of a chain that was just verified. What had expired was no part of that.
func endOf(chain []*x509.Certificate, now time.Time) time.Time {
	end := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.After(now) && c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// closeIn is how long a connection may last that a chain of certificates has just authenticated.
func closeIn(chain []*x509.Certificate, renew bool, now time.Time) time.Duration {
	end := endOf(chain, now)
	if in, ok := renewIn(chain[0].NotBefore, end, now); renew && ok {
		return in
	}
	return end.Sub(now)
}

// clientRenewIn is renewIn for a client, which loses nothing by a reconnect. In the last third of
// the chain's validity, it returns two thirds of what is left. Sentry dates certificates back by
// its clock skew, so short ones may start like that.
func clientRenewIn(chain []*x509.Certificate, now time.Time) time.Duration {
	end := endOf(chain, now)
	if in, ok := renewIn(chain[0].NotBefore, end, now); ok {
		return in
	}
	return max(end.Sub(now)*2/3, minRenewal)
}

// minRenewal is the least time between two reconnects of a client.
const minRenewal = time.Second

// renewIn is when to reconnect for a newer certificate: with jitter, a little before the last
// third of its validity, since Dapr renews certificates at half of it. It is false if that time
// has passed.
func renewIn(begin, end, now time.Time) (time.Duration, bool) {
	hundredth := max(0, end.Sub(begin)/100) // avoids an overflow
	in := end.Sub(now) - 34*hundredth - rand.N(6*hundredth+1)
	return in, in > 0
}
