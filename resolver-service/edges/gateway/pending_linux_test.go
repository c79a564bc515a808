package gateway

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// TestAHalfOpenConnectionCostsLittle counts all memory of the process; the clients are bare
// descriptors.
func TestAHalfOpenConnectionCostsLittle(t *testing.T) {
	const most = 16 << 10
	long := longHello(ordersHost, maxHello-recordHeader)
	n := roomFor(t, 2000, 2000)
	for what, sent := range map[string][]byte{
		"one byte":     {tlsHandshake},
		"half a hello": hello(ordersHost)[:800],
		"nearly all":   long[:len(long)-100],
	} {
		t.Run(what, func(t *testing.T) {
			gw := serve(t, Config{HelloTimeout: time.Hour, MaxPerSource: 50_000}, exports(1, nil))
			to := netip.MustParseAddrPort(gw.addr)
			before := memory()
			for range n {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
					t.Fatal(err)
				}
				for part := range slices.Chunk(sent, 1448) {
					unix.Write(fd, part)
				}
			}
			eventually(t, "all are there", func() bool { return gw.metric("isthmus_gateway_hellos_pending") == float64(n) })
			each := (memory() - before) / n
			t.Logf("%d bytes each", each)
			if each > most {
				t.Errorf("a half-open connection costs %d bytes, want %d at most", each, most)
			}
		})
	}
}

// memory is what is in use, goroutines' stacks included.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// Whatever comes of a half-open connection, nothing of it is left.
func TestArrivalsLeaveNothing(t *testing.T) {
	gw := serve(t, Config{HelloTimeout: 200 * time.Millisecond, MaxHellos: 4, MaxPerSource: 50_000}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	_, conn, err := call(t, gw.addr, ordersHost) // it runs by then
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	eventually(t, "the first is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
	before := descriptors(t)
	for range 20 {
		var clients []net.Conn
		for i := range 8 {
			c := dialTCP(t, gw.addr)
			c.Write(hello(ordersHost)[:100+i])
			clients = append(clients, c)
		}
		clients[7].(*net.TCPConn).CloseWrite()
		relay.Reset(clients[6].(*net.TCPConn))
		for _, c := range clients {
			c.Read(make([]byte, 1))
			c.Close()
		}
	}
	eventually(t, "all are over", func() bool {
		return gw.metric("isthmus_gateway_connections_open") == 0 && gw.metric("isthmus_gateway_hellos_pending") == 0 && descriptors(t) <= before
	})
	for _, x := range []reason{helloEvicted, helloTimeout, helloAborted} {
		if gw.refused(x) == 0 {
			t.Errorf("none counted as %s", x)
		}
	}
	if all := gw.refused(helloEvicted) + gw.refused(helloTimeout) + gw.refused(helloAborted); all != 160 {
		t.Errorf("%d of 160 counted", all)
	}
}
