package forward

import (
	"testing"

	"github.com/miekg/dns"
)

func TestWhatIsNotForwarded(t *testing.T) {
	f := forwarder(t, Config{}, nobody(t))
	for _, c := range []struct {
		name   string
		change func(q *dns.Msg)
		rcode  int
		code   uint16
	}{
		{"without recursion", func(q *dns.Msg) { q.RecursionDesired = false }, dns.RcodeRefused, dns.ExtendedErrorCodeNotAuthoritative},
		{"a transfer", func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported},
		{"a transfer of changes", func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeIXFR }, dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported},
		{"another class", func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported},
	} {
		q := query("a.test.", dns.TypeA)
		c.change(q)
		m := ask(t, f, q)
		if e := extended(m); m.Rcode != c.rcode || len(e) != 1 || e[0].InfoCode != c.code {
			t.Errorf("%s: got %s", c.name, m)
		}
	}
	update := new(dns.Msg).SetUpdate("test.")
	packed, _ := update.Pack()
	m := new(dns.Msg)
	if err := m.Unpack(f.Forward(t.Context(), packed, nil)); err != nil || m.Rcode != dns.RcodeNotImplemented || m.Id != update.Id {
		t.Errorf("an update: %v, %s", err, m)
	}
	for _, nothing := range [][]byte{nil, make([]byte, 11), {0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if got := f.Forward(t.Context(), nothing, nil); len(got) > 0 {
			t.Errorf("to %x the response %x", nothing, got)
		}
	}
}

func BenchmarkCached(b *testing.B) {
	s := serve(b, records(b, "a.test. 3600 A 192.0.2.1", "a.test. 3600 A 192.0.2.2"))
	f := forwarder(b, Config{}, s.addr)
	q := query("a.test.", dns.TypeA)
	packed, _ := q.Pack()
	ask(b, f, q)
	out := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := f.Cached(packed, out); !ok {
			b.Fatal("not there")
		}
	}
}
