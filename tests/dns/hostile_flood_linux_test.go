package dns

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// attack is how long a flood lasts: long enough that what grows is seen to.
const attack = 5 * time.Second

// rate is how many queries come in a second in all, where the machine makes as many.
const rate = 100_000

// grown is how much memory a service may have taken in a flood: buffers, caches that are
// full, and what the collector lets stand.
const grown = 200 << 20

// randomName makes queries for names below a suffix whose first label nobody has asked for
// yet.
func randomName(suffix string, kind uint16) func(buffer []byte) []byte {
	q, err := new(mdns.Msg).SetQuestion("0123456789abcdef."+suffix, kind).SetEdns0(1232, false).Pack()
	if err != nil {
		panic(err)
	}
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	return func(buffer []byte) []byte {
		buffer = append(buffer, q...)
		binary.BigEndian.PutUint16(buffer, uint16(random.Uint32()))
		var eight [8]byte
		binary.BigEndian.PutUint64(eight[:], random.Uint64())
		hex.Encode(buffer[13:], eight[:])
		return buffer
	}
}

// underAttack floods a target with names from senders, and asks as a good client meanwhile:
// it tells how often, and how many tries that took.
func underAttack(t *testing.T, g *target, suffixes map[string]netip.Addr) (asked, tries int) {
	t.Helper()
	g.well(t, instanceOfShop)
	before, series := g.resident(t), g.metrics(t)
	ctx, cancel := context.WithTimeout(t.Context(), attack)
	defer cancel()
	var sent, got atomic.Int64
	var senders, readers sync.WaitGroup
	var conns []*net.UDPConn
	begun := time.Now()
	for suffix, from := range suffixes {
		conn := g.socket(t, from)
		conns = append(conns, conn)
		senders.Go(func() { sent.Add(int64(flood(ctx, conn, rate/float64(len(suffixes)), randomName(suffix, mdns.TypeA)))) })
		readers.Go(func() { n, _ := drain(conn); got.Add(int64(n)) })
	}
	slowest := time.Duration(0)
	for ctx.Err() == nil {
		start := time.Now()
		tries += g.well(t, instanceOfShop)
		asked++
		slowest = max(slowest, time.Since(start))
		time.Sleep(20 * time.Millisecond)
	}
	senders.Wait()
	took := time.Since(begun)
	for _, c := range conns {
		c.Close()
	}
	readers.Wait()
	after := g.resident(t)
	t.Logf("%.0f queries/s for %s, of which %.0f/s were answered; a good client asked %d times, %d tries, at most %s; memory %d MiB, then %d MiB",
		float64(sent.Load())/took.Seconds(), took.Round(time.Second), float64(got.Load())/took.Seconds(), asked, tries, slowest.Round(time.Millisecond), before>>20, after>>20)
	if after > before+grown {
		t.Errorf("memory grew from %d to %d MiB", before>>20, after>>20)
	}
	if got.Load() == 0 {
		t.Error("nothing was answered")
	}
	if now := g.metrics(t); len(now) > len(series)+20 || slices.ContainsFunc(now, func(s string) bool { return strings.Contains(s, "127.") && !strings.Contains(s, ":745") }) {
		t.Errorf("metrics grew from %d series to %d:\n%s", len(series), len(now), strings.Join(now, "\n"))
	}
	g.well(t, instanceOfShop)
	return asked, tries
}

// TestFloodsOfRandomNames: names that nobody asks for twice, of every kind of name.
func TestFloodsOfRandomNames(t *testing.T) {
	g := newTarget(t, map[string]any{})
	for name, suffixes := range map[string]map[string]netip.Addr{
		"of a stranger":         {"shop." + zone: netip.MustParseAddr("127.66.1.1"), "shop.east." + zone: netip.MustParseAddr("127.66.2.1")},
		"of an instance":        {"shop." + zone: instanceOfShop, "shop.east." + zone: instanceOfShop},
		"outside of the zone":   {"example.": netip.MustParseAddr("127.66.1.1")},
		"of many labels, a PTR": {"a.b.c.d.e.f.g.h." + zone: instanceOfShop, "9.127.in-addr.arpa.": instanceOfShop},
	} {
		t.Run(name, func(t *testing.T) { underAttack(t, g, suffixes) })
	}
}

// upstreamIn runs a resolver in the target's network that knows no name, or says nothing.
func (g *target) upstreamIn(t *testing.T, address string, answers bool) {
	t.Helper()
	var conn net.PacketConn
	if err := g.place.Do(func() (err error) { conn, err = net.ListenPacket("udp", address); return err }); err != nil {
		t.Fatal(err)
	}
	soa, err := mdns.NewRR("example. 60 SOA ns.example. host.example. 1 2 3 4 60")
	if err != nil {
		t.Fatal(err)
	}
	s := &mdns.Server{PacketConn: conn, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		m := new(mdns.Msg).SetRcode(q, mdns.RcodeNameError)
		m.Ns = []mdns.RR{soa}
		if strings.HasPrefix(q.Question[0].Name, "good.") {
			r, _ := mdns.NewRR(q.Question[0].Name + " 1 A 192.0.2.1")
			m = new(mdns.Msg).SetReply(q)
			m.Answer = []mdns.RR{r}
		} else if !answers {
			return
		}
		w.WriteMsg(m)
	})}
	started, done := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	go func() { done <- s.ActivateAndServe() }()
	<-started // only then it can be shut down
	t.Cleanup(func() { s.Shutdown(); <-done })
}

// TestFloodsOfForwardedNames: names of an upstream that has none of them, or never says so.
func TestFloodsOfForwardedNames(t *testing.T) {
	for name, answers := range map[string]bool{"that are not there": true, "that nobody answers": false} {
		t.Run(name, func(t *testing.T) {
			g := newTarget(t, map[string]any{"forward": []string{"127.0.0.53:53"}, "cache": 1000})
			g.upstreamIn(t, "127.0.0.53:53", answers)
			known := func() error {
				m, err := g.ask(instanceOfShop, "udp", "good.example.", mdns.TypeA, time.Second)
				if err == nil && len(m.Answer) != 1 {
					err = fmt.Errorf("%s", m)
				}
				return err
			}
			meshtest.Eventually(t, patience, known)
			ctx, cancel := context.WithCancel(t.Context())
			var failed, asked int
			var good sync.WaitGroup
			good.Go(func() {
				for ctx.Err() == nil {
					if asked++; known() != nil {
						failed++
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			own, tries := underAttack(t, g, map[string]netip.Addr{"example.": netip.MustParseAddr("127.66.1.1")}) // loopback may have names forwarded
			cancel()
			good.Wait()
			t.Logf("a name that the upstream has: asked %d times, %d without an answer", asked, failed)
			// Where names of our own are not answered the first time, too, the machine does not read
			// as fast as the flood comes in.
			if failed > 5 && float64(failed)/float64(asked) > float64(tries-own)/float64(tries)+0.4 {
				t.Errorf("of %d queries for a name that the upstream has %d had no answer; %d for one of ours took %d tries", asked, failed, own, tries)
			}
		})
	}
}
