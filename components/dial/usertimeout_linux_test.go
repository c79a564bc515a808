package dial

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// What it is for is measured in tests/faults, on a link that is slow and loses packets.
func TestConnectionsAreGivenUpLate(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(name, set int) (value int, err error) {
		if controlErr := raw.Control(func(fd uintptr) {
			if set > 0 {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, name, set)
				return
			}
			value, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name)
		}); controlErr != nil {
			t.Fatal(controlErr)
		}
		return value, err
	}
	if _, err := option(unix.TCP_USER_TIMEOUT, 5000); err != nil { // as gRPC does
		t.Fatal(err)
	}
	extendUserTimeout(conn)
	if got, err := option(unix.TCP_USER_TIMEOUT, 0); err != nil || got != int(userTimeout.Milliseconds()) {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, %v; want %s", got, err, userTimeout)
	}
	if got, err := option(tcpRTOMax, 0); err != nil {
		t.Logf("this kernel has no TCP_RTO_MAX_MS: %v", err)
	} else if got != int(maxRetransmitPause.Milliseconds()) {
		t.Errorf("TCP_RTO_MAX_MS is %d, want %s", got, maxRetransmitPause)
	}
}
