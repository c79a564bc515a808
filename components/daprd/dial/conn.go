package dial

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// pointKey is the attribute by which an address says which point it is of.
type pointKey struct{}

// handshake is daprd's own credentials. It has gRPC show us the socket: nothing else does,
// and gRPC has no way to break a connection off.
type handshake struct {
	credentials.TransportCredentials
}

// ClientHandshake lets daprd's credentials do theirs on a connection that is listened to.
func (h *handshake) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, ok := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(pointKey{}).(*point)
	if !ok {
		return h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	}
	beyondLosses(raw)
	c := &conn{Conn: raw, point: p}
	secured, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, c)
	if err != nil {
		return secured, info, err
	}
	c.frames = &frames{Conn: secured, ahead: len(preface)}
	p.channel.names.watch.join(c)
	c.joined.Store(true)
	return c.frames, info, nil
}

// Clone copies daprd's credentials.
func (h *handshake) Clone() credentials.TransportCredentials {
	return &handshake{h.TransportCredentials.Clone()}
}

// conn is the socket of a point. It notes when something comes.
type conn struct {
	net.Conn
	point  *point
	frames *frames // what gRPC has of it
	joined atomic.Bool
	parted sync.Once

	words atomic.Uint64 // reads that brought something
	asked atomic.Int64  // when something went out that was not answered yet, in nanoseconds since began; negative where an app answers

	listening // of the watch
}

// began is what moments are measured from, without the clock of the wall.
var began = time.Now()

func (c *conn) Write(b []byte) (int, error) {
	if c.asked.Load() == 0 {
		now := int64(time.Since(began))
		if c.words.Load() > 0 {
			now = -now
		}
		c.asked.CompareAndSwap(0, now)
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.words.Add(1)
		if asked := c.asked.Load(); asked != 0 && c.asked.CompareAndSwap(asked, 0) {
			now := int64(time.Since(began))
			c.point.gate.took(time.Duration(now-max(asked, -asked)), asked < 0)
		}
	}
	return n, err
}

// Close closes the connection as gRPC wants it.
func (c *conn) Close() error {
	c.part()
	return c.Conn.Close()
}

// breakOff ends it without a word, which gRPC's reader notices at once. gRPC ends the calls
// on it with Unavailable.
func (c *conn) breakOff() {
	c.part()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what has not been sent is dropped; a connection that is over needs none
	}
	_ = c.Conn.Close()
}

func (c *conn) part() {
	if c.joined.Load() {
		c.parted.Do(func() { c.point.channel.names.watch.part(c) })
	}
}

// inquire asks whoever is at the other end to say something. It is done by a frame that has
// to be answered at once, whatever apps do (RFC 9113, 6.5.3): by the process that ends the
// connection, which for one through a gateway is the sidecar behind it.
func (c *conn) inquire() {
	go func() { // a socket that takes nothing any more blocks
		if c.frames.inquire() {
			c.asked.Store(int64(time.Since(began)))
		}
	}()
}

// preface is what an HTTP/2 connection begins with (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const frameHeader = 9 // bytes (RFC 9113, 4.1)

// emptySettings is a SETTINGS frame that sets nothing. A server answers it as any other; of
// PING frames gRPC's servers take but a few.
var emptySettings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// frames is a connection that knows where in what gRPC writes a frame ends, so that one of
// ours can go between.
type frames struct {
	net.Conn

	mu     sync.Mutex // of writes
	ahead  int        // bytes until the next frame's header
	header [frameHeader]byte
	have   int // bytes of the header
}

func (f *frames) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Conn.Write(b)
	f.pass(b[:n])
	return n, err
}

// pass notes what was written.
func (f *frames) pass(b []byte) {
	for len(b) > 0 {
		if f.ahead > 0 {
			n := min(f.ahead, len(b))
			f.ahead -= n
			b = b[n:]
			continue
		}
		n := copy(f.header[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have == frameHeader {
			f.ahead = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			f.have = 0
		}
	}
}

// inquire writes a frame that has to be answered, unless another is being written.
func (f *frames) inquire() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.ahead > 0 || f.have > 0 {
		return false
	}
	_, err := f.Conn.Write(emptySettings)
	return err == nil
}
