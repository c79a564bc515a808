package gateway

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// pending are a loop's connections that have yet to name an app. What such a connection
// has sent after the first read stays with the kernel, and is only looked at, until it is
// enough: so one costs the gateway no goroutine, and no more than that first read.
type pending struct {
	relay.Timeout
	waiting map[int32]*pendingConn
	nextID  int32
}

// pendingConn is one of them.
type pendingConn struct {
	*admitted
	half  *halfOpen
	fd    int
	first []byte
	opening
	since time.Time
}

// await waits for the rest of what a client says first.
func (a *acceptor) await(fd int, first []byte, o opening, as *admitted) {
	w := &pendingConn{admitted: as, fd: fd, first: bytes.Clone(first), opening: o, since: time.Now()}
	a.pending.Adding(len(a.pending.waiting))
	id := max(a.pending.nextID+1, listenerID+1) // also after an overflow
	a.pending.nextID = id
	a.pending.waiting[id] = w
	a.metrics.hellos.Add(1)
	// The loop sees the shutdown and closes the descriptor, which is open until then.
	w.half = a.hellosOf(as).add(as, func() {
		a.shares.leave(as)
		unix.Shutdown(fd, unix.SHUT_RDWR)
	})
	err := a.loop.Watch(fd, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLET&0xffffffff, id)
	if err != nil {
		a.refused.acceptFailed(err, 0)
		a.drop(id, w, helloAborted)
	}
}

// more looks at what a pending connection has sent by now.
func (a *acceptor) more(id int32, events uint32) {
	w := a.pending.waiting[id]
	if w == nil {
		return // ended, and its event was on the way
	}
	n := copy(a.buf, w.first)
	peeked, _, err := unix.Recvfrom(w.fd, a.buf[n:], unix.MSG_PEEK)
	if err == unix.EAGAIN && events&^unix.EPOLLIN == 0 {
		return
	}
	all := a.buf[:n+max(peeked, 0)]
	enough := !w.undecided(all) || len(all) == len(a.buf)
	switch {
	case enough:
		unix.Read(w.fd, a.buf[n:len(all)])
		if a.forget(id, w) {
			a.end(w, helloEvicted)
			return
		}
		a.goOn(w.fd, all, w.admitted)
	case peeked <= 0 || events&^unix.EPOLLIN != 0: // nothing comes after that
		a.drop(id, w, helloAborted)
	}
}

// Expire ends the pending connections whose time is up; see [relay.Handler.Expire].
func (a *acceptor) Expire(now time.Time) (wait time.Duration) {
	if a.pending.Due(len(a.pending.waiting), now) {
		for id, w := range a.pending.waiting {
			if now.Sub(w.since) >= a.pending.Limit {
				a.drop(id, w, helloTimeout)
			}
		}
	}
	return a.pending.Wait(len(a.pending.waiting))
}

// Close ends all of them; see [relay.Handler.Close].
func (a *acceptor) Close() {
	for id, w := range a.pending.waiting {
		a.drop(id, w, helloAborted)
	}
}

// forget takes a pending connection out, and tells whether it was evicted.
func (a *acceptor) forget(id int32, w *pendingConn) (evicted bool) {
	delete(a.pending.waiting, id)
	a.loop.Unwatch(w.fd)
	a.metrics.hellos.Add(-1)
	return a.hellosOf(w.admitted).done(w.half)
}

// drop ends a pending connection.
func (a *acceptor) drop(id int32, w *pendingConn, why reason) {
	if a.forget(id, w) {
		why = helloEvicted
	}
	a.end(w, why)
}

func (a *acceptor) end(w *pendingConn, why reason) {
	a.refused.log(refusal{reason: why, from: w.from})
	relay.ResetFD(w.fd)
	w.Closed()
}
