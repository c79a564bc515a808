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

// pair is one connection: both of its ends.
type pair struct {
	net            *Network
	client, server *conn
}

// conn is one end of a connection.
type conn struct {
	pair    *pair
	host    string
	address address
	in, out *half // what this end reads, and what it writes
}

// connect makes a connection, which nobody has accepted yet.
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

// reset ends both ends at once.
func (p *pair) reset() {
	for _, h := range []*half{p.client.in, p.client.out} {
		h.fail(syscall.ECONNRESET, syscall.ECONNRESET)
	}
	p.forget()
}

// kill ends the end that a host has; the other learns of it if the path leads there.
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

// Write waits until the bytes are on their way, or in the buffer of this end.
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

// Close sends what is in the buffer, and takes nothing more.
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

// SetReadDeadline ends Read at a time; the zero time at none.
func (c *conn) SetReadDeadline(t time.Time) error { c.in.setDeadline(&c.in.readBy, t); return nil }

// SetWriteDeadline ends Write at a time; the zero time at none.
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setDeadline(&c.out.writeBy, t); return nil }

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// As TCP does it.
const (
	window     = 256 << 10 // bytes that are written and not read
	packetSize = 64 << 10  // bytes; larger than a real one, to save timers
	leastRTO   = 200 * time.Millisecond
	mostRTO    = 2 * time.Minute
	giveUp     = 15 * time.Minute // that nothing could be sent for
)

// half is one direction of a connection: bytes arrive whole and in order, however many
// packets of them are lost.
type half struct {
	pair *pair
	way  direction

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	random    *rand.Rand
	waiting   []byte    // written, and not sent
	flying    [][]byte  // sent, and not arrived
	arrived   []byte    // and not read
	due       time.Time // when the packet that was sent last arrives
	rto       time.Duration
	failing   time.Time // since when packets were lost without a break
	unheard   bool      // what was sent last can't have been acknowledged
	resend    *time.Timer
	finished  bool // nothing more is written
	sentEnd   bool
	ended     bool // the reader has all there is
	abandoned bool // nobody reads
	readErr   error
	writeErr  error
	readBy    time.Time
	writeBy   time.Time
}

func newHalf(p *pair, way direction, seed uint64) *half {
	return &half{pair: p, way: way, changed: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 1))}
}

// wake tells of a change; with mu held.
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

// wait returns at the next change, or at a deadline; with mu held, and again after it.
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

// finish sends the end after what is waiting.
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

// abandon reads no more: what arrives from now on is answered with a reset.
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

// send sends what waits, unless a packet is to be sent again first; with mu held. While
// the way back is down nothing is acknowledged, and all that gets through is one packet.
func (h *half) send() {
	if h.resend != nil {
		return // what comes later has to wait for what was lost
	}
	for h.writeErr == nil && (len(h.waiting) > 0 || h.finished && !h.sentEnd) {
		path := h.pair.net.path(h.way)
		delay, lost := path.packet(h.random)
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

// lose sends again after a while, twice as long each time; with mu held.
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

// arrive hands the oldest packet that is under way to the reader. Each is due no sooner
// than the one before, but timers that are due at one time fire in any order.
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
