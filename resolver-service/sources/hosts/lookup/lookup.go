// Package lookup looks host names up, and says for how long the answers hold.
package lookup

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Shortest is the time from one look-up of a name to the next, whatever the answer says.
const Shortest = time.Second

// Func returns the addresses of a name, as [net.Resolver.LookupNetIP] does, and for how long they
// hold; 0 where that is not known, as with names of /etc/hosts.
type Func func(ctx context.Context, network, name string) ([]netip.Addr, time.Duration, error)

// Through looks names up as a resolver does: one with a Dial of its own, or the system's by Go's
// code; nil: the system's. It reads in the answers for how long they hold.
func Through(resolver func() *net.Resolver) Func {
	return func(ctx context.Context, network, name string) ([]netip.Addr, time.Duration, error) {
		dial := (&net.Dialer{}).DialContext
		if resolver != nil {
			if r := resolver(); r.Dial != nil {
				dial = r.Dial
			}
		}
		var seen lifetime
		reading := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if packets, ok := conn.(net.PacketConn); ok { // by which the resolver tells UDP
				return packetConn{conn, packets, &seen}, nil
			}
			return streamConn{conn, &seen}, nil
		}}
		addresses, err := reading.LookupNetIP(ctx, network, name)
		return addresses, seen.get(), err
	}
}

// lifetime is the shortest TTL among answers.
type lifetime struct {
	mu    sync.Mutex
	known bool
	least time.Duration
}

// note reads a message; what is none, such as the length before one, says nothing.
func (l *lifetime) note(message []byte) {
	var m dns.Msg
	if len(message) < 12 || m.Unpack(message) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range m.Answer {
		if ttl := time.Duration(r.Header().Ttl) * time.Second; !l.known || ttl < l.least {
			l.known, l.least = true, ttl
		}
	}
}

// get is the lifetime: at least Shortest where it is known, and else 0.
func (l *lifetime) get() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known {
		return 0
	}
	return max(l.least, Shortest)
}

// streamConn reads a message's length and then the message, each at once.
type streamConn struct {
	net.Conn
	*lifetime
}

// Read is that of net.Conn.
func (c streamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.note(p[:n])
	return n, err
}

type packetConn struct {
	net.Conn
	net.PacketConn
	*lifetime
}

func (c packetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.note(p[:n])
	return n, err
}

// What both embedded values have is that of the connection.

func (c packetConn) Close() error                       { return c.Conn.Close() }
func (c packetConn) LocalAddr() net.Addr                { return c.Conn.LocalAddr() }
func (c packetConn) SetDeadline(t time.Time) error      { return c.Conn.SetDeadline(t) }
func (c packetConn) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(t) }
func (c packetConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(t) }
