package zone

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

func TestOtherThanQueries(t *testing.T) {
	w := shop(t)
	for name, c := range map[string]struct {
		shape func(*dns.Msg)
		want  int
	}{
		"update":         {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"notify":         {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		"status":         {func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }, dns.RcodeNotImplemented},
		"class hesiod":   {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassHESIOD }, dns.RcodeRefused},
		"any class":      {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, dns.RcodeRefused},
		"EDNS version 1": {func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		"OPT asked for":  {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeOPT }, dns.RcodeFormatError},
	} {
		got := w.ask(asking{as: "shop/checkout", name: "orders.shop.isthmus.internal.", typ: "A", shape: c.shape})
		if got.Rcode != c.want || len(got.Answer) > 0 {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestWhatIsNoQueryGetsNoAnswer(t *testing.T) {
	w := shop(t)
	response := new(dns.Msg).SetQuestion("orders.shop.isthmus.internal.", dns.TypeA)
	response.Response = true
	packed, err := response.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, packet := range [][]byte{nil, packed[:11], packed} {
		if got, later := w.Answer(query(asking{}, packet), nil); len(got) > 0 || later {
			t.Errorf("%x is answered with %x", packet, got)
		}
	}
	packed[2] &^= 0x80
	got, _ := w.Answer(query(asking{}, packed[:20]), nil)
	if len(got) != 12 || got[3]&0xf != dns.RcodeFormatError || got[0] != packed[0] || got[1] != packed[1] {
		t.Errorf("half a question is answered with %x", got)
	}
}

func TestChaosSaysWhoAnswers(t *testing.T) {
	w := shop(t)
	for name, want := range map[string]string{"version.bind.": "isthmus test", "Version.Server.": "isthmus test", "id.server.": "west-1", "hostname.bind.": "west-1"} {
		got := w.ask(asking{name: name, typ: "TXT", shape: func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }})
		if len(got.Answer) != 1 || got.Answer[0].(*dns.TXT).Txt[0] != want || got.Answer[0].Header().Class != dns.ClassCHAOS {
			t.Errorf("%s: got %v", name, got)
		}
	}
	got := w.ask(asking{name: "orders.shop.isthmus.internal.", typ: "TXT", shape: func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }})
	if got.Rcode != dns.RcodeRefused {
		t.Errorf("got %v", got)
	}
}

func TestTheServerNamesItselfWhenAsked(t *testing.T) {
	w := shop(t)
	got := w.ask(asking{as: "shop/checkout", name: "orders.shop.isthmus.internal.", typ: "A", shape: func(m *dns.Msg) {
		m.SetEdns0(1232, true)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}, &dns.EDNS0_PADDING{Padding: make([]byte, 20)})
	}})
	opt := got.IsEdns0()
	if len(opt.Option) != 1 || opt.Option[0].(*dns.EDNS0_NSID).Nsid != hex.EncodeToString([]byte("west-1")) || !opt.Do() || opt.UDPSize() != 1232 {
		t.Errorf("got %v", opt)
	}
}

// withSubnet sends a client's subnet.
func withSubnet(prefix string) func(*dns.Msg) {
	return func(m *dns.Msg) {
		p := netip.MustParsePrefix(prefix)
		family := uint16(1)
		if p.Addr().Is6() {
			family = 2
		}
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: family, SourceNetmask: uint8(p.Bits()), Address: p.Addr().AsSlice(),
		})
	}
}

func TestAClientsSubnetIsBelievedFromListedForwarders(t *testing.T) {
	w := shop(t, func(c *Config) {
		c.Forwarders = []netip.Prefix{netip.MustParsePrefix("10.53.0.0/16"), netip.MustParsePrefix("fd53::/16")}
	})
	const secret = "secret.shop.isthmus.internal."
	for _, c := range []struct {
		from, subnet string
		as           string
		rcode        int
		scope        int // -1: no subnet in the response
	}{
		{"10.53.0.1", "10.0.0.8/32", "", dns.RcodeSuccess, 32},          // cart has no selection
		{"fd53::1", "10.0.0.8/32", "", dns.RcodeSuccess, 32},            //
		{"10.53.0.1", "10.0.0.9/32", "", dns.RcodeNameError, 32},        // checkout may not see it
		{"10.53.0.1", "10.9.9.9/32", "", dns.RcodeNameError, 32},        // nobody
		{"10.53.0.1", "10.0.0.0/24", "", dns.RcodeNameError, 24},        // not an address, and kept for that network alone
		{"10.53.0.1", "0.0.0.0/0", "", dns.RcodeNameError, 0},           //
		{"10.9.9.9", "10.0.0.8/32", "", dns.RcodeNameError, -1},         // not listed
		{"10.0.0.8", "10.0.0.9/32", "", dns.RcodeSuccess, -1},           // not listed: its own address counts
		{"10.53.0.1", "10.0.0.8/32", "shop/checkout", 3, -1},            // the listener is checkout's
		{"10.53.0.1", "::ffff:10.0.0.8/128", "", dns.RcodeSuccess, 128}, //
		{"10.53.0.1", "fd00::99/128", "", dns.RcodeNameError, 128},      //
	} {
		got := w.ask(asking{from: c.from, as: c.as, name: secret, typ: "A", shape: withSubnet(c.subnet)})
		scope := -1
		for _, o := range got.IsEdns0().Option {
			if s, ok := o.(*dns.EDNS0_SUBNET); ok {
				scope = int(s.SourceScope)
				if s.SourceScope != s.SourceNetmask {
					t.Errorf("%v: got %v", c, s)
				}
			}
		}
		if got.Rcode != c.rcode || scope != c.scope {
			t.Errorf("from %s for %s: got %s and scope %d, want %s and %d", c.from, c.subnet, dns.RcodeToString[got.Rcode], scope, dns.RcodeToString[c.rcode], c.scope)
		}
	}
}

// TestWhoIsNotKnownIsToldWhy has what goes wrong between a client, a forwarder and this server.
func TestWhoIsNotKnownIsToldWhy(t *testing.T) {
	w := shop(t, forwarders)
	w.apply(runs("shop/one", "10.0.0.66:50002"), runs("shop/two", "10.0.0.66:50003"))
	for _, c := range []struct{ from, subnet, want string }{
		{"10.53.0.1", "", "10.53.0.1 is a forwarder, and does not say for whom it asks; have it send its client's address as EDNS Client Subnet, /32 or /128"},
		{"10.53.0.1", "10.0.0.0/24", "10.53.0.1 is a forwarder, and says /24 of its client's address; have it send all of it, /32 or /128"},
		{"10.53.0.1", "10.9.9.9/32", "10.9.9.9, for whom 10.53.0.1 asks, is no instance's address; ask from one, or on a listener that is bound to an app (listen.dns, as)"},
		{"10.53.0.1", "10.0.0.66/32", "10.0.0.66, for whom 10.53.0.1 asks, is the address of several apps; bind a listener to the app (listen.dns, as) and ask there"},
		{"10.9.9.9", "10.0.0.9/32", "10.9.9.9 is no instance's address, and not in dns.forwarders, so the client subnet that it sends is not believed; list it there, or ask on a listener that is bound to an app (listen.dns, as)"},
		{"10.0.0.66", "", "10.0.0.66 is the address of several apps; bind a listener to the app (listen.dns, as) and ask there"},
	} {
		a := asking{from: c.from, name: "orders.shop.isthmus.internal.", typ: "A", edns: c.subnet == ""}
		if c.subnet != "" {
			a.shape = withSubnet(c.subnet)
		}
		want := "NXDOMAIN aa\n" + soaLine + "error: 18 Prohibited: caller unknown: " + c.want
		if got := show(w.ask(a)); got != want {
			t.Errorf("from %s for %q: got\n%s\nwant\n%s", c.from, c.subnet, got, want)
		}
	}
}

// TestCookiesAreThoseOfRFC9018 has the examples of RFC 9018, appendix A.
func TestCookiesAreThoseOfRFC9018(t *testing.T) {
	for _, c := range []struct {
		secret, sent, client string
		now                  int64
		want                 string
		valid                bool
	}{
		{"e5e973e5a6b2a43f48e7dc849e37bfcf", "2464c4abcf10c957", "198.51.100.100", 1559731985, "2464c4abcf10c957010000005cf79f111f8130c3eee29480", false},
		{"e5e973e5a6b2a43f48e7dc849e37bfcf", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", "198.51.100.100", 1559734385, "2464c4abcf10c957010000005cf7a871d4a564a1442aca77", true},
		{"e5e973e5a6b2a43f48e7dc849e37bfcf", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", "203.0.113.203", 1559727985, "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", true},
		{"445536bcd2513298075a5d379663c962", "22681ab97d52c298010000005cf7c57926556bd0934c72f8", "2001:db8:220:1:59de:d0f4:8769:82b8", 1559741961, "22681ab97d52c298010000005cf7c609a6bb79d16625507a", false},
		{"dd3bdf9344b678b185a6f5cb60fca715", "22681ab97d52c298010000005cf7c57926556bd0934c72f8", "2001:db8:220:1:59de:d0f4:8769:82b8", 1559741961, "", true},
	} {
		var secret [16]byte
		must(hex.Decode(secret[:], []byte(c.secret)))
		sent, err := hex.DecodeString(c.sent)
		if err != nil {
			t.Fatal(err)
		}
		var k cookies
		k.setSecret(secret)
		got, valid := k.answer(sent, netip.MustParseAddr(c.client), time.Unix(c.now, 0))
		if valid != c.valid || c.want != "" && hex.EncodeToString(got[:]) != c.want {
			t.Errorf("%s: got %x, valid %v; want %s, %v", c.sent, got, valid, c.want, c.valid)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestACookieProvesAnAddress(t *testing.T) {
	w := shop(t)
	const client = "0102030405060708"
	ask := func(from, cookie string) (proved bool, answer string) {
		m := new(dns.Msg).SetQuestion("orders.shop.east.isthmus.internal.", dns.TypeA)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: cookie})
		q := query(asking{from: from}, must(m.Pack()))
		out, _ := w.Answer(q, nil)
		got := new(dns.Msg)
		if err := got.Unpack(out); err != nil {
			t.Fatal(err)
		}
		return q.Standing == transport.Proved, got.IsEdns0().Option[0].(*dns.EDNS0_COOKIE).Cookie
	}
	proved, full := ask("10.9.9.9", client)
	if proved || !strings.HasPrefix(full, client) || len(full) != 48 {
		t.Fatalf("proved %v by %s", proved, full)
	}
	if proved, again := ask("10.9.9.9", full); !proved || again != full {
		t.Errorf("proved %v by %s, then given %s", proved, full, again)
	}
	if proved, _ := ask("10.9.9.8", full); proved {
		t.Error("proved by a cookie of another address")
	}
	if proved, _ := ask("10.9.9.9", client+strings.Repeat("ab", 16)); proved {
		t.Error("proved by a cookie that nobody made")
	}
	if proved, _ := ask("10.0.0.1", client); proved {
		t.Error("the address of an instance proves itself")
	}
	if proved, _ := ask("::ffff:10.9.9.9", full); !proved {
		t.Error("not proved by another socket, which writes the same address in the form of IPv6")
	}
	q := query(asking{over: transport.TCP}, must(new(dns.Msg).SetQuestion("isthmus.internal.", dns.TypeSOA).Pack()))
	if w.Answer(q, nil); q.Standing != transport.Proved {
		t.Error("a connection proves no address")
	}
}

func TestWhatDoesNotFitIsTruncatedByWholeRecords(t *testing.T) {
	w := newWorld(t, west)
	var many, few []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("10.1.%d.%d:50002", i/250, i%250+1))
		few = append(few, fmt.Sprintf("10.2.%d.%d:50002", i/250, i%250+1))
	}
	w.apply(full(), runs("shop/many", many...), runs("shop/few", few[:40]...))
	for _, c := range []struct {
		name      string
		typ       string
		edns      uint16
		over      transport.Protocol
		truncated bool
		fewest    int
		most      int
	}{
		{"many.shop.isthmus.internal.", "A", 0, transport.UDP, true, 28, 512},
		{"many.shop.isthmus.internal.", "A", 100, transport.UDP, true, 27, 512},
		{"many.shop.isthmus.internal.", "A", 1232, transport.UDP, true, 72, 1232},
		{"many.shop.isthmus.internal.", "A", 65535, transport.UDP, true, 72, 1232},
		{"many.shop.isthmus.internal.", "A", 1232, transport.TCP, false, 300, 65535},
		{"many.shop.isthmus.internal.", "A", 0, transport.TLS, false, 300, 65535},
		{"few.shop.isthmus.internal.", "A", 0, transport.UDP, true, 28, 512},
		{"few.shop.isthmus.internal.", "A", 4096, transport.UDP, false, 40, 1232},
		{"_dapr._tcp.many.shop.isthmus.internal.", "SRV", 1232, transport.UDP, true, 15, 1232},
		{"_dapr._tcp.many.shop.isthmus.internal.", "SRV", 0, transport.TCP, false, 300, 65535},
	} {
		a := asking{as: "shop/many", name: c.name, typ: c.typ, over: c.over, shape: func(m *dns.Msg) {
			if c.edns > 0 {
				m.SetEdns0(c.edns, false)
			}
		}}
		got := w.ask(a)
		if got.Truncated != c.truncated || len(got.Answer) < c.fewest || got.Len() > 4*c.most {
			t.Errorf("%s %s with %d: truncated %v with %d records", c.name, c.typ, c.edns, got.Truncated, len(got.Answer))
		}
		packet := must(a.message().Pack())
		if out, _ := w.Answer(query(a, packet), nil); len(out) > c.most {
			t.Errorf("%s %s with %d: %d bytes", c.name, c.typ, c.edns, len(out))
		}
	}
}

// elsewhere is a forwarder that answers everything in one way.
type elsewhere struct{}

func (elsewhere) Forward(_ context.Context, query, out []byte) []byte {
	m := new(dns.Msg)
	if m.Unpack(query) != nil {
		return out
	}
	edns := m.IsEdns0() != nil
	m.SetRcode(m, dns.RcodeYXDomain)
	if m.Extra = nil; edns {
		for i := range 200 {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: []byte{1, 2, 3, byte(i)}})
		}
		m.SetEdns0(1232, false)
	}
	packed, _ := m.PackBuffer(nil)
	return append(out, packed...)
}

func (elsewhere) Cached(_, out []byte) ([]byte, bool) { return out, false }

func TestNamesElsewhereAreForwarded(t *testing.T) {
	w := shop(t, func(c *Config) { c.Forward = elsewhere{} })
	for _, c := range []struct {
		from, name, typ, want string
	}{
		{"10.0.0.9", "example.com.", "A", "YXDOMAIN"},
		{"127.0.0.1", "example.com.", "A", "YXDOMAIN"},
		{"10.0.0.9", "shop.svc.cluster.local.", "A", "YXDOMAIN"},
		{"10.0.0.9", "7.0.0.10.in-addr.arpa.", "PTR", "YXDOMAIN"},
		{"203.0.113.1", "example.com.", "A", "REFUSED ra"}, // nobody may use it against others
		{"10.0.0.9", "example.com.", "AXFR", "REFUSED ra"},
		{"10.0.0.9", "ns.isthmus.internal.", "A", "NOERROR aa ra"},
	} {
		got, _, _ := strings.Cut(show(w.ask(asking{from: c.from, name: c.name, typ: c.typ})), "\n")
		if got != c.want {
			t.Errorf("%s asks %s %s: got %s, want %s", c.from, c.name, c.typ, got, c.want)
		}
	}
	a := asking{name: "example.com.", typ: "A", shape: func(m *dns.Msg) {
		m.SetEdns0(700, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"})
	}}
	got := w.ask(a)
	if n := len(got.IsEdns0().Option); n != 2 || !got.Truncated || len(got.Answer) < 22 {
		t.Errorf("got %d options, %d records, truncated %v", n, len(got.Answer), got.Truncated)
	}
	if out := w.Wait(t.Context(), query(a, must(a.message().Pack())), nil); len(out) > 700 {
		t.Errorf("got %d bytes, and 700 were wanted", len(out))
	}
	for _, c := range w.Counters() {
		if c.Outcome == "forwarded" && c.Queries != 6 {
			t.Errorf("%d queries are counted as forwarded", c.Queries)
		}
	}
}

func TestTextExplains(t *testing.T) {
	w := shop(t)
	got := w.ask(asking{as: "shop/checkout", name: "stock.shop.isthmus.internal.", typ: "TXT"})
	var all []string
	for _, rr := range got.Answer {
		all = append(all, strings.Join(rr.(*dns.TXT).Txt, ""))
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{
		"app=shop/stock", "outcome=ok", "cluster=north", "rule=AppEndpoints shop/checkout, spec.endpoints[2]", "revision=", "caller=shop/checkout",
		"route=west priority 0 weight 3 ready 0: no ready instance of shop/stock", "route=north priority 1 weight 1 ready 4: 4 ready",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q in\n%s", want, text)
		}
	}
	got = w.ask(asking{as: "shop/checkout", name: "withdrawn.shop.isthmus.internal.", typ: "TXT"})
	if text := fmt.Sprint(got.Answer); !strings.Contains(text, "outcome=stale") {
		t.Errorf("got %v", text)
	}
}

func TestEveryQueryIsCounted(t *testing.T) {
	w := shop(t)
	names := []string{"orders.shop", "secret.shop", "empty.shop", "withdrawn.shop", "served.shop"}
	for _, n := range names {
		w.ask(asking{as: "shop/checkout", name: n + ".isthmus.internal.", typ: "A"})
	}
	got := map[string]uint64{}
	for _, c := range w.Counters() {
		if c.RCode == "" || c.Outcome == "" {
			t.Errorf("nothing is said of %+v", c)
		}
		if c.Queries > 0 {
			got[c.RCode+" "+c.Outcome] = c.Queries
		}
	}
	want := map[string]uint64{"NOERROR ok": 1, "NXDOMAIN denied": 1, "NOERROR unavailable": 1, "NOERROR stale": 1, "NOERROR ok, stale": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestWhatCantBeReadIsAnswered: whoever sends a query with a header hears FORMERR, and does not wait
// (RFC 1035, 4.1.1), however the rest is garbled or cut off.
func TestWhatCantBeReadIsAnswered(t *testing.T) {
	w := shop(t)
	l, err := transport.Listen(transport.Config{Address: "127.0.0.1:0", Sockets: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx, w, slog.New(slog.DiscardHandler)) }()
	defer func() { cancel(); <-served }()
	conn, err := net.Dial("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packed, err := new(dns.Msg).SetQuestion("orders.shop.isthmus.internal.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	with := func(at int, bytes ...byte) []byte {
		garbled := slices.Clone(packed)
		copy(garbled[at:], bytes)
		return garbled
	}
	for name, packet := range map[string][]byte{
		"2,049 bytes":                    append(slices.Clone(packed), make([]byte, 2049-len(packed))...),
		"60,000 bytes":                   append(slices.Clone(packed), make([]byte, 60_000-len(packed))...),
		"a header alone":                 packed[:12],
		"half a name":                    packed[:20],
		"no class":                       packed[:len(packed)-2],
		"no question":                    with(4, 0, 0),
		"65,535 questions":               with(4, 255, 255),
		"answers that are not there":     with(6, 0, 9),
		"additionals that are not there": with(10, 255, 255),
		"every count as large as it can": with(4, 255, 255, 255, 255, 255, 255, 255, 255),
		"a label of an unknown kind":     with(12, 0x80),
		"a name that points to itself":   with(12, 0xc0, 12),
	} {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		if err != nil {
			t.Errorf("%s: %v; want an answer", name, err)
			continue
		}
		if n < 12 || buf[0] != packet[0] || buf[1] != packet[1] || buf[2]&0x80 == 0 || buf[3]&0xf != dns.RcodeFormatError {
			t.Errorf("%s is answered with %x; want FORMERR", name, buf[:n])
		}
	}
}
