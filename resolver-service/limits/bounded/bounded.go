// Package bounded limits the connections of a listener: in all, for each client, and with an
// unfinished handshake.
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

	"golang.org/x/sys/unix"
)

// Bounds limit the open connections of a listener. 0 means no bound.
type Bounds struct {
	Max       int // in all
	PerClient int // for each client address; with IPv6, for each /64
	// Pending bounds the connections with an unfinished handshake. They count towards the other
	// bounds as well, but new connections may evict them. One client may have half of Pending. A
	// server that calls [Conn.Established] needs it. 0: connections count as established from the
	// start.
	Pending int
	// Grace is how long a pending connection that has sent something is safe from eviction; 500
	// ms by default. One that has sent nothing can be evicted at once.
	Grace time.Duration
	// Wait is how long a connection over the bounds waits for room before it is refused. Later
	// ones wait behind it. 0: it is refused at once.
	Wait time.Duration
	// UserTimeout is how long a client may leave bytes unacknowledged before the kernel ends the
	// connection, on Linux. 0: the kernel's default.
	UserTimeout time.Duration
	// Refuse is called with each refused connection before it is closed, for example to inform
	// the client. It must not block. It may be nil.
	Refuse func(net.Conn)
	// Count is called for each connection that is closed for lack of room. It may be nil.
	Count func(Reason)
}

// Reason is why a connection was closed for lack of room.
type Reason string

// The reasons.
const (
	Full       Reason = "full"       // refused: Max is reached
	ClientFull Reason = "client"     // refused: PerClient is reached
	Busy       Reason = "handshakes" // refused: Pending is reached, and none can be evicted
	Evicted    Reason = "gave_way"   // closed with an unfinished handshake, to make room
)

// Reasons returns all reasons.
func Reasons() []Reason { return []Reason{Full, ClientFull, Busy, Evicted} }

// defaultGrace is the default of Bounds.Grace.
const defaultGrace = 500 * time.Millisecond

// maxPeeks bounds how many connections are checked for unread bytes.
const maxPeeks = 16

// Listener is a listener with bounds. It has no goroutine of its own.
type Listener struct {
	net.Listener
	bounds Bounds

	mu      sync.Mutex
	open    map[net.Addr]*Conn // by the address that RemoteAddr returns, a pointer
	clients map[netip.Addr]*client
	silent  list.List // pending *Conn without a byte, oldest first
	pending list.List // pending *Conn that have sent something, oldest first
}

// client is the open connections of one client.
type client struct {
	conns           int
	silent, pending list.List // as in Listener
}

// New limits a listener.
func New(l net.Listener, b Bounds) *Listener {
	return &Listener{Listener: l, bounds: b, open: map[net.Addr]*Conn{}, clients: map[netip.Addr]*client{}}
}

// Accept returns the next connection within the bounds, as a [*Conn].
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

// ClientOf returns the client of a remote address: its IP or, with IPv6, the /64 of the host.
func ClientOf(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{} // a Unix socket: one client
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip
	}
	p, _ := ip.Prefix(64) // never fails for IPv6
	return p.Addr()
}

// enter counts a connection, or returns why it is refused. gone is a connection that it evicts.
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

// oldest returns the connection to evict: one that its client has reset, the oldest silent one,
// or else the oldest of all whose grace is over. On a busy machine a connection may have bytes
// that the server has not come to read: it is not silent, and not evicted before others. mu is
// held.
func (l *Listener) oldest(silent, pending *list.List) *Conn {
	var quiet *Conn // the oldest silent one
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
	var over *Conn // the oldest whose grace is over
	e := pending.Front()
	for range maxPeeks {
		if e == nil {
			break
		}
		c := e.Value.(*Conn)
		if hungUp(c.Conn) {
			return c
		}
		if age := time.Since(c.began); over == nil && age >= l.grace() && (age >= busyGraces*l.grace() || !readable(c.Conn)) {
			over = c
		}
		e = e.Next()
	}
	if quiet != nil && time.Since(quiet.began) >= max(silentGrace, l.grace()) {
		return quiet
	}
	if over != nil {
		return over
	}
	if l.bounds.Wait > 0 {
		return nil
	}
	return quiet
}

// busyGraces is for how many times the grace a connection is safe while the server has bytes of
// it to read.
const busyGraces = 10

// silentGrace is how long a silent connection is safe at least, while an older one, which has
// sent something, can be evicted: its first bytes may be on their way, from a busy machine.
const silentGrace = 200 * time.Millisecond

// roomPause is the time between two checks for room.
const roomPause = 5 * time.Millisecond

func (l *Listener) grace() time.Duration { return cmp.Or(l.bounds.Grace, defaultGrace) }

// onSocket calls a function with the socket of a connection; a closed one has none.
func onSocket(conn net.Conn, do func(fd uintptr)) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(do)
	}
}

// readable tells whether a connection has unread bytes.
func readable(conn net.Conn) (some bool) {
	onSocket(conn, func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		some = err == nil && n > 0
	})
	return some
}

// hungUp tells whether a connection is over for both sides, as after a reset. The server may not have
// come to read that yet.
func hungUp(conn net.Conn) (over bool) {
	onSocket(conn, func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		over = err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return over
}

// Hangup closes the connection with a remote address, which must be the value that its RemoteAddr
// returned. gRPC passes it to handlers as [peer.Peer.Addr].
func (l *Listener) Hangup(remote net.Addr) {
	l.mu.Lock()
	c := l.open[remote]
	l.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// HangupPending closes the pending connections.
func (l *Listener) HangupPending() {
	l.mu.Lock()
	var all []*Conn
	for _, c := range l.open {
		if c.state.Load() != established {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// Len returns how many connections are open, and how many of them are pending.
func (l *Listener) Len() (open, pending int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open), l.silent.Len() + l.pending.Len()
}

// remove removes a connection; mu is held.
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

// removePending removes a connection from the pending ones; mu is held.
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
	silent            // pending, without a byte
	pending           // pending, with bytes
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

// Established says that the handshake is finished. From then on the connection can't be evicted.
func (c *Conn) Established() {
	if c.state.Load() == established {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.removePending(c)
}

// SetDeadline sets the deadline. A gRPC server clears its deadline once the handshake is
// finished, from TLS to the client's HTTP/2 settings. So a zero deadline makes the connection
// established.
func (c *Conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.Established()
	}
	return c.Conn.SetDeadline(t)
}

// Read reads, and records the client's first bytes.
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

// Idle says that the connection may be evicted again, until Established.
func (c *Conn) Idle() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state.Load() != established || c.l.open[c.remote] != c || c.l.bounds.Pending == 0 {
		return
	}
	c.began = time.Now()
	c.addPending()
}

// addPending adds a connection to the pending ones; mu is held.
func (c *Conn) addPending() {
	c.place, c.placeOf = c.l.pending.PushBack(c), c.client.pending.PushBack(c)
	c.state.Store(pending)
}

// HTTPState is the ConnState of an HTTP server behind a Listener with Pending: a connection can
// be evicted while it waits for a request.
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

// RemoteAddr returns the client's address: the same value at each call.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Close closes the connection.
func (c *Conn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
