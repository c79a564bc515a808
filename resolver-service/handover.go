package resolverservice

import (
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handover is a listener of connections that another listener took: the gateway's, or the
// resolver's after a handshake. With it, callers of different kinds come by one port and
// have servers of their own.
type handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newHandover(addr net.Addr) *handover {
	h := &handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	return h
}

// give hands a connection over, or closes it where nobody takes any more.
func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		c.Close()
	}
}

// Accept returns the next connection.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *handover) Close() error {
	h.close()
	return nil
}

// Addr is that of the listener that took the connections.
func (h *handover) Addr() net.Addr { return h.addr }

// handed is a connection with what its handshake has told.
type handed struct {
	net.Conn
	info credentials.AuthInfo
}

// dispatching are credentials of a server that hands connections over, by their handshake.
type dispatching struct {
	credentials.TransportCredentials
	to   *handover
	when func(credentials.AuthInfo) bool
}

// ServerHandshake is the handshake, after which this server has the connection or the other.
func (d dispatching) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil || !d.when(info) {
		return conn, info, err
	}
	d.to.give(&handed{conn, info})
	return nil, nil, credentials.ErrConnDispatched
}

// Clone makes a copy.
func (d dispatching) Clone() credentials.TransportCredentials {
	d.TransportCredentials = d.TransportCredentials.Clone()
	return d
}

// handedOver are credentials of the server that the connections are handed to.
type handedOver struct {
	credentials.TransportCredentials
}

// ServerHandshake returns what the handshake was.
func (h handedOver) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if known, ok := c.(*handed); ok {
		return known.Conn, known.info, nil
	}
	return h.TransportCredentials.ServerHandshake(c)
}

// Clone makes a copy.
func (h handedOver) Clone() credentials.TransportCredentials {
	return handedOver{h.TransportCredentials.Clone()}
}
