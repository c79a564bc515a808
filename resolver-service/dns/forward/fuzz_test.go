package forward

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// FuzzResponse takes any bytes for an upstream's response. What is made of them can be read,
// has the client's id and question, and fits.
func FuzzResponse(f *testing.F) {
	q := query("www.Example.test.", dns.TypeA)
	q.Id = 0x1234
	asked, _ := q.Pack()
	parsed, _ := parse(asked)
	section := parsed.lower()
	u := &upstream{address: netip.MustParseAddrPort("192.0.2.1:53")}
	for _, lines := range [][]string{
		{"www.example.test. 60 A 192.0.2.1"},
		{"www.example.test. 60 CNAME a.EXAMPLE.test.", "a.example.test. 5 A 192.0.2.1"},
		{"www.example.test. 60 TXT \"a\" \"b\"", "www.example.test. 60 HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1"},
		{"www.example.test. 60 RRSIG A 8 3 60 20300101000000 20200101000000 1 example.test. AAAA", "www.example.test. 60 TYPE65280 \\# 2 abcd"},
		{"www.example.test. 60 NSEC a.example.test. A MX RRSIG", "www.example.test. 60 NAPTR 1 1 \"s\" \"x\" \"\" a.example.test."},
	} {
		m := new(dns.Msg).SetReply(q)
		for _, line := range lines {
			m.Answer = append(m.Answer, rr(f, line))
		}
		m.Ns = []dns.RR{rr(f, "example.test. 60 SOA ns.example.test. host.example.test. 1 2 3 4 5")}
		m.SetEdns0(1232, true)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: 6, ExtraText: "bogus"})
		for _, compress := range []bool{true, false} {
			m.Compress = compress
			packed, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packed)
		}
	}
	m := new(dns.Msg).SetReply(q)
	m.Answer = []dns.RR{rr(f, "www.example.test. 60 A 192.0.2.1")}
	m.SetEdns0(1232, true)
	for range mostOfUpstreams {
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: 6, ExtraText: strings.Repeat("x", longestText)})
	}
	packed, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, response []byte) {
		if len(response) > 2 {
			copy(response, asked[:2])
		}
		if end := wire.HeaderSize + len(section); len(response) > end && response[0]%2 == 0 {
			copy(response[wire.HeaderSize:], section) // so that it gets further
		}
		m := read(response, asked, section)
		if m == nil || m.Truncated && len(m.Question) == 0 {
			return
		}
		now := time.Now()
		a, err := newAnswer(u, m, section, now)
		if err != nil {
			return
		}
		for _, out := range [][]byte{a.appendTo(nil, &parsed, now.Add(3*time.Second)), a.appendStale(nil, &parsed)} {
			whole := check(t, out, asked, &parsed, dns.MaxMsgSize)
			for _, limit := range []int{512, 400, len(out) - 1} { // less than 512 where options are added to it
				limit = max(limit, 300)
				cut := check(t, Truncate(bytes.Clone(out), limit), asked, &parsed, limit)
				if whatCounts(cut) < whatCounts(whole) && !cut.Truncated {
					t.Errorf("cut to %d without TC: %v", limit, cut)
				}
			}
		}
	})
}

// whatCounts is how many records and errors there are that must not be cut in silence.
func whatCounts(m *dns.Msg) int {
	n := len(m.Answer) + len(m.Ns)
	if opt := m.IsEdns0(); opt != nil {
		n += len(opt.Option)
	}
	return n
}

// check reads a response, which answers a query and is no longer than a limit.
func check(t *testing.T, out, asked []byte, q *question, limit int) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		t.Fatalf("%x: %v", out, err)
	}
	end := wire.HeaderSize + len(q.name) + 4
	if !bytes.Equal(out[:2], asked[:2]) || len(out) < end || !bytes.Equal(out[wire.HeaderSize:end], asked[wire.HeaderSize:end]) {
		t.Fatalf("%x does not answer %x", out, asked)
	}
	if len(out) > limit {
		t.Fatalf("%d bytes, and %d may be: %v", len(out), limit, m)
	}
	if opt := m.IsEdns0(); (opt != nil) != q.edns || opt != nil && opt.Do() != q.do {
		t.Fatalf("EDNS %v: %x", q.edns, out)
	}
	return m
}

// FuzzQuery takes any bytes for a client's query, and for a response to cut.
func FuzzQuery(f *testing.F) {
	for _, q := range []*dns.Msg{query("a.test.", dns.TypeA), query(".", dns.TypeNS), query("_dns.Resolver.arpa.", dns.TypeSVCB), new(dns.Msg).SetQuestion("A.test.", dns.TypeAXFR)} {
		packed, _ := q.Pack()
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, query []byte) {
		Truncate(bytes.Clone(query), 512)
		q, code := parse(query)
		if code == dropped {
			return
		}
		out := q.appendRefusal(nil, &refusal{code: max(code, refused), extended: 18, text: "no"})
		m := new(dns.Msg)
		if err := m.Unpack(out); err != nil || !bytes.Equal(out[:2], query[:2]) {
			t.Fatalf("to %x %x: %v", query, out, err)
		}
		if code != 0 {
			return
		}
		check(t, out, query, &q, 512)
		a := failed(q.lower(), 22, "nobody", nil, time.Second, time.Now())
		check(t, a.appendTo(nil, &q, time.Now()), query, &q, 512)
		if a := arpa(&q); a != nil {
			check(t, a.appendTo(nil, &q, a.stored), query, &q, dns.MaxMsgSize)
		}
	})
}
