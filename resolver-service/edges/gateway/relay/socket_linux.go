package relay

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startConnect begins to connect.
func startConnect(to netip.AddrPort) (fd int, err error) {
	family, address := unix.AF_INET6, unix.Sockaddr(nil)
	if ip := to.Addr().Unmap(); ip.Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	} else {
		address = &unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := unix.Connect(fd, address); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// SetOptions sets on a socket what Go sets on its own: small writes go out at once, and the
// kernel finds peers that vanished. The kernel also ends a connection whose receiver has taken
// nothing for the time of stall.
func SetOptions(fd int, stall time.Duration) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	setTimeouts(fd, stall)
}

func setTimeouts(fd int, stall time.Duration) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(KeepAlive.Idle/time.Second))
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(KeepAlive.Interval/time.Second))
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, KeepAlive.Count)
	setMillis(fd, unix.TCP_USER_TIMEOUT, stall)
}

func setMillis(fd, option int, d time.Duration) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, int(d/time.Millisecond))
}

// takeOver duplicates a connection's descriptor and closes the connection. Go's runtime knows
// nothing of the duplicate, which is -1 after an error.
func takeOver(conn *net.TCPConn) (fd int, err error) {
	defer conn.Close()
	if fd, err = Duplicate(conn); err != nil {
		return -1, fmt.Errorf("take over descriptor of %s: %w", conn.RemoteAddr(), err)
	}
	return fd, nil
}

// Duplicate duplicates the descriptor of a connection or listener; -1 after an error.
func Duplicate(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd = -1
	if controlErr := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	}); controlErr != nil {
		err = controlErr
	}
	return fd, err
}

// ResetFD closes a descriptor so that the peer sees a reset; -1 is none.
func ResetFD(fd int) {
	if fd < 0 {
		return
	}
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}

func closeFD(fd int) { unix.Close(fd) }
