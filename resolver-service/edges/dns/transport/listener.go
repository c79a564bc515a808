package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Config is what a listener needs. Address must be set; every zero number or duration
// stands for the default named beside it.
type Config struct {
	// Address is "host:port". An IPv4 address, 0.0.0.0 too, is listened to for IPv4 alone;
	// [::] or no host at all is for both.
	Address string
	// OnlyIPv6 leaves IPv4 to another listener, where the address is [::] or has no host.
	OnlyIPv6 bool
	As       catalog.App // who everybody is that asks here; zero: nobody in particular
	// TLS makes it DNS over TLS (RFC 7858), with no UDP. Version 1.2 is the least, and
	// the protocol name "dot" is offered.
	TLS *tls.Config

	// Sockets is how many there are for UDP, each with a goroutine that blocks in the
	// kernel: one for each core that Go uses, but one. Were they as many as Go's
	// processors, the scheduler would have none left to run the rest with, and would take
	// one away from them each time.
	Sockets     int
	MaxTCP      int           // connections open at once: 1,000; a tenth of them for one client address
	IdleTimeout time.Duration // of a connection on which nothing is asked: 10 s
	MaxWaiting  int           // queries that are waited for at once: 1,000
	WaitTimeout time.Duration // how long a query is waited for: 10 s

	RateLimit RateLimit // of responses by UDP

	// TCP listens at Address already, and another process of this user answers there by UDP,
	// which shares packets out between both until it closes its sockets; nil: nobody does.
	TCP net.Listener

	stall time.Duration // of a peer that is slow: defaultStall
	last  time.Duration // for a last query: defaultLast
}

func (c Config) withDefaults() Config {
	c.Sockets = cmp.Or(max(c.Sockets, 0), max(runtime.GOMAXPROCS(0)-1, 1))
	c.MaxTCP = cmp.Or(max(c.MaxTCP, 0), 1000)
	c.MaxWaiting = cmp.Or(max(c.MaxWaiting, 0), 1000)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Second)
	c.WaitTimeout = cmp.Or(c.WaitTimeout, 10*time.Second)
	c.stall = cmp.Or(c.stall, defaultStall)
	c.last = cmp.Or(c.last, defaultLast)
	return c
}

// Listener is an address where DNS is answered, by UDP and TCP or by TLS.
type Listener struct {
	cfg     Config
	addr    netip.AddrPort
	udp     []*udpSocket
	tcp     net.Listener
	limiter *limiter // nil: responses are not limited
	counts  *counts
}

// portTries is how many ports, chosen by the kernel for TCP, are tried until one is free
// for UDP too.
const portTries = 20

// Listen opens all sockets of a listener, or none. UDP and TCP have the same port, also
// where the address says 0 and the kernel chooses.
func Listen(cfg Config) (*Listener, error) {
	cfg = cfg.withDefaults()
	want, err := resolve(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("dns: listen on %q: want host:port: %w", cfg.Address, err)
	}
	tries := 1
	if want.Port == 0 {
		tries = portTries
	}
	l := &Listener{cfg: cfg, limiter: newLimiter(cfg.RateLimit), counts: newCounts(cfg.Sockets)}
	for range tries {
		if err = l.open(want.AddrPort()); err == nil {
			return l, nil
		}
	}
	return nil, err
}

func resolve(address string) (*net.TCPAddr, error) {
	if address == "" {
		return nil, errors.New("no address")
	}
	return net.ResolveTCPAddr("tcp", address)
}

// open binds TCP first: that port can't be shared, so it also keeps a second process
// from taking half of the datagrams.
func (l *Listener) open(want netip.AddrPort) (err error) {
	tcp := l.cfg.TCP
	if tcp == nil {
		tcp, err = listenTCP(want, l.cfg.OnlyIPv6)
	}
	if err != nil {
		return fmt.Errorf("dns: listen on %s by TCP: %w", l.cfg.Address, err)
	}
	bound := tcp.Addr().(*net.TCPAddr).AddrPort() // of net.Listen("tcp", …), so it is one
	l.addr = netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port())
	if l.cfg.TLS == nil {
		if l.udp, err = openUDP(l.addr, l.cfg.Sockets, l.cfg.TCP != nil, l.cfg.OnlyIPv6); err != nil {
			tcp.Close()
			return fmt.Errorf("dns: listen on %s by UDP: %w", l.cfg.Address, err)
		}
	}
	l.tcp = tcp
	return nil
}

func listenTCP(want netip.AddrPort, onlyIPv6 bool) (net.Listener, error) {
	network := "tcp"
	switch {
	case onlyIPv6:
		network = "tcp6"
	case want.Addr().Unmap().Is4():
		network = "tcp4"
	}
	if !want.Addr().IsValid() {
		return net.Listen(network, fmt.Sprintf(":%d", want.Port()))
	}
	return net.Listen(network, netip.AddrPortFrom(want.Addr().Unmap(), want.Port()).String())
}

// TCP is its listener for TCP.
func (l *Listener) TCP() net.Listener { return l.tcp }

// Addr is where the listener listens, for each of its protocols.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close closes a listener that is not served.
func (l *Listener) Close() {
	l.tcp.Close()
	for _, s := range l.udp {
		s.close()
	}
}

// graceful is how long queries that are waited for have, once Serve is told to end.
const graceful = 2 * time.Second

// Serve answers until ctx ends, then lets the queries under way finish, closes the
// sockets and returns nil. It returns an error where a socket fails for good, which ends
// the others too. It may be called once.
func (l *Listener) Serve(ctx context.Context, h Handler, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := newServing(ctx, l, h, log)
	defer s.release()

	var (
		parts sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	run := func(part func() error) {
		parts.Go(func() {
			if err := part(); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				stop()
			}
		})
	}
	for i, socket := range l.udp {
		run(func() error { return socket.serve(ctx, s.worker(UDP, i)) })
	}
	run(func() error { return s.serveTCP(ctx, l.tcp) })
	parts.Wait()
	s.waits.finish()
	for _, socket := range l.udp {
		socket.close()
	}
	return errors.Join(errs...)
}
