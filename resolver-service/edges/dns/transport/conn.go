package transport

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

const (
	// defaultStall is how long a peer may take for the rest of a query that it has begun
	// to send, for a response, and for a TLS handshake.
	defaultStall = 5 * time.Second
	// defaultLast is how long a connection that has brought no query, or a part of one, may take
	// for it, and afterLast any other for another, once Serve is told to end.
	defaultLast = 500 * time.Millisecond
	afterLast   = 50 * time.Millisecond
	// maxInFlight is how many queries of one connection are waited for at once; the next
	// one is read when one of them is answered.
	maxInFlight = 64
	// firstRoom is how much of an idle connection's input there is room for.
	firstRoom = 512
)

// frames has room for the largest message after another one that is smaller.
var frames = sync.Pool{New: func() any { return new([2 * (2 + wire.MaxSize)]byte) }}

// conn is one connection. A goroutine of its own reads, answers in order what can be
// answered at once, and closes it. What is waited for is written when it is there, in
// any order (RFC 7766, section 7).
type conn struct {
	*worker
	raw    net.Conn
	net    net.Conn // raw, or TLS over it
	client netip.Addr
	usedAt atomic.Int64 // see conns.used

	established atomic.Bool // the TLS handshake has ended

	asked    bool      // it has brought a query
	until    time.Time // when it ends, once ctx has ended; zero before
	in       []byte    // what was read and not answered yet
	out      []byte    // responses, with their lengths, not sent yet
	slots    chan struct{}
	waiting  atomic.Int32 // queries that are waited for
	finished sync.WaitGroup
	writing  sync.Mutex
}

func (s *serving) newConn(raw net.Conn, config *tls.Config) *conn {
	c := &conn{worker: s.worker(s.stream(), int(s.counts.accepted.Load())), raw: raw, net: raw, slots: make(chan struct{}, maxInFlight)}
	if config != nil {
		c.net = tls.Server(raw, config)
	}
	c.query.From = addressOf(raw.RemoteAddr())
	c.query.To = addressOf(raw.LocalAddr()).Addr()
	c.client = client(c.query.From.Addr())
	return c
}

// serve answers what comes until the peer goes, nothing comes for long, or ctx ends.
func (c *conn) serve(ctx context.Context) {
	defer c.raw.Close()
	defer c.conns.remove(c)
	if t, ok := c.net.(*tls.Conn); ok {
		if c.handshake(ctx, t) != nil {
			return
		}
		defer t.Close()
	}
	defer c.finished.Wait()
	c.in = make([]byte, 0, firstRoom)
	for c.read(ctx) {
		c.conns.used(c) // before its peer knows of an answer
		c.asked = true
		if !c.answerAll(ctx) {
			return
		}
	}
}

// handshake makes the TLS handshake, for which a peer has as long as for a query.
func (c *conn) handshake(ctx context.Context, t *tls.Conn) error {
	t.SetDeadline(time.Now().Add(c.cfg.stall))
	if ctx.Err() != nil {
		c.interrupt()
	}
	err := t.HandshakeContext(context.WithoutCancel(ctx))
	c.established.Store(true)
	t.SetDeadline(time.Time{})
	return err
}

// interrupt ends a read that is under way, or gives a TLS handshake little time.
func (c *conn) interrupt() {
	deadline := time.Unix(1, 0)
	if c.net != c.raw && !c.established.Load() {
		deadline = time.Now().Add(c.cfg.last)
	}
	c.net.SetReadDeadline(deadline)
}

// read waits until there is a whole query.
func (c *conn) read(ctx context.Context) bool {
	var deadline time.Time // of the rest of a query
	for !whole(c.in) {
		c.grow()
		switch {
		case len(c.in) == 0:
			c.net.SetReadDeadline(time.Now().Add(c.conns.idleTimeout(c.cfg.IdleTimeout)))
		case deadline.IsZero():
			deadline = time.Now().Add(c.cfg.stall)
			c.net.SetReadDeadline(deadline)
		}
		ending := ctx.Err() != nil
		if ending {
			c.net.SetReadDeadline(c.end())
		}
		n, err := c.net.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		switch {
		case err == nil, n > 0:
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil && (!ending || time.Now().Before(c.until)):
			// It was interrupted: a last query may be on its way.
		case errors.Is(err, os.ErrDeadlineExceeded) && len(c.in) == 0 && c.waiting.Load() > 0 && ctx.Err() == nil:
			// It is the peer that waits.
		default:
			return false
		}
	}
	return true
}

// end is when the connection ends, now that ctx has. A peer that has just connected is about to
// ask. If its query came to a closed connection, the peer would be told of a reset.
func (c *conn) end() time.Time {
	switch soon := time.Now().Add(afterLast); {
	case c.until.IsZero() && (!c.asked || len(c.in) > 0):
		c.until = time.Now().Add(c.cfg.last)
	case c.until.IsZero(), c.asked && len(c.in) == 0 && c.until.After(soon):
		c.until = soon
	}
	return c.until
}

// whole tells whether a whole query, with its length before it, is at the front.
func whole(in []byte) bool {
	return len(in) >= 2 && len(in)-2 >= int(binary.BigEndian.Uint16(in))
}

// grow makes room to read into: as much again as has come, whatever length was promised.
func (c *conn) grow() {
	if len(c.in) == cap(c.in) {
		c.in = append(make([]byte, 0, min(2*cap(c.in), 2+wire.MaxSize)), c.in...)
	}
}

// answerAll answers the queries that were read whole, as many as there are by as few
// writes as possible, and keeps what is left.
func (c *conn) answerAll(ctx context.Context) bool {
	room := frames.Get().(*[2 * (2 + wire.MaxSize)]byte) // of nothing else
	defer frames.Put(room)
	c.out = room[:0]
	rest := c.in
	for whole(rest) {
		end := 2 + int(binary.BigEndian.Uint16(rest))
		if !c.answerOne(ctx, rest[2:end]) {
			return false
		}
		rest = rest[end:]
	}
	c.keep(rest)
	return c.flush(ctx)
}

// flush sends the responses so far.
func (c *conn) flush(ctx context.Context) bool {
	if len(c.out) == 0 {
		return true
	}
	out := c.out
	c.out = out[:0]
	return c.write(ctx, out)
}

// keep moves what is left to the front, and gives up room that only a large query needs.
func (c *conn) keep(rest []byte) {
	if len(rest) == 0 && cap(c.in) > firstRoom {
		c.in = make([]byte, 0, firstRoom)
		return
	}
	c.in = append(c.in[:0], rest...)
}

// answerOne answers a query. It returns false where the peer speaks no DNS, or is gone.
func (c *conn) answerOne(ctx context.Context, query []byte) bool {
	c.tally.queries.Add(1)
	if len(query) < wire.HeaderSize {
		c.tally.dropped.Add(1)
		return false
	}
	if cap(c.out)-len(c.out) < 2+wire.MaxSize && !c.flush(ctx) {
		return false
	}
	c.query.Packet, c.query.Standing = query, Stranger
	start := len(c.out) + 2
	room := c.out[start:start:cap(c.out)]
	response, later := c.handler.Answer(&c.query, room)
	if later {
		if !c.slot(ctx) {
			return false
		}
		if c.wait(ctx) {
			return true
		}
		c.tally.overload.Add(1)
		response = servFail(c.out[start:start:cap(c.out)], query)
	}
	if len(response) < wire.HeaderSize {
		c.tally.dropped.Add(1)
		return true
	}
	c.tally.sent(response)
	c.out = appendFrame(c.out, response) // mostly where it is already
	return true
}

// appendFrame appends a message with its length before it.
func appendFrame(out, m []byte) []byte {
	return append(binary.BigEndian.AppendUint16(out, uint16(len(m))), m...)
}

// slot waits until there are not too many queries of this connection in flight.
func (c *conn) slot(ctx context.Context) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	if !c.flush(ctx) {
		return false
	}
	select {
	case c.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait has the query waited for, in the slot that was taken for it.
func (c *conn) wait(ctx context.Context) bool {
	c.waiting.Add(1)
	c.finished.Add(1)
	done := func() {
		c.waiting.Add(-1)
		<-c.slots
		c.finished.Done()
	}
	started := c.waits.start(&c.query, c.handler, func(_ *Query, response []byte) func() {
		if len(response) < wire.HeaderSize {
			c.tally.dropped.Add(1)
			return done
		}
		frame := appendFrame(nil, response)
		return func() {
			defer done()
			if c.write(ctx, frame) {
				c.tally.sent(frame[2:])
			}
		}
	})
	if !started {
		done()
		return false
	}
	c.tally.waited.Add(1)
	return true
}

// write sends whole messages. A peer that does not take them in time loses the
// connection.
func (c *conn) write(ctx context.Context, frames []byte) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	timeout := c.cfg.stall
	if ctx.Err() != nil {
		timeout = graceful
	}
	c.net.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := c.net.Write(frames); err != nil {
		c.raw.Close()
		return false
	}
	return true
}
