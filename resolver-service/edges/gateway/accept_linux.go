package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// acceptor takes connections from a listener in a relay's loop, on a short way. Nearly
// all arrive with a whole ClientHello, for an app that is there; such a connection is
// read, routed and added to the loop, which connects to the app, in one go: no goroutine
// is started or waits for it. Any other is begun like everywhere else, with what was
// read so far.
//
// All of it belongs to the loop.
type acceptor struct {
	*serving
	loop   *relay.Loop
	fd     int // the listening socket, shared by the acceptors of all loops
	buf    []byte
	pause  backoff
	closed bool

	pending pending
}

// acceptBatch is how many connections are taken before those that run have a turn.
const acceptBatch = 16

// acceptFrom takes connections from a listener until ctx ends.
func (s *serving) acceptFrom(ctx context.Context, l net.Listener) error {
	epoll, ok := s.relay.(*relay.Epoll)
	fd, err := listeningSocket(l)
	if !ok || err != nil { // no socket of the kernel's, or no loop to put it in
		unix.Close(fd)
		return s.accept(ctx, l)
	}
	l.Close() // fd is the same socket
	s.prepare(fd)
	var acceptors []*acceptor
	for _, loop := range epoll.Loops() {
		a := &acceptor{serving: s, loop: loop, fd: fd, buf: make([]byte, maxHello),
			pending: pending{Timeout: relay.Timeout{Limit: s.cfg.HelloTimeout}, waiting: map[int32]*pendingConn{}}}
		acceptors = append(acceptors, a)
		loop.Call(func() {
			loop.Handle(a)
			a.watch()
		})
	}
	<-ctx.Done()
	for _, a := range acceptors {
		a.loop.Call(func() {
			a.closed = true
			a.loop.Unwatch(fd)
		})
	}
	unix.Close(fd)
	return nil
}

// listeningSocket duplicates the descriptor of a TCP listener; -1 where there is none.
func listeningSocket(l net.Listener) (fd int, err error) {
	listener, ok := l.(*net.TCPListener)
	if !ok {
		return -1, errors.ErrUnsupported
	}
	return relay.Duplicate(listener)
}

// deferAccept is how long, in seconds, the kernel keeps a connection to itself on which
// nothing was sent. The client always speaks first.
const deferAccept = 1

// prepare sets options on a listening socket; the connections inherit them.
func (s *serving) prepare(fd int) {
	relay.SetOptions(fd, s.cfg.StallTimeout)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, deferAccept)
}

// listenerID is under which ID a loop watches the listening socket. Half-open connections have
// the others.
const listenerID = 0

// Ready is [relay.Handler.Ready].
func (a *acceptor) Ready(id int32, events uint32) {
	if id == listenerID {
		a.takeAll()
	} else {
		a.more(id, events)
	}
}

// watch asks the loop for an event when there are connections to take, in one of the loops at a
// time.
func (a *acceptor) watch() {
	if a.closed {
		return
	}
	if err := a.loop.Watch(a.fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, listenerID); err != nil {
		a.wait(err)
	}
}

// takeAll takes the connections that wait, but for those beyond a batch.
func (a *acceptor) takeAll() {
	if a.closed {
		return
	}
	for range acceptBatch {
		fd, from, err := accept4(a.fd)
		switch err {
		case nil:
			a.pause = 0
			a.takeFD(fd, from)
		case unix.EAGAIN:
			return
		case unix.ECONNABORTED, unix.EINTR:
		default:
			a.loop.Unwatch(a.fd)
			a.wait(os.NewSyscallError("accept4", err))
			return
		}
	}
}

// wait tries again after a while.
func (a *acceptor) wait(err error) {
	time.AfterFunc(a.acceptFailed(err, &a.pause), func() { a.loop.Post(a.watch) })
}

// takeFD begins with a connection that was accepted.
func (a *acceptor) takeFD(fd int, from netip.AddrPort) {
	as := a.admit(from)
	if as == nil {
		relay.ResetFD(fd)
		return
	}
	n, err := unix.Read(fd, a.buf[:firstRead])
	first := a.buf[:max(n, 0)]
	var o opening
	switch {
	case n == 0 || err != nil && err != unix.EAGAIN:
		a.end(&pendingConn{admitted: as, fd: fd}, helloAborted)
	case o.undecided(first):
		a.await(fd, first, o, as)
	default:
		a.goOn(fd, first, as)
	}
}

// goOn goes on with a connection that has said enough.
func (a *acceptor) goOn(fd int, first []byte, as *admitted) {
	if !a.passAtOnce(fd, first, as) {
		a.beginWith(fd, first, as)
	}
}

// passAtOnce goes the short way, or tells that it does not lead anywhere.
func (a *acceptor) passAtOnce(client int, first []byte, as *admitted) bool {
	if first[0] != tlsHandshake || as.place == inReserve {
		return false
	}
	host, _, err := serverName(first, a.hello)
	if err != nil {
		return false
	}
	to, refused := a.route(greeting{host: host})
	if refused != nil || to.ofPeers() || to.tunnel != "" || !a.inflight.add(as, first) {
		return false
	}
	i := to.choose(a.loads)
	instance := to.instances[i]
	address, err := netip.ParseAddrPort(instance)
	if err != nil || a.check(address) != nil {
		return false
	}
	a.loads.add(instance)
	as.instance = instance
	a.exports.join(as, to.app)
	err = a.loop.Connect(client, first, as, address, func(client int, said []byte, err error) {
		a.unload(as)
		err = fmt.Errorf("connect to %s: %w", address, err)
		go a.tryOthers(client, greeting{host: host, bytes: said}, to, &attempt{i, err}, as)
	})
	if err != nil {
		a.unload(as)
	}
	return err == nil
}

// unload counts a connection out of the loads, which was not made.
func (a *acceptor) unload(as *admitted) {
	a.loads.remove(as.instance)
	as.instance = ""
}

// tryOthers goes on where the short way ended at an instance that can't be reached.
func (a *acceptor) tryOthers(fd int, in greeting, to destination, tried *attempt, as *admitted) {
	client, err := connOf(fd)
	if err != nil {
		a.abandon(err, as)
		return
	}
	if refused := a.connect(client, in, to, tried, as); refused != nil {
		a.refuse(client, refused, as)
	}
}

// beginWith begins with a connection from which something was read.
func (a *acceptor) beginWith(fd int, first []byte, as *admitted) {
	client, err := connOf(fd)
	if err != nil {
		a.abandon(err, as)
		return
	}
	in := newReplay(client)
	in.buf = append(in.buf, first...)
	a.begin(in, client, as)
}

// abandon counts out a connection that there is no descriptor left for.
func (a *acceptor) abandon(err error, as *admitted) {
	a.refused.acceptFailed(err, 0)
	as.Closed()
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

// accept4 takes a connection. That of x/sys asks the socket for its protocol, each time.
func accept4(listener int) (fd int, from netip.AddrPort, err error) {
	var sa unix.RawSockaddrInet6 // room for an IPv4 one, too
	size := uint32(unsafe.Sizeof(sa))
	n, _, errno := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, from, errno
	}
	port := (*[2]byte)(unsafe.Pointer(&sa.Port)) // the same place in both
	ip := netip.AddrFrom16(sa.Addr).Unmap()
	if sa.Family == unix.AF_INET {
		ip = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&sa)).Addr)
	}
	return int(n), netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:])), nil
}
