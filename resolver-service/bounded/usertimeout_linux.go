package bounded

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel end a connection whose client has acknowledged nothing for so
// long. gRPC would set it, but only on connections that are nothing but a *net.TCPConn.
func setUserTimeout(c net.Conn, after time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	// Where it can't be set, keepalive pings notice a silent client all the same.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}
