package gateway

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// peerConn is a connection of another cluster's resolver service, from its first byte.
type peerConn struct {
	net.Conn
	first  []byte // read by the gateway; given out before the rest
	of     *admitted
	closed sync.Once
	began  time.Time
	done   atomic.Bool // the handshake
}

// handOver gives a connection to Config.Peers, Config.Tunnels or Config.Link. It counts as open until that closes it.
func (s *serving) handOver(client relay.Conn, in greeting, take func(net.Conn), a *admitted) {
	client.SetDeadline(time.Time{})
	s.running.Add(-1)
	conn := &peerConn{Conn: client, first: bytes.Clone(in.bytes), of: a, began: time.Now()}
	if !s.peers.add(conn) {
		conn.Close()
		return
	}
	take(conn)
}

// Read gives out the bytes that the gateway read, and then the next ones. One goroutine may call
// it.
func (c *peerConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}

// SetDeadline sets the deadline. A gRPC server clears it once the handshake is finished.
func (c *peerConn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.done.Store(true)
	}
	return c.Conn.SetDeadline(t)
}

// SyscallConn is that of the TCP connection, for options of the socket.
func (c *peerConn) SyscallConn() (syscall.RawConn, error) {
	tcp, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return tcp.SyscallConn()
}

// Close closes the connection and counts it out.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		c.of.serving.peers.remove(c)
		c.of.serving.running.Add(1) // which Closed takes away again
		c.of.Closed()
	})
	return err
}

// peerConns are the connections that were handed over and are open.
type peerConns struct {
	mu     sync.Mutex
	open   map[*peerConn]struct{}
	closed bool
}

// add takes a connection in; false once all were closed.
func (p *peerConns) add(c *peerConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.open == nil {
		p.open = map[*peerConn]struct{}{}
	}
	p.open[c] = struct{}{}
	return true
}

func (p *peerConns) remove(c *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// evict closes the oldest connection whose handshake is not finished.
func (p *peerConns) evict() bool {
	var oldest *peerConn
	p.mu.Lock()
	for c := range p.open {
		if !c.done.Load() && (oldest == nil || c.began.Before(oldest.began)) {
			oldest = c
		}
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return oldest != nil
}

// close closes every connection that is left, and those to come.
func (p *peerConns) close() {
	p.mu.Lock()
	p.closed = true
	left := make([]*peerConn, 0, len(p.open))
	for c := range p.open {
		left = append(left, c)
	}
	p.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
}
