package gateway

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// clusterless is a name that every gateway of a domain takes for its own app's.
const clusterless = "orders.shop.isthmus.internal"

// tcpProxy passes connections on, from addresses of its own.
func tcpProxy(t *testing.T, to func() string) string {
	return backend(t, func(c *net.TCPConn) {
		other, err := net.Dial("tcp", to())
		if err != nil {
			return
		}
		defer other.Close()
		go func() { io.Copy(other, c); other.(*net.TCPConn).CloseWrite() }()
		io.Copy(c, other)
	})
}

// rings are ways in which a connection to orders comes back to the gateway that is called.
var rings = map[string]func(t *testing.T, gw *running, cfg Config, with option) (instance string){
	"its own address": func(_ *testing.T, gw *running, _ Config, _ option) string { return gw.addr },
	"its own address, by a host name": func(_ *testing.T, gw *running, _ Config, _ option) string {
		return strings.Replace(gw.addr, "127.0.0.1", "localhost", 1)
	},
	"a proxy": func(t *testing.T, gw *running, _ Config, _ option) string {
		return tcpProxy(t, func() string { return gw.addr })
	},
	"another gateway": func(t *testing.T, gw *running, cfg Config, with option) string {
		other := serve(t, cfg, exports(1, map[string][]string{"orders": {gw.addr}}), with)
		return other.addr
	},
	"another gateway, behind a proxy": func(t *testing.T, gw *running, cfg Config, with option) string {
		other := serve(t, cfg, exports(1, map[string][]string{"orders": {tcpProxy(t, func() string { return gw.addr })}}), with)
		return other.addr
	},
}

func TestAConnectionThatComesBackIsRefused(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		for what, ring := range rings {
			t.Run(what, func(t *testing.T) {
				gw := serve(t, Config{}, nil, with)
				ledger := tlsBackend(t, "ledger")
				gw.table.Store(exports(1, map[string][]string{"orders": {ring(t, gw, Config{}, with)}, "ledger": {ledger}}))
				var calls sync.WaitGroup
				for range 20 { // at once
					calls.Go(func() {
						_, conn, err := call(t, gw.addr, clusterless)
						conn.NetConn().Close()
						if err == nil || !strings.Contains(err.Error(), "internal error") {
							t.Errorf("%v, want internal error", err)
						}
					})
				}
				calls.Wait()
				if got := gw.refused(looped); got != 20 || gw.metric("isthmus_gateway_connections_accepted_total") > 40 {
					t.Errorf("%d were refused as they came back, of %v accepted; want 20 of 40", got, gw.metric("isthmus_gateway_connections_accepted_total"))
				}
				if !strings.Contains(gw.log.String(), "an instance of the app is this gateway") {
					t.Errorf("the log does not say what to look at:\n%s", gw.log)
				}
				got, conn, err := call(t, gw.addr, ledgerHost)
				if got != "ledger" {
					t.Errorf("another app: %v", err)
				}
				conn.Close()
				eventually(t, "all are over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
				gw.table.Store(exports(2, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
				if got, _, err = call(t, gw.addr, ordersHost); got != "orders" {
					t.Errorf("with an instance of its own again: %v", err)
				}
				gw.stop()
				if n := len(gw.inflight.keys); n != 0 {
					t.Errorf("with no connection left %d hellos are in flight", n)
				}
			})
		}
	})
}

func TestPlaintextThatComesBackIsRefused(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		for what, ring := range rings {
			t.Run(what, func(t *testing.T) {
				cfg := Config{Plaintext: true}
				gw := serve(t, cfg, nil, with)
				ledger := grpcBackend(t, "ledger")
				gw.table.Store(exports(1, map[string][]string{"orders": {ring(t, gw, cfg, with)}, "ledger": {ledger}}))
				if err := check(t, grpcClient(t, gw.addr, clusterless), "orders"); err == nil || !strings.Contains(err.Error(), string(looped)) {
					t.Errorf("%v, want %s", err, looped)
				}
				if got := gw.refused(looped); got == 0 {
					t.Error("none was refused as it came back")
				}
				if err := check(t, grpcClient(t, gw.addr, ledgerHost), "ledger"); err != nil {
					t.Errorf("another app: %v", err)
				}
			})
		}
	})
}

func TestAChainOfGatewaysIsNoLoop(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		cfg := Config{Plaintext: true}
		west := serve(t, cfg, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}, "ledger": {grpcBackend(t, "ledger")}}), with)
		east := serve(t, cfg, exports(1, map[string][]string{"orders": {west.addr}, "ledger": {west.addr}}), with)
		for range 10 {
			if got, _, err := call(t, east.addr, ordersHost); got != "orders" {
				t.Fatalf("answered by %q, %v", got, err)
			}
			if err := check(t, grpcClient(t, east.addr, ledgerHost), "ledger"); err != nil {
				t.Fatalf("in plain text: %v", err)
			}
		}
		if n := east.refused(looped) + west.refused(looped); n != 0 {
			t.Errorf("%d were refused as if they came back", n)
		}
	})
}

// The very same bytes are let in again once the connection that began with them is over.
func TestAHelloIsForgottenWithItsConnection(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		same := hello(ordersHost)
		for round := range 3 {
			c := dialTCP(t, gw.addr)
			c.Write(same)
			if first := make([]byte, 1); !readExactly(c, first) || first[0] != tlsHandshake {
				t.Fatalf("time %d: % x, want an answer of the app", round+1, first)
			}
			again := dialTCP(t, gw.addr)
			again.Write(same)
			if first := make([]byte, 1); !readExactly(again, first) || first[0] == tlsHandshake {
				t.Errorf("time %d: the same hello is passed on twice at once", round+1)
			}
			c.Close()
			again.Close()
			eventually(t, "it is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		}
	})
}

// With nothing but its hello in flight a gateway that dials itself would open descriptors
// until none are left.
func TestALoopHoldsFewDescriptors(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts descriptors by /proc")
	}
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, nil, with)
		gw.table.Store(exports(1, map[string][]string{"orders": {gw.addr}}))
		call(t, gw.addr, ordersHost)
		open := func() int {
			entries, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}
		before, most := open(), 0
		for range 50 {
			c := dialTCP(t, gw.addr)
			c.Write(hello(ordersHost))
			most = max(most, open())
			io.Copy(io.Discard, c)
			c.Close()
		}
		if most > before+20 {
			t.Errorf("%d descriptors were open, %d before", most, before)
		}
	})
}
