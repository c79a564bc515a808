package consulapi

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// bounded is a listener that refuses connections beyond a number, of one client and of
// all. Who is beyond is told so, as by a Consul agent.
type bounded struct {
	net.Listener
	most, mostOfOne int
	refused         func() // called for each connection that is

	mu    sync.Mutex
	count int
	of    map[netip.Addr]int
}

const (
	tooManyText = "Your IP is issuing too many concurrent connections, please rate limit your calls\n"
	tooMany     = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: 81\r\nConnection: close\r\n\r\n" + tooManyText
)

// refusalTimeout is how long who is refused may take to be told.
const refusalTimeout = time.Second

func newBounded(l net.Listener, most, mostOfOne int, refused func()) *bounded {
	if most == 0 {
		most = DefaultMaxConnections
	}
	if mostOfOne == 0 {
		mostOfOne = DefaultMaxConnectionsPerClient
	}
	return &bounded{Listener: l, most: most, mostOfOne: mostOfOne, refused: refused, of: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within the bounds.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addrOf(c.RemoteAddr())
		if b.enter(from) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { b.leave(from) })}, nil
		}
		b.refused()
		// The answer fits into the socket's buffer, so nobody waits for who is refused.
		_ = c.SetDeadline(time.Now().Add(refusalTimeout))
		_, _ = c.Write([]byte(tooMany))
		c.Close()
	}
}

func addrOf(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

func (b *bounded) enter(from netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count >= b.most || b.of[from] >= b.mostOfOne {
		return false
	}
	b.count++
	b.of[from]++
	return true
}

func (b *bounded) leave(from netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
	if b.of[from]--; b.of[from] == 0 {
		delete(b.of, from)
	}
}

// counted is a connection that says when it ends.
type counted struct {
	net.Conn
	leave func()
}

// Close closes it.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
