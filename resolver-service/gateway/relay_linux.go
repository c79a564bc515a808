package gateway

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxLoops bounds the threads that a relay keeps busy. One passes on some 80,000
// small requests a second; sidecars beside it need the other processors more.
const maxLoops = 2

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
	for range min(maxLoops, runtime.GOMAXPROCS(0)) {
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

func (r *epollRelay) pass(client, backend *net.TCPConn) {
	c, err1 := r.takeOver(client)
	b, err2 := r.takeOver(backend)
	if err1 == nil && err2 == nil {
		err1 = r.loops[int(r.next.Add(1))%len(r.loops)].add(c, b)
	}
	if err1 == nil && err2 == nil {
		return
	}
	closeWithReset(c)
	closeWithReset(b)
	r.cfg.ended()
}

func (r *epollRelay) close() {
	for _, l := range r.loops {
		l.end()
	}
	r.wg.Wait()
}

// takeOver returns a descriptor of a connection that Go's runtime knows nothing of,
// and closes the connection. It is -1 after an error.
//
// The kernel itself watches for a receiver that takes nothing: see tcp(7) about
// TCP_USER_TIMEOUT, which holds for a window that stays closed as well.
func (r *epollRelay) takeOver(conn *net.TCPConn) (fd int, err error) {
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
	stall := int(r.cfg.stall / time.Millisecond)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, stall); err != nil {
		unix.Close(fd)
		return -1, err
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
