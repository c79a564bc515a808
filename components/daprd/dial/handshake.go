package dial

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// handshake is daprd's own credentials for the connections to one gate. It has gRPC show
// us the socket: nothing else does, and gRPC has no way to break a connection off.
type handshake struct {
	credentials.TransportCredentials
	gate *gate
}

// ClientHandshake lets daprd's credentials do theirs on a connection that is listened to.
func (h *handshake) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	beyondLosses(raw)
	c := &conn{Conn: raw, gate: h.gate}
	secured, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, c)
	if err != nil {
		return secured, info, err
	}
	h.gate.join(c)
	c.joined.Store(true)
	return secured, info, nil
}

// Clone copies daprd's credentials.
func (h *handshake) Clone() credentials.TransportCredentials {
	return &handshake{h.TransportCredentials.Clone(), h.gate}
}

// bundle is how gRPC takes credentials for a connection of its own.
type bundle struct{ handshake *handshake }

func (b bundle) TransportCredentials() credentials.TransportCredentials { return b.handshake }
func (b bundle) PerRPCCredentials() credentials.PerRPCCredentials       { return nil }
func (b bundle) NewWithMode(string) (credentials.Bundle, error)         { return b, nil }

// conn is a connection to a gate that notes when something comes.
type conn struct {
	net.Conn
	gate   *gate
	joined atomic.Bool
	parted sync.Once

	asked atomic.Int64 // when the first byte went out, in nanoseconds since began
	heard bool         // something came; of whoever reads
}

// began is what moments are measured from, without the clock of the wall.
var began = time.Now()

func (c *conn) Write(b []byte) (int, error) {
	if c.asked.Load() == 0 {
		c.asked.CompareAndSwap(0, int64(time.Since(began)))
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.gate.words.Add(1)
		if !c.heard {
			c.heard = true
			if asked := c.asked.Load(); asked != 0 {
				c.gate.took(time.Since(began) - time.Duration(asked))
			}
		}
	}
	return n, err
}

// Close closes the connection as gRPC wants it.
func (c *conn) Close() error {
	c.part()
	return c.Conn.Close()
}

// breakOff ends it without a word, which gRPC's reader notices at once.
func (c *conn) breakOff() {
	c.part()
	reset(c.Conn)
}

func (c *conn) part() {
	if c.joined.Load() {
		c.parted.Do(func() { c.gate.part(c) })
	}
}
