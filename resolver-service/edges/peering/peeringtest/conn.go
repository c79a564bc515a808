package peeringtest

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pair is one connection with both ends.
type pair struct {
	net            *Network
	client, server *conn
	late           time.Duration // extra delay; under net.mu
}

// conn is one end of a connection.
type conn struct {
	pair    *pair
	host    string
	address address
	in, out *half // read by this end, and written by it
}

// connect makes a connection that is not accepted yet.
func (n *Network) connect(from, to, at string, r *rand.Rand) *pair {
	p := &pair{net: n}
	there, back := newHalf(p, direction{from, to}, r.Uint64()), newHalf(p, direction{to, from}, r.Uint64())
	p.client = &conn{pair: p, host: from, address: address(from + ":0"), in: back, out: there}
	p.server = &conn{pair: p, host: to, address: address(at), in: there, out: back}
	n.mu.Lock()
	n.conns[p] = struct{}{}
	n.mu.Unlock()
	return p
}

// reset resets both ends at once.
func (p *pair) reset() {
	for _, h := range []*half{p.client.in, p.client.out} {
		h.fail(syscall.ECONNRESET, syscall.ECONNRESET)
	}
	p.forget()
}

// kill ends the end at a host. The other end is reset if the path allows it.
func (p *pair) kill(host string) {
	mine, other := p.client, p.server
	if p.server.host == host {
		mine, other = other, mine
	}
	if !p.net.path(direction{mine.host, other.host}).Down {
		p.reset()
		return
	}
	mine.in.abandon()
	mine.out.fail(nil, net.ErrClosed)
}

// lateness is how much later than its path says the connection delivers.
func (p *pair) lateness() time.Duration {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.late
}

func (p *pair) hold(late time.Duration) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.late = late
}

func (p *pair) forget() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	delete(p.net.conns, p)
}

// Read waits for bytes.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

// Write returns when the bytes are sent or buffered.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.wrap("write", err)
}

func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: c.RemoteAddr(), Err: err}
}

// Close sends the buffer, and then accepts nothing more.
func (c *conn) Close() error {
	c.in.abandon()
	c.out.finish()
	if c.out.isAbandoned() {
		c.pair.forget()
	}
	return nil
}

// LocalAddr is this end's address.
func (c *conn) LocalAddr() net.Addr { return c.address }

// RemoteAddr is the other end's.
func (c *conn) RemoteAddr() net.Addr {
	if c.pair.client == c {
		return c.pair.server.address
	}
	return c.pair.client.address
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	return firstOf(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of Read; the zero time means none.
func (c *conn) SetReadDeadline(t time.Time) error { c.in.setDeadline(&c.in.readBy, t); return nil }

// SetWriteDeadline sets the deadline of Write; the zero time means none.
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setDeadline(&c.out.writeBy, t); return nil }

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// As in TCP.
const (
	window     = 256 << 10 // bytes that are written and not read
	packetSize = 64 << 10  // bytes; larger than a real one, to save timers
	leastRTO   = 200 * time.Millisecond
	mostRTO    = 2 * time.Minute
	giveUp     = 15 * time.Minute // without a sent packet
)

// half is one direction of a connection: bytes arrive in order, even if packets are lost.
type half struct {
	pair *pair
	way  direction

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	random    *rand.Rand
	waiting   []byte    // written, and not sent
	flying    [][]byte  // sent, and not arrived
	arrived   []byte    // and not read
	due       time.Time // arrival of the packet that was sent last
	rto       time.Duration
	failing   time.Time // start of the current run of lost packets
	unheard   bool      // the packet that was sent last can't have been acknowledged
	resend    *time.Timer
	finished  bool // no more writes
	sentEnd   bool
	ended     bool // the reader has everything
	abandoned bool // no more reads
	readErr   error
	writeErr  error
	readBy    time.Time
	writeBy   time.Time
}

func newHalf(p *pair, way direction, seed uint64) *half {
	return &half{pair: p, way: way, changed: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 1))}
}

// wake signals a change; mu is held.
func (h *half) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) setDeadline(which *time.Time, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*which = t
	h.wake()
}

// wait returns at the next change or deadline; mu is held before and after.
func (h *half) wait(deadline time.Time) {
	changed := h.changed
	h.mu.Unlock()
	defer h.mu.Lock()
	if deadline.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func past(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.abandoned:
			return 0, net.ErrClosed
		case past(h.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(h.arrived) > 0:
			n := copy(b, h.arrived)
			h.arrived = h.arrived[n:]
			h.wake()
			return n, nil
		case h.readErr != nil:
			return 0, h.readErr
		case h.ended:
			return 0, io.EOF
		}
		h.wait(h.readBy)
	}
}

func (h *half) write(b []byte) (written int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(b) > 0 {
		switch room := window - len(h.waiting) - h.inFlight() - len(h.arrived); {
		case h.writeErr != nil:
			return written, h.writeErr
		case h.finished:
			return written, net.ErrClosed
		case past(h.writeBy):
			return written, os.ErrDeadlineExceeded
		case room > 0:
			n := min(room, len(b))
			h.waiting = append(h.waiting, b[:n]...)
			b, written = b[n:], written+n
			h.send()
		default:
			h.wait(h.writeBy)
		}
	}
	return written, nil
}

// finish sends the end after the buffer.
func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.finished || h.writeErr != nil {
		return
	}
	h.finished = true
	h.wake()
	h.send()
}

// abandon ends reading: later packets are answered with a reset.
func (h *half) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned = true
	h.wake()
}

func (h *half) isAbandoned() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.abandoned
}

// fail ends the direction for its reader and its writer.
func (h *half) fail(read, write error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readErr == nil {
		h.readErr = read
	}
	if h.writeErr == nil {
		h.writeErr = write
	}
	if h.resend != nil {
		h.resend.Stop()
	}
	h.waiting = nil
	h.wake()
}

// send sends the buffer, unless a lost packet must be sent again first; mu is held. While the way
// back is down, nothing is acknowledged, and only one packet gets through.
func (h *half) send() {
	if h.resend != nil {
		return // later packets wait for the lost one
	}
	for h.writeErr == nil && (len(h.waiting) > 0 || h.finished && !h.sentEnd) {
		path := h.pair.net.path(h.way)
		delay, lost := path.packet(h.random)
		delay += h.pair.lateness()
		deaf := h.pair.net.path(direction{h.way.to, h.way.from}).Down
		if lost || deaf && h.unheard {
			h.lose(path)
			return
		}
		h.rto, h.failing, h.unheard = 0, time.Time{}, deaf
		packet := h.waiting[:min(len(h.waiting), packetSize)]
		h.waiting = h.waiting[len(packet):]
		h.sentEnd = len(h.waiting) == 0 && h.finished
		h.flying = append(h.flying, packet)
		if at := time.Now().Add(delay); at.After(h.due) {
			h.due = at
		}
		time.AfterFunc(time.Until(h.due), h.arrive)
	}
}

// lose schedules a retransmission, twice as late each time; mu is held.
func (h *half) lose(path Path) {
	now := time.Now()
	if h.failing.IsZero() {
		h.failing = now
	}
	if now.Sub(h.failing) > giveUp {
		h.writeErr, h.waiting = syscall.ETIMEDOUT, nil
		h.wake()
		return
	}
	if h.rto = min(2*h.rto, mostRTO); h.rto == 0 {
		h.rto = leastRTO + 2*path.Delay
	}
	h.resend = time.AfterFunc(h.rto, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.resend = nil
		h.send()
	})
}

func (h *half) inFlight() (bytes int) {
	for _, packet := range h.flying {
		bytes += len(packet)
	}
	return bytes
}

// arrive passes the oldest packet to the reader. Packets are due in order, but timers that are
// due at one time fire in any order.
func (h *half) arrive() {
	h.mu.Lock()
	packet := h.flying[0]
	h.flying = h.flying[1:]
	if h.abandoned && len(packet) > 0 {
		h.mu.Unlock()
		if !h.pair.net.path(direction{h.way.to, h.way.from}).Down {
			h.pair.reset()
		}
		return
	}
	defer h.mu.Unlock()
	h.arrived = append(h.arrived, packet...)
	h.ended = h.sentEnd && len(h.waiting) == 0 && len(h.flying) == 0
	h.wake()
}
