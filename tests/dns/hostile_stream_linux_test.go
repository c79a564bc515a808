package dns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// many opens connections from as many addresses and hands each to what it does.
func (g *target) many(t *testing.T, count int, network byte, do func(i int, c net.Conn)) (conns []net.Conn) {
	t.Helper()
	for i := range count {
		c, err := g.stream(netip.AddrFrom4([4]byte{127, network, byte(i >> 8), byte(i) | 1}))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
		do(i, c)
	}
	return conns
}

// framed is a query as it goes over TCP.
func framed(t *testing.T, name string) []byte {
	t.Helper()
	q, err := new(mdns.Msg).SetQuestion(name, mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
}

// TestStreamsThatWaste: hundreds of clients by TCP that are slow, send halves, or read
// nothing. Those who behave are answered, also by TCP, and memory is bounded.
func TestStreamsThatWaste(t *testing.T) {
	g := newTarget(t, map[string]any{})
	query := framed(t, "orders.shop.east."+zone)
	before := g.resident(t)
	ended := make(chan struct{})
	var busy sync.WaitGroup
	defer busy.Wait()
	defer close(ended)
	silent := g.many(t, 300, 71, func(int, net.Conn) {})
	halves := g.many(t, 300, 72, func(i int, c net.Conn) { c.Write(query[:1+i%(len(query)-1)]) })
	huge := g.many(t, 100, 73, func(_ int, c net.Conn) { c.Write(append([]byte{0xff, 0xff}, make([]byte, 30_000)...)) })
	slow := g.many(t, 100, 74, func(i int, c net.Conn) {
		busy.Go(func() { // a byte now and then
			for {
				for _, b := range query {
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
					select {
					case <-ended:
						return
					case <-time.After(300 * time.Millisecond):
					}
				}
			}
		})
	})
	deaf := g.many(t, 100, 75, func(i int, c net.Conn) {
		busy.Go(func() { // asks and never reads
			all := bytes.Repeat(query, 1000)
			for {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := c.Write(all); err != nil {
					return
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	})
	noise := g.many(t, 50, 76, func(_ int, c net.Conn) { c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) })
	for range 20 {
		g.well(t, instanceOfShop)
		g.wellByTCP(t, instanceOfShop)
	}
	after := g.resident(t)
	t.Logf("memory %d MiB, then %d MiB with %d connections", before>>20, after>>20, len(silent)+len(halves)+len(huge)+len(slow)+len(deaf)+len(noise))
	if after > before+grown {
		t.Errorf("memory grew from %d to %d MiB", before>>20, after>>20)
	}
	for what, conns := range map[string][]net.Conn{"that say nothing": silent, "with half a query": halves, "that promise much": huge, "that speak no DNS": noise} {
		for i, c := range conns {
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
				t.Errorf("of connections %s number %d is not closed: %v", what, i, err)
				break
			}
		}
	}
}

// wellByTCP fails the test unless a good client is answered over TCP. Where there are many
// connections, one that is idle for 2 s ends: here that is a machine that stood still between
// the connection and the query.
func (g *target) wellByTCP(t *testing.T, from netip.Addr) {
	t.Helper()
	for try := 1; ; try++ {
		begun := time.Now()
		err := g.wellAt(from, "tcp", patience)
		took := time.Since(begun)
		switch {
		case err == nil:
			return
		case took < time.Second || isTimeout(err) || try == stalls.Tries:
			t.Fatalf("a good client by TCP, at try %d, after %s: %v", try, took, err)
		}
		t.Logf("a good client by TCP, after %s: %v; once more", took, err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// TestOneClientDoesNotTakeEveryConnection: its connections give way to each other first.
func TestOneClientDoesNotTakeEveryConnection(t *testing.T) {
	g := newTarget(t, map[string]any{"maxTCP": 100})
	for range 300 {
		c, err := g.stream(netip.MustParseAddr("127.66.1.1"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var good net.Conn
	used := time.Now()
	for end := time.Now().Add(patience); ; {
		var err error
		if good, err = g.stream(instanceOfShop); err != nil {
			t.Fatal(err)
		}
		defer good.Close()
		for rounds := 0; err == nil; rounds++ {
			if rounds == 10 {
				return
			}
			used = time.Now()
			for range 30 {
				more, err := g.stream(netip.MustParseAddr("127.66.1.1"))
				if err != nil {
					t.Fatal(err)
				}
				defer more.Close()
			}
			err = answersOn(good)
		}
		// One that is idle for 2 s ends where there are many: here that is a machine that
		// stood still.
		if time.Since(used) < time.Second || time.Now().After(end) {
			t.Fatalf("the connection of another, %s after it was used: %v", time.Since(used), err)
		}
	}
}

// answersOn asks on a connection that there is.
func answersOn(conn net.Conn) error {
	c := mdns.Conn{Conn: conn}
	conn.SetDeadline(time.Now().Add(patience))
	if err := c.WriteMsg(new(mdns.Msg).SetQuestion("orders.shop."+zone, mdns.TypeA)); err != nil {
		return err
	}
	m, err := c.ReadMsg()
	if err == nil && len(m.Answer) != 1 {
		err = fmt.Errorf("got %s", m)
	}
	return err
}

// TestHandshakesThatDoNotEnd: more of them by TLS than one client may have connections.
func TestHandshakesThatDoNotEnd(t *testing.T) {
	l := sharedLab(t)
	var conns []net.Conn
	for i := range 150 {
		c, err := l.callers.Dial(t.Context(), "tcp", net.JoinHostPort(server.String(), tlsPort))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}[:i%12]) // the beginning of a ClientHello
	}
	l.by(t, "kdig", checkout, "-p", tlsPort, "+tls-ca="+l.ca, "+tls-hostname=ns."+zone[:len(zone)-1], "orders.shop."+zone, "A").check(t, want{status: "NOERROR", answer: orders})
	for i, c := range conns {
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Fatalf("connection %d is not closed", i)
		}
	}
}
