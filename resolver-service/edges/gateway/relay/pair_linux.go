package relay

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a client and its backend.
type pair struct {
	client, backend side
	owner           Owner
	traffic         *Traffic
	slot            int32
	tag             int32
	dialing         *dialing // until the backend is known to be connected
	queued          bool     // the loop is about to advance it
	stalled         bool     // is on the list of that name
	ended           bool

	connected time.Time // when it was listed as unanswered; zero if it was not
}

// dialing is a connection to a backend that the loop is making. Meanwhile the client's first
// bytes wait in the backend's rest. So the loop neither reads from the client nor watches it.
type dialing struct {
	first  []byte // all that waits
	since  time.Time
	failed func(client int, first []byte, err error)
}

// side is one connection of a pair, and the bytes on their way to it.
type side struct {
	fd       int
	rest     []byte // read from the other side, not yet taken by this one
	pipe     *pipe  // the same, in bulk; nil when there is none
	readable bool   // there may be something to read
	last     bool   // the bytes to read end with the end of the stream, or an error
	eof      bool   // all was read
	sent     bool   // something was read
	shut     bool   // its direction is closed: no more bytes come for it
	bulk     bool   // the last bytes for it came in bulk
	reset    bool   // it was reset, or failed; a read tells, unless the end comes first

	blocked time.Time // since when it has taken no byte that waits for it; zero if none waits
}

func (p *pair) sideOf(backend int32) *side {
	if backend == 1 {
		return &p.backend
	}
	return &p.client
}

// note remembers an event. It need not remember that a side can be written to: the loop tries
// whenever there is something to write.
func (s *side) note(events uint32) {
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.readable = true
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.last = true
	}
	if events&unix.EPOLLERR != 0 {
		s.reset = true
	}
}

// resetAfterEOF tells whether it was reset with or after its end, so that no read will tell.
func (s *side) resetAfterEOF() bool { return s.reset && s.eof }

// advance passes on what can be, both ways, and ends the pair when all has been.
func (l *Loop) advance(p *pair) {
	if p.ended {
		return
	}
	p.queued = false
	more, err := l.move(&p.backend, &p.client, &p.traffic.ToBackend)
	if p.dialing != nil && len(p.backend.rest) < len(p.dialing.first) {
		p.dialing = nil // the backend is connected: it has taken something
		if err == nil {
			err = l.watch(p.client.fd, watched, p.slot, p.tag)
		}
	}
	if p.dialing != nil {
		if err != nil {
			l.handBack(p, err)
		}
		return // such a backend has nothing to read but the end, which is not for the client
	}
	if err == nil {
		var answers bool
		answers, err = l.move(&p.client, &p.backend, &p.traffic.ToClient)
		more = more || answers
	}
	switch {
	case err != nil || p.client.resetAfterEOF() || p.backend.resetAfterEOF():
		l.release(p, ResetFD)
	case p.client.shut && p.backend.shut:
		l.release(p, closeFD)
	case more:
		p.queued = true
		l.busy = append(l.busy, p)
		l.timeouts.noteStalled(p)
	default:
		l.timeouts.noteStalled(p)
		l.timeouts.noteUnanswered(p)
	}
}

// move passes on one direction until the source has nothing, the destination takes nothing, or
// the quantum is used up; more tells of the last. It keeps the bytes that the destination did
// not take, and reads nothing before they are written.
func (l *Loop) move(dst, src *side, count *atomic.Uint64) (more bool, err error) {
	passed := 0
	for !dst.shut {
		if done, err := l.flush(dst); err != nil || !done {
			return false, err
		}
		if src.eof {
			dst.shut = true
			if src.shut { // the other direction is over too, and closing says the same
				return false, nil
			}
			return false, ignoreReset(unix.Shutdown(dst.fd, unix.SHUT_WR))
		}
		if !src.readable {
			return false, nil
		}
		if passed >= quantum {
			return true, nil
		}
		n, err := l.read(dst, src)
		if err != nil {
			return false, err
		}
		passed += n
		count.Add(uint64(n))
	}
	return false, nil
}

// read takes what the source has, once, and passes it on or keeps it for flush.
func (l *Loop) read(dst, src *side) (int, error) {
	if dst.bulk {
		if p := l.pipes.get(); p != nil {
			return l.splice(dst, src, p)
		}
	}
	n, err := again(unix.Read(src.fd, l.buf))
	if err != nil {
		return 0, err
	}
	src.took(n, n < len(l.buf))
	if n <= 0 {
		return 0, nil
	}
	dst.bulk = n == len(l.buf)
	written, err := again(unix.Write(dst.fd, l.buf[:n]))
	if err != nil {
		return 0, err
	}
	if written = max(written, 0); written < n {
		dst.rest = slices.Clone(l.buf[written:n])
	}
	return n, nil
}

// splice is read by way of a pipe, without a copy of the bytes. A pipe is lent for as
// long as it holds something.
func (l *Loop) splice(dst, src *side, p *pipe) (int, error) {
	n, err := again(splice(src.fd, p.in, p.size))
	if err == nil {
		src.took(n, false)
	}
	if err != nil || n <= 0 {
		dst.bulk = false
		l.pipes.put(p)
		return 0, err
	}
	p.held, dst.pipe = n, p
	return n, nil
}

// took notes how a read ended: n is 0 at the end of the stream, -1 when there was
// nothing. After a short read there is nothing either, unless the last is at hand.
func (s *side) took(n int, short bool) {
	s.eof = n == 0
	s.sent = s.sent || n > 0
	if n < 0 || (short && !s.last) {
		s.readable = false
	}
}

// flush writes what is on its way, and tells whether that is all.
func (l *Loop) flush(s *side) (done bool, err error) {
	took := false
	for s.pipe != nil {
		n, err := again(splice(s.pipe.out, s.fd, s.pipe.held))
		if err != nil || n < 0 {
			s.block(took)
			return false, err
		}
		took = true
		if s.pipe.held -= n; s.pipe.held == 0 {
			l.pipes.put(s.pipe)
			s.pipe = nil
		}
	}
	for len(s.rest) > 0 {
		n, err := again(unix.Write(s.fd, s.rest))
		if err != nil || n < 0 {
			s.block(took)
			return false, err
		}
		took = true
		s.rest = s.rest[n:]
	}
	s.rest, s.blocked = nil, time.Time{}
	return true, nil
}

// again makes -1 with no error of a call that has to wait. (Calls that never wait are
// not interrupted either.)
func again(n int, err error) (int, error) {
	if err == unix.EAGAIN {
		return -1, nil
	}
	return n, err
}

// ignoreReset is nil if a shutdown finds the connection reset: reading will tell.
func ignoreReset(err error) error {
	if err == unix.ENOTCONN {
		return nil
	}
	return err
}
