package dial

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// userTimeout is how long the kernel tries to send what nobody acknowledges. gRPC and
	// watch find out much sooner that nobody is there.
	userTimeout = 15 * time.Minute
	// longestPause is the longest time until it tries again.
	longestPause = time.Second
)

// tcpRTOMax is TCP_RTO_MAX_MS, which Linux has since 6.15.
const tcpRTOMax = 44

// patient has the kernel give a connection up late, and try again soon.
//
// By daprd's keepalive, gRPC has it give up after 5 s without acknowledgement. Linux
// counts those from the first packet that it had to send again, until none is missing
// any more, whatever else is acknowledged meanwhile. On a link that loses packets there is
// always one missing: so connections that work are given up after 5 s, with all calls on
// them, some of which daprd then makes once more.
//
// And the pauses between its attempts double, up to two minutes: when a link is back after
// ten seconds, the connections that were there may rest for ten more. A kernel that can't
// be told otherwise does that.
func patient(c net.Conn) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without them the connection is as gRPC made it
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMax, int(longestPause.Milliseconds()))
	})
}
