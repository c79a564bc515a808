package identity

import (
	"crypto/x509"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// connections are those that were let in by certificates. Each ends when one of these
// expires, or when the trust that let it in has changed so that it would be refused now.
type connections struct {
	mu    sync.Mutex
	open  map[*trackedConn]struct{}
	sweep int // how many there may be before those that died are looked for
}

// fewConnections are not worth a look for those that died.
const fewConnections = 64

// watched is one connection.
type trackedConn struct {
	net.Conn
	owner *connections
	peer  bool         // to or from another cluster's resolver service
	check func() error // whether it would be let in now; set once it was
	end   *time.Timer  // closes it
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

// dead tells whether the connection was closed from below: gRPC does so where it fails
// right after the handshake.
func (w *trackedConn) dead() bool {
	c, ok := w.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// watch keeps a connection in sight that was let in by a chain of certificates. It returns
// an error when the trust has changed meanwhile, and closes nothing. The connection is
// closed when the chain expires. A peer's is closed earlier, so that the other side comes
// back with a newer certificate; see [renewIn].
func (cs *connections) track(w *trackedConn, chain []*x509.Certificate, check func() error) error {
	cs.mu.Lock()
	w.check = check
	w.end = time.AfterFunc(closeIn(chain, w.peer, time.Now()), func() { w.Close() })
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

// recheck ends the connections that would not be let in any more, and calls ended with each.
// It looks at all of them, or at those of peers only.
func (cs *connections) recheck(peersOnly bool, ended func(net.Conn, error)) {
	cs.mu.Lock()
	all := slices.Collect(maps.Keys(cs.open))
	cs.mu.Unlock()
	for _, w := range all {
		if peersOnly && !w.peer {
			continue
		}
		if err := w.check(); err != nil {
			ended(w, err)
			w.Close()
		}
	}
}

// errTrustChanged ends a connection that is let in for another reason than before.
var errTrustChanged = errors.New("identity: the trust in it has changed; it may come back")

// closeIn is how long a connection may last that was let in by a chain of certificates.
func closeIn(chain []*x509.Certificate, renew bool, now time.Time) time.Duration {
	left := chain[0].NotAfter.Sub(now)
	for _, c := range chain[1:] {
		left = min(left, c.NotAfter.Sub(now))
	}
	if in, ok := renewIn(chain[0], now); renew && ok {
		return min(left, in)
	}
	return left
}

// comeBackIn is renewIn for a client, which loses nothing by it: where a third of the
// certificate's life has begun already, it comes back when two thirds of what is left are over.
// Sentry dates certificates back by its clock skew, so short ones may begin like that.
func clientRenewIn(leaf *x509.Certificate, now time.Time) time.Duration {
	if in, ok := renewIn(leaf, now); ok {
		return in
	}
	return max(leaf.NotAfter.Sub(now)*2/3, minRenewal)
}

// leastRenewal is how long a client lets pass before it asks for a newer certificate again.
const minRenewal = time.Second

// renewIn is when to make a connection anew that was made by a certificate: a little
// before a third of its life is left, since Dapr's are renewed at half of it, and not at
// the same moment as others. It is false where that is over.
func renewIn(leaf *x509.Certificate, now time.Time) (time.Duration, bool) {
	hundredth := max(0, leaf.NotAfter.Sub(leaf.NotBefore)/100) // divided first: centuries don't overflow
	in := leaf.NotAfter.Sub(now) - 34*hundredth - rand.N(6*hundredth+1)
	return in, in > 0
}
