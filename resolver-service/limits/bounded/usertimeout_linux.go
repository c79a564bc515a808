package bounded

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel end a connection whose client acknowledges nothing for the
// given time. gRPC would do that, but only for a plain *net.TCPConn.
func setUserTimeout(c net.Conn, after time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	// If that fails, keepalive pings notice a silent client all the same.
	onSocket(tcp, func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}
