package gateway

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// roomFor raises the limit of open files to what n connections take, others of which
// are open at the other end as well, or returns how many fit.
func roomFor(t *testing.T, n, others int) int {
	others += 500
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	need := uint64(n + others)
	if uint64(limit.Cur) < need {
		old := limit
		limit.Cur, limit.Max = need, max(limit.Max, need)
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old) })
			return n
		}
		fit := int(old.Cur) - others
		t.Logf("only %d files may be open and the limit can't be raised: testing with %d connections, not %d (ulimit -n %d for all)", old.Cur, fit, n, need)
		return fit
	}
	return n
}

func TestHalfOpenConnectionsDoNotKeepGoodOnesOut(t *testing.T) {
	for what, sent := range map[string][]byte{
		"half a hello": hello(ordersHost)[:900],
		"nothing":      nil,
	} {
		t.Run(what, func(t *testing.T) { besideHalfOpen(t, sent) })
	}
}

// besideHalfOpen opens 10,000 connections that do not go on after what they sent, and
// wants good ones to be served before, between and after them.
func besideHalfOpen(t *testing.T, sent []byte) {
	gw, began := serve(t, Config{HelloTimeout: time.Hour}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}})), time.Now()
	limit := gw.cfg.MaxHellos / 2 // of one source
	n := roomFor(t, 10_000, limit)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	good := func(when int) {
		name, conn, err := call(t, gw.addr, ordersHost)
		if name != "orders" {
			t.Fatalf("with %d half-open: %v", when, err)
		}
		conn.Close()
	}
	for i := range n {
		c, err := net.Dial("tcp", gw.addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		c.Write(sent)
		if i%1000 == 0 {
			good(i)
		}
	}
	eventually(t, "the older ones have given way", func() bool {
		return gw.metric("isthmus_gateway_hellos_pending") == float64(min(n, limit)) && gw.refused(helloEvicted) == n-min(n, limit)
	})
	for range 20 {
		good(n)
	}
	if most := 5 + int(time.Since(began)/throttle.Interval); gw.log.lines() > most {
		t.Errorf("logged %d lines, want %d at most", gw.log.lines(), most)
	}
}

func TestSlowHelloEndsInTime(t *testing.T) {
	gw := serve(t, Config{HelloTimeout: 300 * time.Millisecond}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	var drips sync.WaitGroup
	for range 50 {
		drips.Go(func() {
			c := dialTCP(t, gw.addr)
			started := time.Now()
			for _, b := range hello(ordersHost) { // a byte at a time, for more than a minute
				if _, err := c.Write([]byte{b}); err != nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			if took := time.Since(started); took > 30*time.Second {
				t.Errorf("a hello of one byte every 50 ms was waited for %v", took)
			}
		})
	}
	drips.Wait()
	if gw.refused(helloTimeout) != 50 {
		t.Errorf("%d ended for being late; want 50", gw.refused(helloTimeout))
	}
}

func TestNothingIsLeftOfConnections(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		if _, conn, err := call(t, gw.addr, ordersHost); err != nil { // all that stays runs by then
			t.Fatal(err)
		} else {
			conn.NetConn().Close()
		}
		eventually(t, "the first is gone", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		before := runtime.NumGoroutine()
		for range 100 {
			if _, conn, err := call(t, gw.addr, ordersHost); err != nil {
				t.Fatal(err)
			} else {
				conn.NetConn().Close()
			}
			c := dialTCP(t, gw.addr)
			io.WriteString(c, "garbage")
			c.Close()
		}
		eventually(t, "all are gone", func() bool {
			return gw.metric("isthmus_gateway_connections_open") == 0 && gw.metric("isthmus_gateway_hellos_pending") == 0 &&
				runtime.NumGoroutine() <= before+2
		})
		if strings.Contains(gw.log.String(), "panic") {
			t.Error(gw.log)
		}
	})
}
