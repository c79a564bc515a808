// Package peeringtest is a network in memory for tests of peers: hosts, connections like those of
// TCP, and paths that delay, lose, drop and reset. It keeps time by timers alone, so it runs in a
// bubble of testing/synctest as well as on the real clock.
package peeringtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Network is a set of hosts and the paths between them. Paths are perfect until SetPath. It is
// safe for concurrent use.
type Network struct {
	seed uint64

	mu        sync.Mutex
	paths     map[direction]Path
	listeners map[string]*listener // by address, "host:port"
	conns     map[*pair]struct{}
	made      uint64 // connections so far
}

// direction is one way between two hosts.
type direction struct{ from, to string }

// Path is the state of one direction between two hosts. The zero Path is perfect.
type Path struct {
	Delay  time.Duration
	Jitter time.Duration // maximum of the random extra delay
	Loss   float64       // share of lost packets, 0 to 1
	Down   bool          // all packets are lost, without an error
}

// New makes a network. The seed decides the losses and delays.
func New(seed uint64) *Network {
	return &Network{
		seed: seed, paths: map[direction]Path{}, listeners: map[string]*listener{}, conns: map[*pair]struct{}{},
	}
}

// SetPath changes one direction. Packets on their way still arrive.
func (n *Network) SetPath(from, to string, p Path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths[direction{from, to}] = p
}

// SetPaths changes both directions between two hosts.
func (n *Network) SetPaths(a, b string, p Path) {
	n.SetPath(a, b, p)
	n.SetPath(b, a, p)
}

// path is the current state of a direction.
func (n *Network) path(d direction) Path {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paths[d]
}

// Drop loses every packet between two hosts, without an error, until Heal.
func (n *Network) Drop(a, b string) { n.SetPaths(a, b, Path{Down: true}) }

// Heal makes the paths between two hosts perfect.
func (n *Network) Heal(a, b string) { n.SetPaths(a, b, Path{}) }

// Reset ends every connection between two hosts with "connection reset by peer".
func (n *Network) Reset(a, b string) { n.eachPair(between(a, b), (*pair).reset) }

func between(a, b string) func(*pair) bool {
	return func(p *pair) bool {
		return p.client.host == a && p.server.host == b || p.client.host == b && p.server.host == a
	}
}

// Hold has every connection that is open now between two hosts deliver later than its path says. Later
// connections overtake it.
func (n *Network) Hold(a, b string, late time.Duration) {
	n.eachPair(between(a, b), func(p *pair) { p.hold(late) })
}

// Release ends what Hold began, everywhere.
func (n *Network) Release() {
	n.eachPair(func(*pair) bool { return true }, func(p *pair) { p.hold(0) })
}

// Open is how many connections and listeners are open.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns) + len(n.listeners)
}

// OpenFrom are the hosts at the other ends of the open connections that a host has made to a port.
func (n *Network) OpenFrom(host, port string) (to []string) {
	n.eachPair(func(p *pair) bool {
		_, at, _ := net.SplitHostPort(string(p.server.address))
		return p.client.host == host && at == port
	}, func(p *pair) { to = append(to, p.server.host) })
	return to
}

// Made is how many connections were tried so far.
func (n *Network) Made() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made
}

// eachPair calls do for the selected connections.
func (n *Network) eachPair(which func(*pair) bool, do func(*pair)) {
	n.mu.Lock()
	var all []*pair
	for p := range n.conns {
		if which(p) {
			all = append(all, p)
		}
	}
	n.mu.Unlock()
	for _, p := range all {
		do(p)
	}
}

// Host is one machine of a network. Its addresses are "<name>:<port>".
type Host struct {
	net  *Network
	name string
}

// Host returns the host with a name.
func (n *Network) Host(name string) *Host { return &Host{n, name} }

// Kill ends every program on the host, like kill -9: connections to its listeners are refused,
// and its open connections are reset if the paths allow it.
func (h *Host) Kill() {
	h.net.mu.Lock()
	var gone []*listener
	for address, l := range h.net.listeners {
		if host, _, _ := net.SplitHostPort(address); host == h.name {
			gone = append(gone, l)
		}
	}
	h.net.mu.Unlock()
	for _, l := range gone {
		_ = l.Close()
	}
	h.net.eachPair(func(p *pair) bool { return p.client.host == h.name || p.server.host == h.name },
		func(p *pair) { p.kill(h.name) })
}

// Listen accepts connections at a port of the host.
func (h *Host) Listen(port string) (net.Listener, error) {
	l := &listener{net: h.net, address: address(net.JoinHostPort(h.name, port)), accept: make(chan *conn), closed: make(chan struct{})}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.net.listeners[string(l.address)] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: l.address, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	h.net.listeners[string(l.address)] = l
	return l, nil
}

// firstSYN is the wait before the first packet of a connection is sent again, doubled each time.
const firstSYN = time.Second

// Dial connects to an address, "host:port". It retries until ctx ends while the path is down, and
// is refused if nobody listens.
func (h *Host) Dial(ctx context.Context, to string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: err}
	}
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return fail(err)
	}
	there, back := direction{h.name, host}, direction{host, h.name}
	random := h.net.random()
	for wait := firstSYN; ; wait *= 2 {
		delay, lost := h.net.path(there).packet(random)
		delayBack, lostBack := h.net.path(back).packet(random)
		if !lost && !lostBack {
			if err := sleep(ctx, delay+delayBack); err != nil {
				return fail(err)
			}
			break
		}
		if err := sleep(ctx, wait); err != nil {
			return fail(err)
		}
	}
	h.net.mu.Lock()
	l := h.net.listeners[to]
	h.net.mu.Unlock()
	if l == nil {
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	p := h.net.connect(h.name, host, to, random)
	select {
	case l.accept <- p.server:
		return p.client, nil
	case <-l.closed:
		p.reset()
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	case <-ctx.Done():
		p.reset()
		return fail(ctx.Err())
	}
}

// random returns a random source for the next connection.
func (n *Network) random() *rand.Rand {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made++
	return rand.New(rand.NewPCG(n.seed, n.made))
}

// packet returns the delay of a packet, or that it is lost.
func (p Path) packet(r *rand.Rand) (delay time.Duration, lost bool) {
	delay = p.Delay
	if p.Jitter > 0 {
		delay += time.Duration(r.Int64N(int64(p.Jitter)))
	}
	return delay, p.Down || p.Loss > 0 && r.Float64() < p.Loss
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// address is "host:port".
type address string

// Network is "tcp".
func (address) Network() string { return "tcp" }

// String is the address.
func (a address) String() string { return string(a) }

type listener struct {
	net     *Network
	address address
	accept  chan *conn

	once   sync.Once
	closed chan struct{}
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept at %s: %w", l.address, net.ErrClosed)
	}
}

// Close refuses connections from now on.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, string(l.address))
		l.net.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// Addr is the address that is listened at.
func (l *listener) Addr() net.Addr { return l.address }
