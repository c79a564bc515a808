package dial

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// userTimeout is how long the kernel retransmits bytes that are not acknowledged.
	userTimeout = 15 * time.Minute
	// maxRetransmitPause is the longest pause between two retransmissions.
	maxRetransmitPause = time.Second
)

// tcpRTOMax is TCP_RTO_MAX_MS of Linux 6.15 and later.
const tcpRTOMax = 44

// extendUserTimeout makes the kernel keep a connection on a lossy link longer, and retransmit more
// often.
//
// With keepalive gRPC sets TCP_USER_TIMEOUT to 5 s, the time that bytes may go without an
// acknowledgement. Linux counts from the first retransmission, for as long as any packet is
// missing. On a slow link that loses packets that is most of the time. Then the kernel closes
// connections on which everything gets through, and cuts off their calls. The watcher's pings, and
// keepalive's own after 15 s, find a gateway that is lost without that timeout.
//
// The pauses between retransmissions double, up to two minutes. When a link returns after ten
// seconds, its connections may be silent for ten more. So the pauses get a limit. The kernel's own
// limit is a number of retransmissions, which would be reached too soon with short pauses. So it
// gets a time instead.
func extendUserTimeout(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // if it fails, gRPC's timeout and the kernel's pauses remain
		if unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())) == nil {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMax, int(maxRetransmitPause.Milliseconds()))
		}
	})
}
