package forward

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// FuzzResponse takes any bytes for an upstream's response. What is made of them can be read,
// has the client's id and question, and fits.
func FuzzResponse(f *testing.F) {
	q := query("www.Example.test.", dns.TypeA)
	q.Id = 0x1234
	asked, _ := q.Pack()
	var parsed wire.Query
	parsed.Parse(asked)
	l := newLookup(&parsed, string(appendKey(nil, &parsed)))
	sent := &dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id}, Question: []dns.Question{l.question}}
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
	f.Fuzz(func(t *testing.T, response []byte) {
		if len(response) > 2 {
			copy(response, asked[:2])
		}
		if end := wire.HeaderSize + len(l.section); len(response) > end && response[0]%2 == 0 {
			copy(response[wire.HeaderSize:], l.section) // so that it gets further
		}
		m := read(response, sent)
		if m == nil || m.Truncated && len(m.Question) == 0 {
			return
		}
		now := time.Now()
		a, err := newAnswer(m, l, now)
		if err != nil {
			return
		}
		out := a.respond(nil, &parsed, asked, now.Add(3*time.Second))
		whole := check(t, out, asked, &parsed, dns.MaxMsgSize)
		for _, limit := range []int{512, 400, len(out) - 1} { // less than 512 where options are added to it
			limit = max(limit, 300)
			cut := check(t, wire.Truncate(bytes.Clone(out), limit), asked, &parsed, limit)
			if whatCounts(cut) < whatCounts(whole) && !cut.Truncated {
				t.Errorf("cut to %d without TC: %v", limit, cut)
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
func check(t *testing.T, out, asked []byte, q *wire.Query, limit int) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		t.Fatalf("%x: %v", out, err)
	}
	end := wire.HeaderSize + len(q.Name.Wire()) + 4
	if !bytes.Equal(out[:2], asked[:2]) || len(out) < end || !bytes.Equal(out[wire.HeaderSize:end], asked[wire.HeaderSize:end]) {
		t.Fatalf("%x does not answer %x", out, asked)
	}
	if len(out) > limit {
		t.Fatalf("%d bytes, and %d may be: %v", len(out), limit, m)
	}
	if opt := m.IsEdns0(); (opt != nil) != q.EDNS || opt != nil && opt.Do() != q.DO() {
		t.Fatalf("EDNS %v: %x", q.EDNS, out)
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
		wire.Truncate(bytes.Clone(query), 512)
		var q wire.Query
		rcode, reply := q.Parse(query)
		if !reply {
			return
		}
		out := refuse(nil, &q, query, max(rcode, wire.Refused), wire.ErrorProhibited, strings.Repeat("no ", 200))
		m := new(dns.Msg)
		if err := m.Unpack(out); err != nil || !bytes.Equal(out[:2], query[:2]) || len(out) > refusalSize {
			t.Fatalf("to %x %x: %v", query, out, err)
		}
		if rcode != wire.NoError || q.Bare {
			return
		}
		check(t, out, query, &q, refusalSize)
		a := &answer{failure: "nobody"}
		check(t, a.respond(nil, &q, query, time.Now()), query, &q, refusalSize)
	})
}
