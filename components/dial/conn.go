package dial

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// endpointAttribute is the attribute that leads from a gRPC address to its endpoint.
type endpointAttribute struct{}

// connCredentials wraps daprd's own credentials to get hold of the socket. gRPC passes it nowhere
// else, and has no call to abort a connection.
type connCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake runs daprd's handshake on a watched connection.
func (h *connCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	e, ok := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(endpointAttribute{}).(*endpoint)
	if !ok {
		return h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	}
	extendUserTimeout(raw)
	c := &conn{Conn: raw, endpoint: e}
	secured, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, c)
	if err != nil {
		return secured, info, err
	}
	c.writer = &frameWriter{Conn: secured, remaining: len(preface)}
	e.channel.dialer.watcher.add(c)
	c.watched.Store(true)
	return c.writer, info, nil
}

// Clone copies daprd's credentials.
func (h *connCredentials) Clone() credentials.TransportCredentials {
	return &connCredentials{h.TransportCredentials.Clone()}
}

// conn is the socket of an endpoint. It counts reads and measures round trips.
type conn struct {
	net.Conn
	endpoint    *endpoint
	writer      *frameWriter // what gRPC writes to
	watched     atomic.Bool
	unwatchOnce sync.Once

	reads atomic.Uint64
	// unanswered is when the first bytes without an answer were written, in nanoseconds since
	// processStart. It is 0 without such bytes, and negative if an app answers them.
	unanswered atomic.Int64

	silence
}

// processStart is the origin of times that use the monotonic clock alone: Add keeps it, and AddDate does
// not. It is long before the start, so that times are positive on a fake clock, too.
var processStart = time.Now().Add(-60 * 365 * 24 * time.Hour)

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
		if written := c.unanswered.Load(); written != 0 && c.unanswered.CompareAndSwap(written, 0) {
			now := int64(time.Since(processStart))
			c.endpoint.remote.observe(time.Duration(now-max(written, -written)), written < 0)
		}
	}
	return n, err
}

// Close closes the connection for gRPC.
func (c *conn) Close() error {
	c.unwatch()
	return c.Conn.Close()
}

// abort resets the connection. gRPC's reader notices at once and ends the calls on it with
// Unavailable.
func (c *conn) abort() {
	c.unwatch()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // drop what was not sent; the connection is closed in any case
	}
	_ = c.Conn.Close()
}

func (c *conn) unwatch() {
	if c.watched.Load() {
		c.unwatchOnce.Do(func() { c.endpoint.channel.dialer.watcher.remove(c) })
	}
}

// ping writes a frame that the other end must answer at once, whatever its apps do (RFC 9113,
// 6.5.3). The other end is the process that terminates TLS: through a gateway, the sidecar.
func (c *conn) ping() {
	go func() { // a write to a dead socket blocks
		if c.writer.ping() {
			c.unanswered.Store(int64(time.Since(processStart)))
		}
	}()
}
