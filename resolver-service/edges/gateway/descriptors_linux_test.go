package gateway

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limitFor is the limit of open files under which n more can be opened.
func limitFor(n int) uint64 {
	var limit uint64
	for fd := 0; n > 0; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			n--
		}
		limit = uint64(fd) + 1
	}
	return limit
}

// descriptors is how many are open.
func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestGoesOnAfterDescriptorsRanOut(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	if _, _, err := call(t, gw.addr, ordersHost); err != nil {
		t.Fatal(err)
	}
	clients := make([]int, 60) // sockets must be there before the limit is
	for i := range clients {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = fd
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	tight := unix.Rlimit{Cur: limitFor(10), Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	to, err := net.ResolveTCPAddr("tcp", gw.addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range clients {
		unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte{127, 0, 0, 1}})
	}
	eventually(t, "accepting fails", func() bool { return strings.Contains(gw.log.String(), "too many open files") })
	for _, fd := range clients {
		unix.Close(fd)
	}
	name, _, err := call(t, gw.addr, ordersHost)
	if name != "orders" {
		t.Errorf("after descriptors came back: %v", err)
	}
}

// An idle connection holds two descriptors, and two in the backend and the client here.
func TestIdleConnectionHoldsTwoDescriptors(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	call(t, gw.addr, ordersHost)
	const n, pipes = 100, 2 * 4 // each loop keeps so many
	before := descriptors(t)
	for range n {
		_, conn, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		echo(t, conn, make([]byte, 1<<20)) // bulk, whose pipe is to be given back
	}
	if got := descriptors(t) - before; got > (2+2)*n+2*pipes {
		t.Errorf("%d descriptors for %d connections, their clients and backends included; want 4 each and a few pipes", got, n)
	}
}
