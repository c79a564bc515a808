package dns

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// forged floods the target with queries of one sender, who asked for none of what comes, and
// tells what came, for how long, and for how many queries of how many bytes.
func (g *target) forged(t *testing.T, from netip.Addr, next func(buffer []byte) []byte) (queries, asked, responses, got int, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), attack/2)
	defer cancel()
	conn := g.socket(t, from)
	done := make(chan struct{})
	go func() { defer close(done); responses, got = drain(conn) }()
	begun := time.Now()
	queries = flood(ctx, conn, 50_000, func(buffer []byte) []byte {
		q := next(buffer)
		asked += len(q)
		return q
	})
	g.well(t, instanceOfShop) // all before it has been read
	took = time.Since(begun)  // what was read late has been answered by then
	conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	<-done
	return queries, asked, responses, got, took
}

// same asks for one name again and again.
func same(name string, kind uint16) func([]byte) []byte {
	q, err := new(mdns.Msg).SetQuestion(name, kind).SetEdns0(1232, false).Pack()
	if err != nil {
		panic(err)
	}
	return func(buffer []byte) []byte { return append(buffer, q...) }
}

// TestForgedSendersAreNotFlooded: whoever is a sender by forgery gets a few responses a second,
// and truncated ones which are no larger than the queries. Those who really are there get
// through by TCP and by cookies.
func TestForgedSendersAreNotFlooded(t *testing.T) {
	const responses, slip = 20, 4
	g := newTarget(t, map[string]any{"rateLimit": map[string]any{"responses": responses, "slip": slip}})
	for i, c := range []struct {
		name  string
		query func([]byte) []byte
		kinds float64 // of responses that are not alike, at most
	}{
		{"one name", same("orders.shop.east."+zone, mdns.TypeA), 1},
		{"one name, ANY", same(zone, mdns.TypeANY), 1},
		{"names that there are without end", randomName("shop.east."+zone, mdns.TypeA), 10},
		{"SRV of such names", randomName("shop.east."+zone, mdns.TypeSRV), 10},
		{"names without data that there are without end", randomName(zone, mdns.TypeA), 1},
		{"names that are not there", randomName("shop."+zone, mdns.TypeA), 1},
		{"names elsewhere", randomName("example.", mdns.TypeA), 1},
		{"what is no query", func(b []byte) []byte { return append(b, 7, 7, 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1) }, 1},
	} {
		victim := netip.AddrFrom4([4]byte{127, 50, byte(i), 9})
		queries, asked, sent, got, took := g.forged(t, victim, c.query)
		t.Logf("%s: %d queries of %d bytes in %s, %d responses of %d bytes: %.2f of what was sent", c.name, queries, asked, took.Round(time.Second), sent, got, float64(got)/float64(asked))
		full := c.kinds * responses * (took.Seconds() + 3)
		if most := full + float64(queries)/slip*1.3; float64(sent) > most {
			t.Errorf("%s: %d responses to %d queries, want %.0f at most", c.name, sent, queries, most)
		}
		if most := full*1232 + float64(asked)/slip*1.3; float64(got) > most {
			t.Errorf("%s: %d bytes for %d, want %.0f at most", c.name, got, asked, most)
		}
	}
	g.throughTheLimit(t, netip.MustParseAddr("127.50.0.10")) // a neighbour of the first victim
}

// throughTheLimit floods a network, and asks as a real client there.
func (g *target) throughTheLimit(t *testing.T, client netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	conn := g.socket(t, netip.AddrFrom4([4]byte{127, 50, 0, 9}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		flood(ctx, conn, 10_000, same("orders.shop.east."+zone, mdns.TypeA))
	}()
	defer func() { cancel(); <-done }()
	name := "orders.shop.east." + zone
	isThere := func(m *mdns.Msg, err error) error {
		if err == nil && len(m.Answer) != 3 {
			err = fmt.Errorf("got %s", m)
		}
		return err
	}
	if err := isThere(g.ask(client, "tcp", name, mdns.TypeA, patience)); err != nil {
		t.Errorf("over TCP: %v", err)
	}
	cut := false
	for end := time.Now().Add(patience); !cut && time.Now().Before(end); {
		m, err := g.ask(client, "udp", name, mdns.TypeA, 100*time.Millisecond)
		cut = err == nil && m.Truncated
	}
	if !cut {
		t.Error("a real client is never told to come by TCP")
	}
	cookie := "0102030405060708"
	withCookie := func(m *mdns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: cookie}}
	}
	m, err := g.ask(client, "tcp", name, mdns.TypeA, patience, withCookie)
	if err != nil || len(m.IsEdns0().Option) == 0 {
		t.Fatalf("no cookie: %v %v", m, err)
	}
	forge := cookie + "01000000" + fmt.Sprintf("%08x", time.Now().Unix()) + "00112233445566aa"
	own := m.IsEdns0().Option[0].(*mdns.EDNS0_COOKIE).Cookie
	for _, c := range []struct {
		what, cookie string
		from         netip.Addr
		least, most  int
		tries        int // for each query: a busy machine drops some
		patience     time.Duration
	}{
		{"its own cookie", own, client, 45, 50, 20, time.Second},
		{"a forged one", forge, client, 0, 25, 1, 100 * time.Millisecond},
		{"a neighbour's", own, client.Next(), 0, 25, 1, 100 * time.Millisecond},
	} {
		cookie = c.cookie
		answered, unheard := 0, 0
		for range 50 {
			for range c.tries {
				m, err := g.ask(c.from, "udp", name, mdns.TypeA, c.patience, withCookie)
				if isThere(m, err) == nil {
					answered++
				}
				if err == nil {
					break // whatever it was, it was no loss
				}
				unheard++
			}
		}
		if answered < c.least || answered > c.most {
			t.Errorf("with %s %d of 50 queries are answered in full, after %d tries without an answer", c.what, answered, unheard)
		}
	}
}
