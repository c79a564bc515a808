package gateway

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPipesAreBoundedAndUsedAgain(t *testing.T) {
	var ps pipes
	var lent []*pipe
	for range maxPipes {
		p := ps.get()
		if p == nil {
			t.Skipf("this user may have %d pipes only", len(lent))
		}
		lent = append(lent, p)
	}
	if ps.get() != nil {
		t.Errorf("more than %d pipes", maxPipes)
	}
	first := lent[0]
	ps.put(first)
	if again := ps.get(); again != first {
		t.Error("an empty pipe that came back was not lent again")
	}
	first.held = 1
	ps.put(first)
	if again := ps.get(); again == first || again == nil {
		t.Error("a pipe with something in it was lent again, or its place is lost")
	} else {
		ps.put(again)
	}
	for _, p := range lent[1:] {
		ps.put(p)
	}
	if len(ps.spare) != maxSpare || ps.open != maxSpare {
		t.Errorf("%d spare of %d open; want %d", len(ps.spare), ps.open, maxSpare)
	}
	ps.close()
}

// With no pipe to be had bulk is copied, and arrives just the same.
func TestBulkWithoutPipes(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), func(g *Gateway) {
		g.newRelay = func(cfg relayConfig) (relay, error) {
			r, err := newRelay(cfg)
			if err == nil {
				for _, l := range r.(*epollRelay).loops {
					l.call(func() { l.pipes.pause = 1 << 30 })
				}
			}
			return r, err
		}
	})
	_, conn, err := call(t, gw.addr, ordersHost)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, conn, bytes.Repeat([]byte("0123456789"), 1<<20))
}

// More stalled receivers than there are pipes keep nobody else from being served.
func TestManyReadersThatDoNotRead(t *testing.T) {
	sends := backend(t, func(c *net.TCPConn) {
		c.Read(make([]byte, 4096))
		for b := make([]byte, 1<<20); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}, "ledger": {sends}}))
	for range 2*maxPipes + 10 {
		c := dialTCP(t, gw.addr)
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		c.Write(hello(ledgerHost))
	}
	for range 3 {
		_, conn, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		echo(t, conn, make([]byte, 4<<20))
	}
}
