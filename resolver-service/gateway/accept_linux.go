package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// acceptor takes connections from a listener on a short way. Nearly all arrive with a
// whole ClientHello, for an app that is there; such a connection is read, routed and
// given to the relay, which connects to the app, in one go: no goroutine is started or
// waits for it. Any other is begun like everywhere else, with what was read so far.
type acceptor struct {
	*serving
	relay *epollRelay
	file  *os.File // the listener
	raw   syscall.RawConn
	buf   []byte
}

// takerFrom returns how to take a connection from a listener, and how to end that.
func (s *serving) takerFrom(l net.Listener) (take func() error, closeListener func()) {
	a, err := s.newAcceptor(l)
	if err != nil { // it is no TCP socket of the kernel's
		return func() error { return s.takeFrom(l) }, func() { l.Close() }
	}
	l.Close() // a.file is the same socket
	return a.take, func() { a.file.Close() }
}

func (s *serving) newAcceptor(l net.Listener) (*acceptor, error) {
	relay, ok1 := s.relay.(*epollRelay)
	listener, ok2 := l.(*net.TCPListener)
	if !ok1 || !ok2 {
		return nil, errors.ErrUnsupported
	}
	file, err := listener.File()
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { s.prepare(int(fd)) })
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &acceptor{serving: s, relay: relay, file: file, raw: raw, buf: make([]byte, firstRead)}, nil
}

// deferAccept is how long, in seconds, the kernel keeps a connection to itself on which
// nothing was sent. The client always speaks first.
const deferAccept = 1

// prepare sets options on a listening socket; the connections inherit them.
func (s *serving) prepare(fd int) {
	setTCP(fd)
	setMillis(fd, unix.TCP_USER_TIMEOUT, s.cfg.StallTimeout)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, deferAccept)
}

// take takes one connection.
func (a *acceptor) take() error {
	var fd int
	var from unix.Sockaddr
	var err error
	closed := a.raw.Read(func(listener uintptr) bool {
		fd, from, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return err != unix.EAGAIN
	})
	switch {
	case closed != nil:
		return fmt.Errorf("%w: %w", net.ErrClosed, closed)
	case err == unix.ECONNABORTED || err == unix.EINTR:
		return nil
	case err != nil:
		return os.NewSyscallError("accept4", err)
	}
	if !a.admit() {
		a.refused.log(refusal{reason: tooMany, from: addressOf(from)})
		closeWithReset(fd)
		return nil
	}
	n, _ := unix.Read(fd, a.buf) // whatever goes wrong shows again below
	first := a.buf[:max(n, 0)]
	if !a.passAtOnce(fd, first) {
		a.beginWith(fd, first)
	}
	return nil
}

// passAtOnce goes the short way, or tells that it does not lead anywhere.
func (a *acceptor) passAtOnce(client int, first []byte) bool {
	if len(first) == 0 || first[0] != tlsHandshake {
		return false
	}
	host, err := serverName(&replay{Conn: noMore{}, buf: first}, a.hello)
	if err != nil {
		return false
	}
	to, refused := a.route(greeting{host: host})
	if refused != nil {
		return false
	}
	i := to.choose()
	address, err := netip.ParseAddrPort(to.instances[i])
	if err != nil {
		return false
	}
	in := greeting{host: host, bytes: bytes.Clone(first)}
	return nil == a.relay.connect(client, in.bytes, address, a.cfg.DialTimeout, func(client int, err error) {
		err = fmt.Errorf("connect to %s: %w", address, err)
		go a.tryOthers(client, in, to, &attempt{i, err})
	})
}

// tryOthers goes on where the short way ended at an instance that can't be reached.
func (a *acceptor) tryOthers(fd int, in greeting, to destination, tried *attempt) {
	client, err := connOf(fd)
	if err != nil {
		a.abandon(err)
		return
	}
	if refused := a.connect(client, in, to, tried); refused != nil {
		a.refuse(client, refused)
	}
}

// beginWith begins with a connection from which something was read.
func (a *acceptor) beginWith(fd int, first []byte) {
	client, err := connOf(fd)
	if err != nil {
		a.abandon(err)
		return
	}
	in := newReplay(client)
	in.buf = append(in.buf, first...)
	a.begin(in, client)
}

// abandon counts out a connection that there is no descriptor left for.
func (a *acceptor) abandon(err error) {
	a.refused.acceptFailed(err, 0)
	a.ended()
}

// connOf makes a connection of a descriptor, which is closed in any case.
func connOf(fd int) (*net.TCPConn, error) {
	file := os.NewFile(uintptr(fd), "client")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	client, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, errors.ErrUnsupported
	}
	return client, nil
}

func addressOf(sa unix.Sockaddr) net.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)))
	case *unix.SockaddrInet6:
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)))
	}
	return nil
}

// noMore is a connection on which nothing has come yet.
type noMore struct{ net.Conn }

func (noMore) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
