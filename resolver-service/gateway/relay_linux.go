package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxLoops bounds the threads that a relay keeps busy. One passes on some 80,000
// small requests a second; what runs beside it needs the other processors more.
const maxLoops = 2

// Loops is how many processors of Go's runtime a gateway that is served keeps from other
// goroutines, also while it waits for the kernel. A program that does more than serve
// a gateway raises GOMAXPROCS by so many, lest what it does wait for up to 10 ms until
// the runtime takes a processor back. It depends on GOMAXPROCS itself: ask first.
func Loops() int { return max(1, min(maxLoops, runtime.GOMAXPROCS(0)/2)) }

// epollRelay is the relay of Linux. A pair costs it two descriptors, two epoll
// entries and one small struct; there is no goroutine, buffer or pipe for a pair on
// which nothing is sent. See loop.
type epollRelay struct {
	cfg   relayConfig
	loops []*loop
	next  atomic.Uint32
	wg    sync.WaitGroup
}

func newRelay(cfg relayConfig) (relay, error) {
	r := &epollRelay{cfg: cfg}
	for range Loops() {
		l, err := newLoop(cfg)
		if err != nil {
			r.close()
			return nil, err
		}
		r.loops = append(r.loops, l)
		r.wg.Go(l.run)
	}
	return r, nil
}

func (r *epollRelay) pass(client, backend *net.TCPConn, of *admitted) {
	c, err1 := takeOver(client)
	b, err2 := takeOver(backend)
	if err1 == nil && err2 == nil {
		// The kernel itself watches for a receiver that takes nothing: see tcp(7) about
		// TCP_USER_TIMEOUT, which holds for a window that stays closed as well.
		setMillis(c, unix.TCP_USER_TIMEOUT, r.cfg.stall)
		setMillis(b, unix.TCP_USER_TIMEOUT, r.cfg.stall)
		err1 = r.loop().add(&pair{client: end{fd: c}, backend: end{fd: b}, of: of})
	}
	err := cmp.Or(err1, err2)
	if err == nil {
		return
	}
	if !errors.Is(err, errRelayClosed) {
		r.cfg.failed(err)
	}
	closeWithReset(c)
	closeWithReset(b)
	r.cfg.ended(of)
}

// loop is the next loop's turn.
func (r *epollRelay) loop() *loop { return r.loops[int(r.next.Add(1))%len(r.loops)] }

func (r *epollRelay) close() {
	for _, l := range r.loops {
		l.post(func() { l.over = true })
	}
	r.wg.Wait()
}

// connect is [epollRelay.pass] with a backend that is yet to be connected to, and to be given what
// the client said first, which may be overwritten afterwards. Where it can't be reached in
// time, failed is called in the loop with the client's descriptor, which is the caller's
// again, and a copy of what it said. After an error it always was. The loop calls it.
//
// A backend on this machine is connected to at once, and takes what it is given.
func (l *loop) connect(client int, first []byte, of *admitted, to netip.AddrPort, failed func(int, []byte, error)) error {
	backend, err := startConnect(to)
	if err != nil {
		return err
	}
	p := &pair{client: end{fd: client}, backend: end{fd: backend}, of: of}
	n, err := again(unix.Write(backend, first))
	switch {
	case err != nil:
		unix.Close(backend)
		failed(client, bytes.Clone(first), err)
		return nil
	case n < 0:
		p.backend.rest = bytes.Clone(first)
		p.dialing = &dialing{first: p.backend.rest, failed: failed}
	case n < len(first):
		p.backend.rest = bytes.Clone(first[n:])
	}
	if err = l.add(p); err != nil {
		unix.Close(backend)
		return err
	}
	l.young.note(p)
	return nil
}

// startConnect begins to connect.
func startConnect(to netip.AddrPort) (fd int, err error) {
	family, address := unix.AF_INET6, unix.Sockaddr(nil)
	if ip := to.Addr().Unmap(); ip.Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	} else {
		address = &unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := unix.Connect(fd, address); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setTCP sets on a socket what Go sets on its own: small writes go out at once, and
// peers that vanished are found.
func setTCP(fd int) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	setKeepAlive(fd)
}

func setKeepAlive(fd int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive.Idle/time.Second))
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive.Interval/time.Second))
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlive.Count)
}

func setMillis(fd, option int, d time.Duration) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, int(d/time.Millisecond))
}

// takeOver returns a descriptor of a connection that Go's runtime knows nothing of,
// and closes the connection. It is -1 after an error.
func takeOver(conn *net.TCPConn) (fd int, err error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd = -1
	controlErr := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = controlErr
	}
	if err != nil {
		return -1, fmt.Errorf("take over descriptor of %s: %w", conn.RemoteAddr(), err)
	}
	return fd, nil
}

// closeWithReset closes a descriptor so that the peer sees a reset; -1 is none.
func closeWithReset(fd int) {
	if fd < 0 {
		return
	}
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}
