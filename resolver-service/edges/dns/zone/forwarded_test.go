package zone

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

// sized is a forwarder whose responses to clients without EDNS have a size, and 11 bytes of OPT
// more to others, of which sized is told.
type sized struct{ size int }

func (s sized) Forward(_ context.Context, query, out []byte) []byte {
	asked := new(dns.Msg)
	if asked.Unpack(query) != nil {
		return out
	}
	m := new(dns.Msg).SetReply(asked)
	rest := s.size
	if asked.IsEdns0() != nil {
		m.SetEdns0(1232, false)
	}
	add := func(data string) {
		m.Answer = append(m.Answer, &dns.RFC3597{Hdr: dns.RR_Header{Name: asked.Question[0].Name, Rrtype: 65280, Class: dns.ClassINET, Ttl: 60}, Rdata: data})
	}
	add(fmt.Sprintf("%0*x", 2*100, 0))
	add("")
	rest -= len(must(m.Pack()))
	m.Answer[1].(*dns.RFC3597).Rdata = fmt.Sprintf("%0*x", 2*rest, 0)
	return append(out, must(m.Pack())...)
}

func (s sized) Cached(_, out []byte) ([]byte, bool) { return out, false }

// TestWhatIsForwardedIsCutWhereItDoesNotFitAlone: all of a client's room is used.
func TestWhatIsForwardedIsCutWhereItDoesNotFitAlone(t *testing.T) {
	options := func(payload uint16, all ...dns.EDNS0) func(*dns.Msg) {
		return func(m *dns.Msg) {
			m.SetEdns0(payload, false)
			m.IsEdns0().Option = all
		}
	}
	nsid := &dns.EDNS0_NSID{Code: dns.EDNS0NSID}
	cookie := &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"}
	subnet := &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: []byte{10, 0, 0, 9}}
	for _, c := range []struct {
		what  string
		shape func(*dns.Msg)
		limit int
		added int // to the response, on its way
	}{
		{"no EDNS", nil, 512, 0},
		{"EDNS", options(512), 512, 0},
		{"EDNS, 700 bytes", options(700), 700, 0},
		{"a subnet, which is not told back", options(512, subnet), 512, 0},
		{"the server's name", options(512, nsid), 512, 4 + len("west-1")},
		{"a cookie", options(512, cookie), 512, 4 + 24},
		{"both", options(512, nsid, cookie), 512, 4 + len("west-1") + 4 + 24},
	} {
		for size := c.limit - c.added - 6; size <= c.limit-c.added+1; size++ {
			w := newWorld(t, west, func(cfg *Config) { cfg.Forward = sized{size} })
			a := asking{from: "10.0.0.9", name: "example.com.", typ: "TYPE65280", shape: c.shape}
			m := a.message()
			m.Question[0].Qtype = 65280
			q := query(a, must(m.Pack()))
			out := w.Wait(t.Context(), q, nil)
			got := new(dns.Msg)
			if err := got.Unpack(out); err != nil {
				t.Fatal(err)
			}
			fits := size+c.added <= c.limit
			if got.Truncated == fits || fits && len(out) != size+c.added || len(out) > c.limit {
				t.Errorf("%s, %d bytes: got %d, truncated %v", c.what, size, len(out), got.Truncated)
			}
			q.Protocol = transport.TCP
			if out = w.Wait(t.Context(), q, nil); len(out) != size+c.added {
				t.Errorf("%s, %d bytes by TCP: got %d", c.what, size, len(out))
			}
		}
	}
}

func TestWhoIsNoStranger(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "10.1.2.3": true, "172.16.0.1": true, "192.168.1.1": true, "169.254.1.1": true, "::1": true,
		"fd00::1": true, "fe80::1": true, "::ffff:10.0.0.1": true, "8.8.8.8": false, "172.32.0.1": false, "2001:db8::1": false,
		"::ffff:8.8.8.8": false, "0.0.0.0": false,
		"100.64.0.1": true, "100.127.255.254": true, "::ffff:100.100.0.1": true, "100.63.255.255": false, "100.128.0.0": false,
	} {
		if got := private(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestNobodyIsToldOfTheUpstreamsDesignatedResolvers(t *testing.T) {
	w := newWorld(t, west, func(cfg *Config) { cfg.Forward = elsewhere{} })
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
		m := w.ask(asking{from: "10.0.0.9", name: c.name, typ: dns.TypeToString[c.kind]})
		if local := m.Rcode != dns.RcodeYXDomain; local != c.local {
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
