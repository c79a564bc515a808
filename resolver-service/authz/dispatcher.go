package authz

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// Dispatcher is a listener of connections that another listener took: the gateway's, or the
// resolver's after a handshake. With it, callers of different kinds come by one port and
// have servers of their own.
type Dispatcher struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewDispatcher makes a Dispatcher whose address is that of the other listener.
func NewDispatcher(addr net.Addr) *Dispatcher {
	h := &Dispatcher{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	return h
}

// Dispatch hands a connection over, or closes it where nobody takes any more.
func (h *Dispatcher) Dispatch(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		c.Close()
	}
}

// Accept returns the next connection.
func (h *Dispatcher) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *Dispatcher) Close() error {
	h.close()
	return nil
}

// Addr is that of the listener that took the connections.
func (h *Dispatcher) Addr() net.Addr { return h.addr }

// dispatched is a connection with what its handshake has told.
type dispatched struct {
	net.Conn
	info credentials.AuthInfo
}

// dispatchingCredentials are credentials of a server that hands connections over, by their handshake.
type dispatchingCredentials struct {
	credentials.TransportCredentials
	to   *Dispatcher
	when func(credentials.AuthInfo) bool
}

// SplitOperators are the credentials of two servers at one port: that of everybody, which makes the
// handshakes, and that of operators, which gets their connections from a Dispatcher.
func (a *Authorizer) SplitOperators(creds credentials.TransportCredentials, to *Dispatcher) (all, operators credentials.TransportCredentials) {
	isOperator := func(info credentials.AuthInfo) bool {
		kind, _ := a.KindOf(grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{AuthInfo: info}))
		return kind == Operator
	}
	return dispatchingCredentials{creds, to, isOperator}, dispatchedCredentials{creds}
}

// ServerHandshake is the handshake, after which this server has the connection or the other.
func (d dispatchingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil || !d.when(info) {
		return conn, info, err
	}
	d.to.Dispatch(&dispatched{conn, info})
	return nil, nil, credentials.ErrConnDispatched
}

// Clone makes a copy.
func (d dispatchingCredentials) Clone() credentials.TransportCredentials {
	d.TransportCredentials = d.TransportCredentials.Clone()
	return d
}

// dispatchedCredentials are credentials of the server that the connections are dispatched to.
type dispatchedCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake returns what the handshake was.
func (h dispatchedCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if known, ok := c.(*dispatched); ok {
		return known.Conn, known.info, nil
	}
	return h.TransportCredentials.ServerHandshake(c)
}

// Clone makes a copy.
func (h dispatchedCredentials) Clone() credentials.TransportCredentials {
	return dispatchedCredentials{h.TransportCredentials.Clone()}
}
