package dial

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// userTimeout is how long the kernel tries to send what nobody acknowledges.
	userTimeout = 15 * time.Minute
	// longestPause is the longest time until it tries again.
	maxRetransmitPause = time.Second
)

// tcpRTOMax is TCP_RTO_MAX_MS, which Linux has since 6.15.
const tcpRTOMax = 44

// beyondLosses has the kernel give a connection up late, and try again soon.
//
// Because daprd wants keepalive, gRPC sets a limit to how long what was sent may go without an
// acknowledgement (TCP_USER_TIMEOUT, 5 s). Linux counts from the first packet that had to be
// sent again, and as long as one is missing: on a slow link that loses packets that is most of
// the time, and connections on which all gets through are broken off, with all calls on
// them. A gateway that is gone is found without it: by inquiries, and by keepalive's own pings
// after 15 s.
//
// And the pauses between its attempts double, up to two minutes: when a link is back after ten
// seconds, the connections that were there may rest for ten more. With shorter pauses the
// kernel's own limit, which is a number of attempts, would come too soon: so it is given a time.
func extendUserTimeout(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // where it fails, gRPC's limit and the kernel's pauses stand
		if unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())) == nil {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMax, int(maxRetransmitPause.Milliseconds()))
		}
	})
}
