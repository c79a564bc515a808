package dial

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// kernelRoundTrip returns the kernel's estimate of a connection's round trip (tcp(7), TCP_INFO); 0
// if unknown. Unlike an answer it can't be taken for that to another call.
func kernelRoundTrip(c net.Conn) (d time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // if it fails, the round trip is unknown
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			d = time.Duration(info.Rtt) * time.Microsecond
		}
	})
	return d
}
