package dial

import (
	"net"

	"golang.org/x/sys/unix"
)

// beyondLosses takes back the limit that gRPC sets, because daprd wants keepalive, to how
// long what was sent may go without an acknowledgement (TCP_USER_TIMEOUT, 5 s). Linux counts from the
// first packet that had to be sent again, and as long as one is missing: on a slow link that
// loses packets that is most of the time, and connections on which all gets through are
// broken off every few seconds, with all calls on them. A gateway that is gone is found
// without it: by inquiries, and by keepalive's own pings after 15 s.
func beyondLosses(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // where it fails, gRPC's limit stands
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0)
	})
}
