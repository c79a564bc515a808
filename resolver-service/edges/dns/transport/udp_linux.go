package transport

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// udpSocket is one of a listener's sockets, among which the kernel shares packets out by
// their senders' addresses and ports.
type udpSocket struct {
	fd       int
	addr     netip.AddrPort
	six      bool // an IPv6 socket, which may be for IPv4 too
	wildcard bool // for all addresses of the machine
	onlySix  bool // and of these for IPv6 alone
	stopped  atomic.Bool

	mu     sync.Mutex
	closed bool
}

// Sizes of the kernel's buffers of a socket, in bytes, or less where the machine's
// limits are lower. They outlast a pause of Go's scheduler under load.
const (
	receiveBuffer = 4 << 20
	sendBuffer    = 1 << 20
)

// openUDP opens sockets at one address, or none; shared: beside those of another process.
func openUDP(addr netip.AddrPort, count int, shared, onlySix bool) (sockets []*udpSocket, err error) {
	for i := range count {
		s, err := openSocket(addr, i == 0 && !shared, onlySix)
		if err != nil {
			for _, s := range sockets {
				s.close()
			}
			return nil, err
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

// openSocket opens a socket. The first of several is bound alone, which fails where
// another process has the port, and shares it from then on.
func openSocket(addr netip.AddrPort, first, onlySix bool) (*udpSocket, error) {
	s := &udpSocket{addr: addr, six: !addr.Addr().Is4(), wildcard: addr.Addr().IsUnspecified(), onlySix: onlySix}
	family := unix.AF_INET
	if s.six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s.fd = fd
	share := func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }
	if !first {
		err = share()
	}
	if err == nil {
		err = s.prepare()
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(addr, s.six))
	}
	if err == nil && first {
		err = share()
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return s, nil
}

// prepare sets options; what only helps may fail.
func (s *udpSocket) prepare() error {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	// No forged "fragmentation needed" makes us send fragments, which can be forged too.
	unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT)
	if !s.six {
		if s.wildcard {
			return unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
		return nil
	}
	unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT)
	if !s.wildcard {
		return nil
	}
	only := 0
	if s.onlySix {
		only = 1
	}
	if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
		return err
	}
	return unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

func sockaddr(addr netip.AddrPort, six bool) unix.Sockaddr {
	if !six {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	if zone, err := strconv.ParseUint(addr.Addr().Zone(), 10, 32); err == nil {
		sa.ZoneId = uint32(zone)
	}
	return sa
}

// stop ends serve: it wakes a call that waits in the kernel, and none waits afterwards.
func (s *udpSocket) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped.Store(true)
	if !s.closed {
		// The error says that the socket is not connected; readers are woken all the same.
		_ = unix.Shutdown(s.fd, unix.SHUT_RD)
	}
}

func (s *udpSocket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		unix.Close(s.fd)
	}
}

// leave has the kernel give new packets to the sockets of a successor, or refuse them. The socket
// has a peer then, from which nothing comes: Linux skips it where it shares packets out, since
// 5.4. It can still send to everybody. What the kernel was about to give to it takes a moment.
func (s *udpSocket) leave() {
	nobody := s.addr.Addr()
	switch {
	case !s.wildcard:
	case s.six:
		nobody = netip.IPv6Loopback()
	default:
		nobody = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if unix.Connect(s.fd, sockaddr(netip.AddrPortFrom(nobody, 1), s.six)) == nil {
		time.Sleep(leaveTime)
	}
}

const leaveTime = 10 * time.Millisecond

// lastBatches is how many batches that the kernel has already are answered at the end.
const lastBatches = 64

// yieldAfter is how long a goroutine answers before it lets Go's scheduler see it. One
// that the scheduler has not seen for 10 ms has its processor taken away in each system
// call, however short, by a thread that then looks for such every 20 µs: at 10,000
// queries a second, that costs as much as the answers.
const yieldAfter = 8 * time.Millisecond

// serve answers what comes until ctx ends, and what has come by then.
func (s *udpSocket) serve(ctx context.Context, w *worker) error {
	defer context.AfterFunc(ctx, s.stop)()
	b := newBatch(s.wildcard)
	send := func(q *Query, m []byte) { s.sendOne(w, q, m) }
	var pause time.Duration
	seen := time.Now()
	for !s.stopped.Load() {
		if now := time.Now(); now.Sub(seen) > yieldAfter {
			runtime.Gosched()
			seen = now
		}
		n, errno := b.receive(s.fd, 0)
		switch errno {
		case 0:
			pause = 0
			s.answer(w, b, n, send)
		case unix.EINTR:
		case unix.EBADF, unix.ENOTSOCK, unix.EFAULT, unix.EINVAL, unix.ENOSYS:
			return os.NewSyscallError("recvmmsg", errno)
		default: // of one packet that was sent, or want of memory
			pause = min(max(2*pause, time.Millisecond), time.Second)
			time.Sleep(pause)
		}
	}
	s.leave()
	for range lastBatches {
		n, errno := b.receive(s.fd, unix.MSG_DONTWAIT)
		if errno != 0 || n == 0 {
			break
		}
		s.answer(w, b, n, send)
	}
	return nil
}

// answer answers the first n packets of a batch.
func (s *udpSocket) answer(w *worker, b *batch, n int, send func(*Query, []byte)) {
	if n == 1 && b.queries[0].size == 0 && s.stopped.Load() {
		b.reset(0) // nothing but the end
		return
	}
	w.tally.queries.Add(uint64(n))
	for i := range n {
		if !b.query(i, &w.query) {
			w.tally.dropped.Add(1)
			continue
		}
		if cap(b.out)-len(b.out) < wire.MaxSize {
			s.flush(w, b)
		}
		room := b.out[len(b.out):]
		m := w.answerUDP(room, send)
		if len(m) == 0 {
			continue
		}
		if flagsOf(m)&wire.FlagTC != 0 {
			w.tally.truncated.Add(1)
		}
		if &m[0] == &room[:1][0] { // else it stands elsewhere
			b.out = b.out[:len(b.out)+len(m)]
		}
		b.add(i, m)
	}
	s.flush(w, b)
	for i := range n {
		b.reset(i)
	}
}

func (s *udpSocket) flush(w *worker, b *batch) {
	sent, failed := b.send(s.fd)
	w.tally.responses.Add(uint64(sent))
	if failed > 0 {
		w.tally.dropped.Add(uint64(failed))
	}
}

// sendOne sends a response that was waited for, from the address that was asked.
func (s *udpSocket) sendOne(w *worker, q *Query, m []byte) {
	var control []byte
	switch {
	case !s.wildcard:
	case s.six:
		control = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: q.To.As16()})
	default:
		control = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: q.To.As4()})
	}
	if unix.Sendmsg(s.fd, m, control, sockaddr(q.From, s.six), unix.MSG_DONTWAIT) != nil {
		w.tally.dropped.Add(1)
		return
	}
	w.tally.sent(m)
}
