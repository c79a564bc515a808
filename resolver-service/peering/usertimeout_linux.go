package peering

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout has the kernel give up a connection when what was sent is not acknowledged
// for so long.
func userTimeout(after time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		// A kernel that can't do it leaves it to the link, which notices silence.
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
		})
	}
}
