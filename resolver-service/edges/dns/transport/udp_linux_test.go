package transport

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testAllocations counts the allocations of a packet received and answered.
func testAllocations(t *testing.T, l *Listener) {
	s := newServing(context.Background(), l, new(echo), slog.New(slog.DiscardHandler))
	defer s.release()
	socket, w := l.udp[0], s.worker(UDP, 0)
	for _, other := range l.udp[1:] {
		other.close()
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(loopbackOf(l.addr.Addr())), l.addr.Port()))
	conn, err := net.DialUDP("udp", nil, to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packed, err := question("a.isthmus.internal").Pack()
	if err != nil {
		t.Fatal(err)
	}
	b, buf := newBatch(socket.wildcard), make([]byte, 512)
	send := func(*Query, []byte) { t.Error("sent apart") }
	n := testing.AllocsPerRun(100, func() {
		conn.Write(packed)
		n, errno := b.receive(socket.fd, 0)
		if n != 1 || errno != 0 {
			t.Fatalf("received %d packets: %v", n, errno)
		}
		socket.answer(w, b, n, send)
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%s: %v allocations for a query", l.addr, n)
	}
}

// TestPortThatOthersShare has another process's socket with SO_REUSEPORT at the port: to
// join it would be to get half of the queries.
func TestPortThatOthersShare(t *testing.T) {
	other, err := openSocket(netip.MustParseAddrPort("127.0.0.1:0"), false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	name, err := unix.Getsockname(other.fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
	if l, err := Listen(Config{Address: at.String()}); err == nil {
		l.Close()
		t.Error("joined the socket of another one")
	}
}

func TestStopBeforeAndDuringReceive(t *testing.T) {
	for range 200 {
		l, err := Listen(Config{Address: "127.0.0.1:0", Sockets: 4})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- l.Serve(ctx, new(echo), slog.New(slog.DiscardHandler)) }()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// A successor at the same sockets answers what its predecessor no longer does, also while that
// one still waits for TCP connections. No packet is lost.
func TestASuccessorLosesNoPacket(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			for range 5 {
				succeed(t, address)
			}
		})
	}
}

func succeed(t *testing.T, address string) {
	t.Helper()
	first := serve(t, Config{Address: address, last: 100 * time.Millisecond})
	file, err := first.TCP().(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tcp, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.MustParseAddr(loopbackOf(first.Listener.addr.Addr())), first.Listener.addr.Port()).String()
	half, err := net.Dial("tcp", to) // is waited for
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	eventually(t, "the connection is taken", func() bool { return first.Counters().Open == 1 })
	packed, err := question("a.isthmus.internal").Pack()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("udp", to)
				if err != nil {
					t.Error(err)
					return
				}
				conn.SetDeadline(time.Now().Add(patience))
				_, err = conn.Write(packed)
				if err == nil {
					_, err = conn.Read(make([]byte, 512))
				}
				if err != nil {
					t.Error(err)
				}
				asked.Add(1)
				conn.Close()
			}
		})
	}
	served := func(n int64) {
		before := asked.Load()
		eventually(t, "clients ask", func() bool { return asked.Load()-before > n })
	}
	served(100)
	next := serve(t, Config{Address: address, TCP: tcp})
	served(100)
	first.stop()
	served(100)
	stop()
	clients.Wait()
	next.stop()
}
