package forward

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestNobodyIsToldOfTheUpstreamsDesignatedResolvers(t *testing.T) {
	s := serve(t, records(t, "_dns.resolver.arpa. 60 SVCB 1 dns.example. alpn=dot"))
	f := forwarder(t, Config{}, s.addr)
	for _, c := range []struct {
		name  string
		kind  uint16
		local bool
	}{
		{"_dns.resolver.arpa.", dns.TypeSVCB, true},
		{"_DNS.Resolver.ARPA.", dns.TypeSVCB, true},
		{"_dns.resolver.arpa.", dns.TypeA, true},
		{"resolver.arpa.", dns.TypeNS, true},
		{"a.b.resolver.arpa.", dns.TypeHTTPS, true},
		{strings.Repeat("a.", 119) + "resolver.arpa.", dns.TypeA, true},
		{"myresolver.arpa.", dns.TypeA, false},
		{`a\008resolver.arpa.`, dns.TypeA, false}, // where a label ends like it
		{"arpa.", dns.TypeNS, false},
		{"_dns.resolver.arpa.test.", dns.TypeSVCB, false},
		{"ipv4only.arpa.", dns.TypeA, false},
	} {
		before := s.asked.Load()
		m := ask(t, f, query(c.name, c.kind))
		if local := s.asked.Load() == before; local != c.local {
			t.Errorf("%s: answered here: %v, want %v", c.name, local, c.local)
		}
		if !c.local {
			continue
		}
		want := "resolver.arpa.\t3600\tIN\tSOA\tresolver.arpa. nobody.invalid. 1 3600 1200 604800 3600"
		if m.Rcode != dns.RcodeSuccess || !m.Authoritative || !m.RecursionAvailable || len(m.Answer) != 0 || len(m.Ns) != 1 || !strings.EqualFold(m.Ns[0].String(), want) {
			t.Errorf("%s: got %s", c.name, m)
		}
	}
}
