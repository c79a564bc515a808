package transport

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// reply packs a response for the limiter: what was asked, the rcode, and a zone for those
// that don't exist.
func reply(t testing.TB, name string, rcode int, zone string) []byte {
	t.Helper()
	m := question(name)
	m.Response, m.Rcode, m.Compress = true, rcode, true
	if zone != "" {
		m.Ns = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET}, Ns: zone, Mbox: zone}}
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func TestLimitIsPerNetworkAndKindOfResponse(t *testing.T) {
	const zone = "isthmus.internal."
	a := reply(t, "a.shop.isthmus.internal", dns.RcodeSuccess, "")
	for _, test := range []struct {
		what     string
		from     string
		response []byte
		want     verdict
	}{
		{"the same", "192.0.2.1", a, drop},
		{"the same in other case", "192.0.2.1", reply(t, "A.Shop.isthmus.internal", dns.RcodeSuccess, ""), drop},
		{"a neighbour", "192.0.2.200", a, drop},
		{"as IPv6", "::ffff:192.0.2.1", a, drop},
		{"another network", "192.0.3.1", a, pass},
		{"another name", "192.0.2.1", reply(t, "b.shop.isthmus.internal", dns.RcodeSuccess, ""), pass},
		{"no such name", "192.0.2.1", reply(t, "x1.isthmus.internal", dns.RcodeNameError, zone), drop},
		{"no such other name", "192.0.2.1", reply(t, "x2.isthmus.internal", dns.RcodeNameError, zone), drop},
		{"no such name elsewhere", "192.0.2.1", reply(t, "x.example", dns.RcodeNameError, "example."), pass},
		{"an error", "192.0.2.1", reply(t, "x3.example", dns.RcodeRefused, ""), drop},
		{"IPv6", "2001:db8:0:100::1", a, drop},
		{"IPv6, the same /56", "2001:db8:0:1ff::2", a, drop},
		{"IPv6, another /56", "2001:db8:0:200::1", a, pass},
	} {
		t.Run(test.what, func(t *testing.T) {
			l := newLimiter(RateLimit{Responses: 5})
			for _, used := range []struct {
				from     string
				response []byte
			}{
				{"192.0.2.1", a},
				{"2001:db8:0:100::1", a},
				{"192.0.2.1", reply(t, "x.isthmus.internal", dns.RcodeNameError, zone)},
				{"192.0.2.1", reply(t, "y.example", dns.RcodeServerFailure, "")},
			} {
				for n := range 6 {
					want := pass
					if n == 5 {
						want = drop
					}
					if got := l.judge(netip.MustParseAddr(used.from), used.response, l.start); got != want {
						t.Fatalf("response %d of %s: %v, want %v", n, used.from, got, want)
					}
				}
			}
			if got := l.judge(netip.MustParseAddr(test.from), test.response, l.start); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestLimitHoldsOverTimeAndEnds(t *testing.T) {
	l := newLimiter(RateLimit{Responses: 20})
	from, response := netip.MustParseAddr("192.0.2.1"), reply(t, "a.isthmus.internal", 0, "")
	passed := 0
	for ms := range 10_000 { // 1,000 a second, for ten
		if l.judge(from, response, l.start.Add(time.Duration(ms)*time.Millisecond)) == pass {
			passed++
		}
	}
	if passed < 215 || passed > 221 { // 20 at once, and 20 a second
		t.Errorf("%d responses passed in 10 s, want 220", passed)
	}
	later := l.start.Add(12 * time.Second)
	for n := range 20 {
		if l.judge(from, response, later) != pass {
			t.Fatalf("response %d after a pause did not pass", n)
		}
	}
	for days := range 40 { // the clock of an entry goes round after 12.7
		if l.judge(from, response, later.Add(time.Duration(days+1)*24*time.Hour)) != pass {
			t.Fatalf("the response of day %d did not pass", days+1)
		}
	}
}

func TestSlipIsAShareOfWhatIsLimited(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 10_000, 2: 5000, 10: 1000} {
		l := newLimiter(RateLimit{Responses: 1, Slip: n})
		response, slips := reply(t, "a.isthmus.internal", 0, ""), 0
		from := netip.MustParseAddr("192.0.2.1")
		l.judge(from, response, l.start)
		for range 10_000 {
			if l.judge(from, response, l.start) == slip {
				slips++
			}
		}
		if slips < want*3/4 || slips > want*5/4 {
			t.Errorf("slip %d: %d of 10,000, want about %d", n, slips, want)
		}
	}
}

// TestVictimIsNotForgotten floods the limiter with far more networks than it has room
// for, between responses to one that is attacked.
func TestVictimIsNotForgotten(t *testing.T) {
	l := newLimiter(RateLimit{Responses: 20})
	response := reply(t, "a.isthmus.internal", 0, "")
	victim, passed := netip.MustParseAddr("192.0.2.1"), 0
	for i := range 250_000 { // in one second
		now := l.start.Add(time.Duration(i) * 4 * time.Microsecond)
		l.judge(netip.AddrFrom4([4]byte{byte(i>>16) + 1, byte(i >> 8), byte(i), 1}), response, now)
		if i%25 == 0 && l.judge(victim, response, now) == pass {
			passed++
		}
	}
	if passed > 41 {
		t.Errorf("%d of 10,000 responses to the victim passed in a second, want 40", passed)
	}
}

func TestLimitAllocatesNothing(t *testing.T) {
	l := newLimiter(RateLimit{Responses: 20, Slip: 2})
	response := reply(t, "x.isthmus.internal", dns.RcodeNameError, "isthmus.internal.")
	from := netip.MustParseAddr("2001:db8::1")
	if n := testing.AllocsPerRun(1000, func() { l.judge(from, response, l.start) }); n != 0 {
		t.Errorf("%v allocations for a response", n)
	}
}

// TestAForgedInstanceIsLimited: anybody can send from the address of an instance, or of a
// forwarder, and names any number of names.
func TestAForgedInstanceIsLimited(t *testing.T) {
	for standing, most := range map[Standing]int{Instance: 2000, Forwarder: 20_000} {
		l := newLimiter(RateLimit{Responses: 20})
		q := &Query{From: netip.MustParseAddrPort("192.0.2.1:53"), Standing: standing}
		response := reply(t, "a.isthmus.internal", dns.RcodeSuccess, "")
		for second := range 3 {
			passed := 0
			for n := range 100_000 {
				if l.verdict(q, response, l.start.Add(time.Duration(second)*time.Second+time.Duration(n)*10*time.Microsecond)) == pass {
					passed++
				}
			}
			if burst := most; second > 0 && passed > most+1 || passed > most+burst || passed < most-1 {
				t.Errorf("standing %d: %d responses in second %d; want %d", standing, passed, second, most)
			}
		}
		neighbour := &Query{From: netip.MustParseAddrPort("192.0.2.2:53"), Standing: standing}
		if l.verdict(neighbour, response, l.start.Add(3*time.Second)) != pass {
			t.Errorf("standing %d: a neighbour is limited, too", standing)
		}
	}
	l := newLimiter(RateLimit{Responses: 1})
	proved := &Query{From: netip.MustParseAddrPort("192.0.2.1:53"), Standing: Proved}
	for range 10_000 {
		if l.verdict(proved, reply(t, "a.isthmus.internal", dns.RcodeSuccess, ""), l.start) != pass {
			t.Fatal("a proved address is limited")
		}
	}
}

func BenchmarkLimitKnown(b *testing.B) {
	l := newLimiter(RateLimit{Responses: 20, Slip: 2})
	q := &Query{From: netip.MustParseAddrPort("192.0.2.1:53"), Standing: Instance}
	response := reply(b, "a.isthmus.internal", dns.RcodeSuccess, "")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.verdict(q, response, l.start.Add(time.Duration(i)))
	}
}

func BenchmarkLimit(b *testing.B) {
	l := newLimiter(RateLimit{Responses: 20, Slip: 2})
	var responses [][]byte
	for i := range 1000 {
		responses = append(responses, reply(b, fmt.Sprintf("app-%d.shop.isthmus.internal", i), 0, ""))
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			l.judge(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), responses[i%1000], l.start.Add(time.Duration(i)))
		}
	})
}

// TestThereIsNoEndOfNames: whoever makes up names gets no more of answers that are there for
// any name, or of their having no data.
func TestThereIsNoEndOfNames(t *testing.T) {
	l := newLimiter(RateLimit{Responses: 20})
	victim, now := netip.MustParseAddr("192.0.2.1"), time.Now()
	sent := map[string]int{}
	for i := range 10_000 {
		for kind, zone := range map[string]string{"data": "", "no data": "isthmus.internal."} {
			if l.judge(victim, reply(t, fmt.Sprintf("x%d.isthmus.internal", i), dns.RcodeSuccess, zone), now) == pass {
				sent[kind]++
			}
		}
	}
	if sent["no data"] != 20 || sent["data"] > 200 || sent["data"] < 150 {
		t.Errorf("sent of 10,000 each: %v", sent)
	}
	if l.judge(netip.MustParseAddr("192.0.3.1"), reply(t, "x.isthmus.internal", dns.RcodeSuccess, ""), now) != pass {
		t.Error("another network has to suffer")
	}
}
