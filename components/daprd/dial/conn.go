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
type endpointAttribute struct{}

// handshake is daprd's own credentials. It has gRPC show us the socket: nothing else does,
// and gRPC has no way to break a connection off.
type connCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake lets daprd's credentials do theirs on a connection that is listened to.
func (h *connCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, ok := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(endpointAttribute{}).(*endpoint)
	if !ok {
		return h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	}
	extendUserTimeout(raw)
	c := &conn{Conn: raw, endpoint: p}
	secured, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, c)
	if err != nil {
		return secured, info, err
	}
	c.writer = &frameWriter{Conn: secured, remaining: len(preface)}
	p.channel.dialer.watcher.add(c)
	c.watched.Store(true)
	return c.writer, info, nil
}

// Clone copies daprd's credentials.
func (h *connCredentials) Clone() credentials.TransportCredentials {
	return &connCredentials{h.TransportCredentials.Clone()}
}

// conn is the socket of a point. It notes when something comes.
type conn struct {
	net.Conn
	endpoint    *endpoint
	writer      *frameWriter // what gRPC has of it
	watched     atomic.Bool
	unwatchOnce sync.Once

	reads      atomic.Uint64 // reads that brought something
	unanswered atomic.Int64  // when something went out that was not answered yet, in nanoseconds since began; negative where an app answers

	silence // of the watch
}

// began is what moments are measured from, without the clock of the wall.
var processStart = time.Now()

func (c *conn) Write(b []byte) (int, error) {
	if c.unanswered.Load() == 0 {
		now := int64(time.Since(processStart))
		if c.reads.Load() > 0 {
			now = -now
		}
		c.unanswered.CompareAndSwap(0, now)
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.reads.Add(1)
		if asked := c.unanswered.Load(); asked != 0 && c.unanswered.CompareAndSwap(asked, 0) {
			now := int64(time.Since(processStart))
			c.endpoint.remote.observe(time.Duration(now-max(asked, -asked)), asked < 0)
		}
	}
	return n, err
}

// Close closes the connection as gRPC wants it.
func (c *conn) Close() error {
	c.unwatch()
	return c.Conn.Close()
}

// breakOff ends it without a word, which gRPC's reader notices at once. gRPC ends the calls
// on it with Unavailable.
func (c *conn) abort() {
	c.unwatch()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what has not been sent is dropped; a connection that is over needs none
	}
	_ = c.Conn.Close()
}

func (c *conn) unwatch() {
	if c.watched.Load() {
		c.unwatchOnce.Do(func() { c.endpoint.channel.dialer.watcher.remove(c) })
	}
}

// inquire asks whoever is at the other end to say something. It is done by a frame that has
// to be answered at once, whatever apps do (RFC 9113, 6.5.3): by the process that ends the
// connection, which for one through a gateway is the sidecar behind it.
func (c *conn) ping() {
	go func() { // a socket that takes nothing any more blocks
		if c.writer.ping() {
			c.unanswered.Store(int64(time.Since(processStart)))
		}
	}()
}

// preface is what an HTTP/2 connection begins with (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const frameHeaderSize = 9 // bytes (RFC 9113, 4.1)

// emptySettings is a SETTINGS frame that sets nothing. A server answers it as any other; of
// PING frames gRPC's servers take but a few.
var emptySettings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// frames is a connection that knows where in what gRPC writes a frame ends, so that one of
// ours can go between.
type frameWriter struct {
	net.Conn

	mu          sync.Mutex // of writes
	remaining   int        // bytes until the next frame's header
	header      [frameHeaderSize]byte
	headerBytes int // bytes of the header
}

func (f *frameWriter) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Conn.Write(b)
	f.track(b[:n])
	return n, err
}

// pass notes what was written.
func (f *frameWriter) track(b []byte) {
	for len(b) > 0 {
		if f.remaining > 0 {
			n := min(f.remaining, len(b))
			f.remaining -= n
			b = b[n:]
			continue
		}
		n := copy(f.header[f.headerBytes:], b)
		f.headerBytes += n
		b = b[n:]
		if f.headerBytes == frameHeaderSize {
			f.remaining = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			f.headerBytes = 0
		}
	}
}

// inquire writes a frame that has to be answered, unless another is being written.
func (f *frameWriter) ping() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.remaining > 0 || f.headerBytes > 0 {
		return false
	}
	_, err := f.Conn.Write(emptySettings)
	return err == nil
}
