// Package bounded limits the connections that a listener takes: in all, of one client, and
// of those that have yet to finish their handshake.
package bounded

import (
	"cmp"
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds are how many connections a listener has open at once. 0 is no bound.
type Bounds struct {
	Max       int // in all
	PerClient int // of one client address; by IPv6 of one /64
	// Pending bounds the connections whose handshake is not finished. They count towards the
	// other bounds, too, but give way to new ones; half of Pending is for one client. A server
	// whose connections finish by [Conn.Settle] needs it. 0: connections are settled from the
	// start.
	Pending int
	// Grace is how long a connection that has sent something may be pending before it gives
	// way; 500 ms by default. One that has sent nothing gives way at once.
	Grace time.Duration
	// Wait is how long a connection beyond the bounds, and those behind it, wait for room
	// before it is refused. 0: it is refused at once.
	Wait time.Duration
	// UserTimeout is how long a client may leave bytes unacknowledged before the kernel ends
	// the connection, on Linux. 0: the kernel's default.
	UserTimeout time.Duration
	// Refuse is called with each connection that is refused before it is closed, and must
	// not block. It may tell the client. Nil: nobody does.
	Refuse func(net.Conn)
	// Count is called for each connection that is closed for want of room; nil: nobody counts.
	Count func(Reason)
}

// Reason is why a connection was closed for want of room.
type Reason string

// The reasons.
const (
	Full       Reason = "full"       // refused: Max is reached
	ClientFull Reason = "client"     // refused: PerClient is reached
	Busy       Reason = "handshakes" // refused: Pending is reached by handshakes that go on
	Evicted    Reason = "gave_way"   // closed before its handshake was finished, for a newer one
)

// Reasons are all reasons.
func Reasons() []Reason { return []Reason{Full, ClientFull, Busy, Evicted} }

// defaultGrace is that of Bounds.
const defaultGrace = 500 * time.Millisecond

// maxPeeks is how many connections are looked at for bytes that nobody has read yet.
const maxPeeks = 16

// Listener is a listener with bounds. It has no goroutine of its own.
type Listener struct {
	net.Listener
	bounds Bounds

	mu      sync.Mutex
	open    map[net.Addr]*Conn // by the address that RemoteAddr returns, a pointer
	clients map[netip.Addr]*client
	silent  list.List // of pending *Conn without a byte, oldest first
	pending list.List // of pending *Conn that have sent something, oldest first
}

// client is what one client has open.
type client struct {
	conns           int
	silent, pending list.List // as those of Listener
}

// New bounds a listener.
func New(l net.Listener, b Bounds) *Listener {
	return &Listener{Listener: l, bounds: b, open: map[net.Addr]*Conn{}, clients: map[netip.Addr]*client{}}
}

// Accept returns the next connection that is within the bounds, as a [*Conn].
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, gone, reason := l.enter(raw)
		for end := time.Now().Add(l.bounds.Wait); reason != "" && time.Now().Before(end); {
			time.Sleep(roomPause)
			c, gone, reason = l.enter(raw)
		}
		if gone != nil {
			l.count(Evicted)
			gone.Close()
		}
		if reason == "" {
			if l.bounds.UserTimeout > 0 {
				setUserTimeout(raw, l.bounds.UserTimeout)
			}
			return c, nil
		}
		l.count(reason)
		if l.bounds.Refuse != nil {
			l.bounds.Refuse(raw)
		}
		raw.Close()
	}
}

func (l *Listener) count(r Reason) {
	if l.bounds.Count != nil {
		l.bounds.Count(r)
	}
}

// ClientOf is what a remote address counts as: its IP, or by IPv6 the /64 that one host has.
func ClientOf(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{} // a unix socket: all are one client
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip
	}
	p, _ := ip.Prefix(64) // of an IPv6 address there is always one
	return p.Addr()
}

// enter takes a connection in, or says why it is refused. gone is one that has given way.
func (l *Listener) enter(raw net.Conn) (c, gone *Conn, reason Reason) {
	from := ClientOf(raw.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clients[from]
	if of == nil {
		of = &client{}
	}
	local := !from.IsValid()
	switch b := &l.bounds; {
	case b.PerClient > 0 && of.conns >= b.PerClient && !local:
		if gone = l.oldest(&of.silent, &of.pending); gone == nil {
			return nil, nil, ClientFull
		}
	case b.Pending > 0 && of.silent.Len()+of.pending.Len() >= max(b.Pending/2, 1) && !local:
		if gone = l.oldest(&of.silent, &of.pending); gone == nil {
			return nil, nil, Busy
		}
	case b.Max > 0 && len(l.open) >= b.Max:
		if gone = l.oldest(&l.silent, &l.pending); gone == nil {
			return nil, nil, Full
		}
	case b.Pending > 0 && l.silent.Len()+l.pending.Len() >= b.Pending:
		if gone = l.oldest(&l.silent, &l.pending); gone == nil {
			return nil, nil, Busy
		}
	}
	if gone != nil {
		l.remove(gone)
	}
	c = &Conn{Conn: raw, l: l, remote: raw.RemoteAddr(), from: from, client: of, began: time.Now()}
	l.clients[from] = of
	l.open[c.remote] = c
	of.conns++
	if l.bounds.Pending > 0 {
		c.state.Store(silent)
		c.place, c.placeOf = l.silent.PushBack(c), of.silent.PushBack(c)
	} else {
		c.state.Store(established)
	}
	return c, gone, ""
}

// oldest is the connection that gives way: the oldest whose client has sent nothing, or else
// the oldest of all if its handshake has had its time. On a busy machine, bytes may have come
// that nobody has read yet: such a connection is not silent. l.mu is held.
func (l *Listener) oldest(silent, pending *list.List) *Conn {
	var quiet *Conn // the oldest that has sent nothing
	for range maxPeeks {
		e := silent.Front()
		if e == nil {
			break
		}
		c := e.Value.(*Conn)
		if !readable(c.Conn) {
			quiet = c
			break
		}
		l.removePending(c)
		c.addPending()
	}
	if quiet != nil && time.Since(quiet.began) >= silentGrace {
		return quiet
	}
	if e := pending.Front(); e != nil && time.Since(e.Value.(*Conn).began) >= l.grace() {
		return e.Value.(*Conn)
	}
	if l.bounds.Wait > 0 {
		return nil
	}
	return quiet
}

// silentGrace is how long a connection may be silent before it gives way rather than others
// that have sent something long ago: its first bytes may be on their way.
const silentGrace = 50 * time.Millisecond

// pause is from one look for room to the next.
const roomPause = 5 * time.Millisecond

func (l *Listener) grace() time.Duration { return cmp.Or(l.bounds.Grace, defaultGrace) }

// readable tells whether a connection has bytes that nobody has read yet.
func readable(conn net.Conn) (some bool) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // of one that is closed nothing can be read
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		some = err == nil && n > 0
	})
	return some
}

// Hangup closes the connection with a remote address, which must be the value that its
// RemoteAddr returned. gRPC hands it to handlers as [peer.Peer.Addr].
func (l *Listener) Hangup(remote net.Addr) {
	l.mu.Lock()
	c := l.open[remote]
	l.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// Len is how many connections are open, and how many of them are pending.
func (l *Listener) Len() (open, pending int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open), l.silent.Len() + l.pending.Len()
}

// drop takes a connection out. l.mu is held.
func (l *Listener) remove(c *Conn) {
	if l.open[c.remote] != c {
		return
	}
	delete(l.open, c.remote)
	l.removePending(c)
	if c.client.conns--; c.client.conns == 0 {
		delete(l.clients, c.from)
	}
}

// unlist takes a connection out of those that are pending. l.mu is held.
func (l *Listener) removePending(c *Conn) {
	switch c.state.Load() {
	case silent:
		l.silent.Remove(c.place)
		c.client.silent.Remove(c.placeOf)
	case pending:
		l.pending.Remove(c.place)
		c.client.pending.Remove(c.placeOf)
	}
	c.state.Store(established)
}

// States of a connection.
const (
	established int32 = iota
	silent            // pending, and nothing has come
	pending           // pending, and something has come
)

// Conn is a connection of a Listener.
type Conn struct {
	net.Conn
	l      *Listener
	remote net.Addr
	from   netip.Addr
	client *client
	began  time.Time

	state          atomic.Int32
	place, placeOf *list.Element // while pending
}

// Settle says that the handshake is finished. The connection gives way to no other from then on.
func (c *Conn) Established() {
	if c.state.Load() == established {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.removePending(c)
}

// SetDeadline sets the deadline. A gRPC server has one for the handshake, from TLS up to the
// client's HTTP/2 settings, and clears it after; so that settles the connection.
func (c *Conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.Established()
	}
	return c.Conn.SetDeadline(t)
}

// Read reads, and notes that the client has sent something.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.state.Load() == silent {
		c.noteBytes()
	}
	return n, err
}

func (c *Conn) noteBytes() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state.Load() != silent || c.l.open[c.remote] != c {
		return
	}
	c.l.removePending(c)
	c.addPending()
}

// Idle says that the connection may give way to a new one, until Settle.
func (c *Conn) Idle() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state.Load() != established || c.l.open[c.remote] != c || c.l.bounds.Pending == 0 {
		return
	}
	c.began = time.Now()
	c.addPending()
}

// list takes the connection in with those that are pending. l.mu is held.
func (c *Conn) addPending() {
	c.place, c.placeOf = c.l.pending.PushBack(c), c.client.pending.PushBack(c)
	c.state.Store(pending)
}

// HTTPState is the ConnState of an HTTP server behind a Listener with Pending: a connection
// gives way while it waits for a request.
func HTTPState(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*Conn)
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		c.Established()
	case http.StateIdle:
		c.Idle()
	}
}

// RemoteAddr is the client's address: the same value at each call.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Close closes it.
func (c *Conn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
