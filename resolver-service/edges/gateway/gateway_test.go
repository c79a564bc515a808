package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

func TestPassesAConnectionToTheAppItNames(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{Peers: tlsPeers(t, "resolver")}, exports(1, map[string][]string{
			"orders": {tlsBackend(t, "orders")},
			"ledger": {tlsBackend(t, "ledger")},
		}), with)
		for host, want := range map[string]string{
			ordersHost:                          "orders",
			ledgerHost:                          "ledger",
			"ORDERS.shop.East.isthmus.internal": "orders",
			peerHost:                            "resolver",
			"_resolver.west.isthmus.internal":   "resolver", // whose certificate has the right name
		} {
			got, conn, err := call(t, gw.addr, host)
			if err != nil || got != want {
				t.Errorf("%s: answered by %q, %v; want %q", host, got, err, want)
				continue
			}
			echo(t, conn, bytes.Repeat([]byte("x"), 100_000))
		}
	})
}

// echo sends and wants the same back.
func echo(t testing.TB, conn io.ReadWriter, sent []byte) {
	t.Helper()
	go conn.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("echo of %d bytes: not the same, %v", len(sent), err)
	}
}

func TestRefusesWhatIsNotExported(t *testing.T) {
	const unrecognized, internal = "tls: unrecognized name", "tls: internal error"
	table := exports(1, map[string][]string{
		"orders": {tlsBackend(t, "orders")},
		"idle":   nil,
		"dead":   {deadAddress(t), deadAddress(t)},
	})
	gw := serve(t, Config{}, table)
	for _, c := range []struct {
		what, host string
		alert      string
		reason     reason
	}{
		{"an app that is not exported", "secret.shop.east.isthmus.internal", unrecognized, unknownName},
		{"an app of another cluster", "orders.shop.west.isthmus.internal", unrecognized, otherCluster},
		{"another domain", "orders.shop.east.example.com", unrecognized, unknownName},
		{"the domain alone", "isthmus.internal", unrecognized, unknownName},
		{"the resolver service, which this gateway does not serve", peerHost, unrecognized, unknownName},
		{"no name", "", unrecognized, noName},
		{"an exported app with nothing ready", idleHost, internal, noInstance},
		{"an exported app that can't be reached", "dead.shop.east.isthmus.internal", internal, unreachable},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := gw.refused(c.reason)
			conn := tls.Client(dialTCP(t, gw.addr), &tls.Config{ServerName: c.host, InsecureSkipVerify: true})
			err := conn.Handshake()
			if err == nil || !strings.Contains(err.Error(), c.alert) {
				t.Errorf("handshake: %v; want %s", err, c.alert)
			}
			if got := gw.refused(c.reason) - before; got != 1 {
				t.Errorf("refusals with reason %s: %d more; want 1", c.reason, got)
			}
			if !strings.Contains(gw.log.String(), "reason="+string(c.reason)) {
				t.Errorf("not logged:\n%s", gw.log)
			}
		})
	}
}

// "isthmus check" learns what is on the way to a gateway; nobody else gets other answers.
func TestChecksLearnWhatIsOnTheWay(t *testing.T) {
	gw := serve(t, Config{}, exports(1, nil))
	for _, c := range []struct {
		what, before string
		protocols    []string
		alert        string
		reason       reason
	}{
		{"no name", "", []string{"h2", catalog.CheckProtocol}, "tls: missing extension", noName},
		{"no name, and no check", "", []string{"h2"}, "tls: unrecognized name", noName},
		{"the PROXY protocol", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", nil, "tls: unexpected message", proxyHeader},
		{"its binary form", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", nil, "tls: unexpected message", proxyHeader},
	} {
		conn := dialTCP(t, gw.addr)
		io.WriteString(conn, c.before)
		err := tls.Client(conn, &tls.Config{NextProtos: c.protocols, InsecureSkipVerify: true}).Handshake()
		if err == nil || !strings.Contains(err.Error(), c.alert) {
			t.Errorf("%s: handshake: %v; want %s", c.what, err, c.alert)
		}
		if gw.refused(c.reason) == 0 {
			t.Errorf("%s: no refusal with reason %s", c.what, c.reason)
		}
	}
}

func TestRefusesWhileThereIsNoTable(t *testing.T) {
	gw := serve(t, Config{}, nil)
	_, _, err := call(t, gw.addr, ordersHost)
	if err == nil || !strings.Contains(err.Error(), "internal error") || gw.refused(notReady) != 1 {
		t.Errorf("got %v, %d refusals", err, gw.refused(notReady))
	}
}

func TestAlertIsFramedAndTheConnectionClosed(t *testing.T) {
	gw := serve(t, Config{}, exports(1, nil))
	c := dialTCP(t, gw.addr)
	c.Write(hello(ordersHost))
	got, err := io.ReadAll(c)
	if want := []byte{21, 3, 1, 0, 2, 2, 112}; err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %v, %v; want %v and the end", got, err, want)
	}
}

func TestTriesAnotherInstance(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, exports(1, map[string][]string{
			"orders": {deadAddress(t), deadAddress(t), deadAddress(t), tlsBackend(t, "alive")},
		}), with)
		for range 10 {
			if got, _, err := call(t, gw.addr, ordersHost); got != "alive" {
				t.Fatalf("answered by %q, %v\n%s", got, err, gw.log)
			}
		}
		if gw.metric("isthmus_gateway_instance_retries_total") == 0 {
			t.Error("ten calls past three dead instances of four, and no retry counted")
		}
	})
}

func TestInstanceThatDoesNotAnswerIsGivenUpInTime(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{DialTimeout: 300 * time.Millisecond}, sharded(exports(1, map[string][]string{
			"orders": {silentAddress(t), tlsBackend(t, "alive")},
		}), "orders", 0, 1), with)
		for range 2 { // by the shard of the one that is silent; a busy machine gives the other up as well
			eventually(t, "the other answers", func() bool {
				got, _, _ := call(t, gw.addr, "0."+ordersHost)
				return got == "alive"
			})
		}
	})
}

// silentAddress is one that answers no attempt to connect: its queue is full.
func silentAddress(t *testing.T) string {
	fd, addr := bound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		switch {
		case err == nil:
			t.Cleanup(func() { c.Close() })
		case n >= 4: // those before are in the queue, also where this machine was late to notice
			return addr
		}
	}
	t.Skip("this system's queues do not fill up")
	return ""
}

// What one app was sent, another must not be sent as well.
func TestConnectionBrokenAfterBytesIsNotRetried(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		var seen atomic.Int64
		breaks := func() string {
			return backend(t, func(c *net.TCPConn) {
				seen.Add(1)
				c.Read(make([]byte, 1))
				relay.Reset(c)
			})
		}
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {breaks(), breaks(), breaks()}}), with)
		if _, _, err := call(t, gw.addr, ordersHost); err == nil {
			t.Error("no error")
		}
		eventually(t, "the connection is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		if n := seen.Load(); n != 1 {
			t.Errorf("%d instances saw the connection; want 1", n)
		}
	})
}

func TestSpreadsConnectionsOverInstances(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{
		"orders": {tlsBackend(t, "a"), tlsBackend(t, "b"), tlsBackend(t, "c")},
	}))
	answered := map[string]int{}
	for range 60 {
		name, conn, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		answered[name]++
	}
	for _, name := range []string{"a", "b", "c"} { // 60 tries miss one of three once in 10^10
		if answered[name] == 0 {
			t.Errorf("60 connections and none for instance %s: %v", name, answered)
		}
	}
}

func TestTableChangesUnderLoadFailNoConnection(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		a, b := tlsBackend(t, "a"), tlsBackend(t, "b")
		tables := []*catalog.GatewayTable{
			exports(1, map[string][]string{"orders": {a}}),
			exports(2, map[string][]string{"orders": {b}, "ledger": {a}}),
		}
		gw := serve(t, Config{}, tables[0], with)
		_, old, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 50 {
					name, conn, err := call(t, gw.addr, ordersHost)
					if err != nil || (name != "a" && name != "b") {
						t.Errorf("answered by %q, %v", name, err)
						return
					}
					echo(t, conn, []byte("ping"))
					conn.Close()
				}
			})
		}
		done := make(chan struct{})
		go func() { callers.Wait(); close(done) }()
		for i := 0; ; i++ {
			gw.table.Store(tables[i%2])
			select {
			case <-done:
				echo(t, old, []byte("still the first instance's"))
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
}

func TestBoundsConnections(t *testing.T) {
	gw := serve(t, Config{MaxConnections: 2, MaxPerSource: 2}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	_, first, err1 := call(t, gw.addr, ordersHost)
	_, _, err2 := call(t, gw.addr, ordersHost)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if c, err := net.Dial("tcp", gw.addr); err == nil { // else the reset came at once
		if _, err := c.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("a third connection: %v; want a reset, the limit is 2", err)
		}
		c.Close()
	}
	if gw.refused(tooMany) != 1 || gw.metric("isthmus_gateway_connections_open") != 2 {
		t.Errorf("%d refused, %v open; want 1 and 2", gw.refused(tooMany), gw.metric("isthmus_gateway_connections_open"))
	}
	first.NetConn().Close()
	eventually(t, "a place is free again", func() bool { return gw.metric("isthmus_gateway_connections_open") == 1 })
	if _, _, err := call(t, gw.addr, ordersHost); err != nil {
		t.Error("after one ended:", err)
	}
}

func TestDrains(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{DrainTimeout: patience}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		_, conn, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() { gw.stop(); close(stopped) }()
		eventually(t, "new connections are refused", func() bool {
			c, err := net.Dial("tcp", gw.addr)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		echo(t, conn, []byte("still served"))
		select {
		case <-stopped:
			t.Error("Serve returned while a connection ran")
		default:
		}
		conn.Close()
		<-stopped
	})
}

func TestDrainHasAnEnd(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{DrainTimeout: 20 * time.Millisecond}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		_, conn, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		silent := dialTCP(t, gw.addr)
		eventually(t, "both are in", func() bool { return gw.metric("isthmus_gateway_connections_open") == 2 })
		gw.stop()
		for _, c := range []net.Conn{conn, silent} {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a connection outlived Serve")
			}
		}
		if open := gw.metric("isthmus_gateway_connections_open"); open != 0 {
			t.Errorf("%v connections open after Serve", open)
		}
	})
}

func TestServeFailsWhenItsListenerIsClosed(t *testing.T) {
	g, err := New(Config{Table: new(live.Value[*catalog.GatewayTable]), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	l.Close()
	if err := g.Serve(context.Background(), l); err == nil {
		t.Error("no error")
	}
}

func TestNewRefusesWhatCanNotWork(t *testing.T) {
	table, logger, registry := new(live.Value[*catalog.GatewayTable]), slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	if _, err := New(Config{Table: table, Logger: logger, Metrics: registry}); err != nil {
		t.Fatal(err)
	}
	for what, cfg := range map[string]Config{
		"no table":                 {Logger: logger},
		"no logger":                {Table: table},
		"metrics registered twice": {Table: table, Logger: logger, Metrics: registry},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestLogsOfOneReasonAreRare(t *testing.T) {
	gw, began := serve(t, Config{}, exports(1, nil)), time.Now()
	for i := range 50 {
		call(t, gw.addr, fmt.Sprintf("app-%d.shop.east.isthmus.internal", i))
	}
	most := 1 + int(time.Since(began)/throttle.Interval)
	if n := gw.log.lines(); gw.refused(unknownName) != 50 || n < 1 || n > most {
		t.Errorf("%d counted, %d lines logged; want 50 and %d at most:\n%s", gw.refused(unknownName), n, most, gw.log)
	}
}

func TestCountsBytes(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		_, conn, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		echo(t, conn, make([]byte, 1<<20))
		for _, direction := range []string{"to_client", "to_backend"} {
			var n float64
			eventually(t, "a MiB is counted "+direction, func() bool {
				n = gw.metric("isthmus_gateway_bytes_total", "direction", direction)
				return n >= 1<<20
			})
			if n > 1<<20+1<<16 {
				t.Errorf("%s: %v bytes; want 1 MiB and TLS's own", direction, n)
			}
		}
		if n := gw.metric("isthmus_gateway_connections_accepted_total"); n != 1 {
			t.Errorf("%v accepted; want 1", n)
		}
	})
}

// TestCountsEachExport has two exports with connections, of which one is withdrawn while its
// connection runs.
func TestCountsEachExport(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		both := map[string][]string{"orders": {tlsBackend(t, "orders")}, "stock": {tlsBackend(t, "stock")}}
		gw := serve(t, Config{}, exports(1, both), with)
		seen := func(name string) (found []string) {
			families, err := gw.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == name {
						found = append(found, fmt.Sprintf("%s %v", m.GetLabel()[0].GetValue(), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
					}
				}
			}
			return found
		}
		becomes := func(name string, want ...string) {
			t.Helper()
			eventually(t, fmt.Sprint(name, want), func() bool { return slices.Equal(seen(name), want) })
		}
		_, orders, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		_, stock, err := call(t, gw.addr, "stock.shop.east.isthmus.internal")
		if err != nil {
			t.Fatal(err)
		}
		echo(t, orders, make([]byte, 1<<20))
		becomes("isthmus_gateway_export_connections_open", "orders 1", "stock 1")
		eventually(t, "bytes of orders", func() bool {
			all := seen("isthmus_gateway_export_bytes_total") // by app, then direction
			var n float64
			_, err := fmt.Sscanf(all[0], "orders %g", &n)
			return err == nil && n >= 1<<20
		})
		gw.table.Store(exports(2, map[string][]string{"orders": both["orders"]}))
		becomes("isthmus_gateway_export_connections_open", "orders 1", "stock 1") // still runs
		stock.Close()
		becomes("isthmus_gateway_export_connections_open", "orders 1", "other 0")
		becomes("isthmus_gateway_export_connections_total", "orders 1", "other 1")
	})
}
