package gateway

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a client and its backend.
type pair struct {
	client, backend end
	of              *admitted
	slot            int32
	tag             int32
	dialing         *dialing // until the backend is known to be there
	queued          bool     // waits for its turn
	behind          bool     // is among the loop's stalls
	ended           bool

	connected time.Time // when it was listed among those without an answer; zero if it was not
}

// dialing is a connection to a backend that is being made. What the client said first
// waits in the backend's rest meanwhile; so nothing is read from the client, nor is it
// watched.
type dialing struct {
	first  []byte // all that waits
	failed func(client int, said []byte, err error)
}

// end is one side of a pair, and what is on its way to it.
type end struct {
	fd       int
	rest     []byte // read from the other side, not yet taken by this one
	pipe     *pipe  // the same, in bulk; nil when there is none
	readable bool   // there may be something to read
	last     bool   // what can be read ends with the end of the stream, or an error
	eof      bool   // all was read
	spoke    bool   // something was read
	told     bool   // it was told that no more comes
	bulk     bool   // what came for it last came in bulk
	reset    bool   // it was reset, or failed; a read tells, unless the end comes first

	blocked time.Time // since when it has taken nothing of what waits for it; zero where nothing waits
}

func (p *pair) side(backend int32) *end {
	if backend == 1 {
		return &p.backend
	}
	return &p.client
}

// note remembers what an event says. That a side can be written to needs no
// remembering: it is tried whenever there is something to write.
func (e *end) note(events uint32) {
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e.readable = true
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e.last = true
	}
	if events&unix.EPOLLERR != 0 {
		e.reset = true
	}
}

// gone tells whether it was reset with or after its end, so that no read will tell.
func (e *end) gone() bool { return e.reset && e.eof }

// advance passes on what can be, both ways, and ends the pair when all has been.
func (l *loop) advance(p *pair) {
	if p.ended {
		return
	}
	p.queued = false
	more, err := l.move(&p.backend, &p.client, &l.cfg.traffic.toBackend)
	if p.dialing != nil && len(p.backend.rest) < len(p.dialing.first) {
		p.dialing = nil // the backend is there: it has been sent something
		if err == nil {
			err = l.watch(p.client.fd, watched, p.slot, p.tag)
		}
	}
	if p.dialing != nil {
		if err != nil {
			l.handBack(p, err)
		}
		return // what there is to read from such a backend is the end, which is not for the client
	}
	if err == nil {
		var answers bool
		answers, err = l.move(&p.client, &p.backend, &l.cfg.traffic.toClient)
		more = more || answers
	}
	switch {
	case err != nil || p.client.gone() || p.backend.gone():
		l.release(p, closeWithReset)
	case p.client.told && p.backend.told:
		l.release(p, func(fd int) { unix.Close(fd) })
	case more:
		p.queued = true
		l.busy = append(l.busy, p)
		l.stalls.note(p)
	default:
		l.stalls.note(p)
		l.answers.note(p)
	}
}

// move passes on one direction until the source has nothing, the destination takes
// nothing, or its turn is over; more tells of the last. What the destination did not
// take is kept, and nothing is read before it is gone.
func (l *loop) move(dst, src *end, count *atomic.Uint64) (more bool, err error) {
	passed := 0
	for !dst.told {
		if done, err := l.flush(dst); err != nil || !done {
			return false, err
		}
		if src.eof {
			dst.told = true
			if src.told { // the other direction is over too, and closing says the same
				return false, nil
			}
			return false, ignoreGone(unix.Shutdown(dst.fd, unix.SHUT_WR))
		}
		if !src.readable {
			return false, nil
		}
		if passed >= turn {
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
func (l *loop) read(dst, src *end) (int, error) {
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
func (l *loop) splice(dst, src *end, p *pipe) (int, error) {
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
func (e *end) took(n int, short bool) {
	e.eof = n == 0
	e.spoke = e.spoke || n > 0
	if n < 0 || (short && !e.last) {
		e.readable = false
	}
}

// flush writes what is on its way, and tells whether that is all.
func (l *loop) flush(e *end) (done bool, err error) {
	took := false
	for e.pipe != nil {
		n, err := again(splice(e.pipe.out, e.fd, e.pipe.held))
		if err != nil || n < 0 {
			e.blocks(took)
			return false, err
		}
		took = true
		if e.pipe.held -= n; e.pipe.held == 0 {
			l.pipes.put(e.pipe)
			e.pipe = nil
		}
	}
	for len(e.rest) > 0 {
		n, err := again(unix.Write(e.fd, e.rest))
		if err != nil || n < 0 {
			e.blocks(took)
			return false, err
		}
		took = true
		e.rest = e.rest[n:]
	}
	e.rest, e.blocked = nil, time.Time{}
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

// ignoreGone is nil where a shutdown finds the connection reset: reading will tell.
func ignoreGone(err error) error {
	if err == unix.ENOTCONN {
		return nil
	}
	return err
}
