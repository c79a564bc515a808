package transport

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

func TestTruncatedKeepsQuestionAndCookie(t *testing.T) {
	m := question("A.b.isthmus.internal")
	m.Response, m.Authoritative, m.Compress = true, true, true
	for range 5 {
		rr, err := dns.NewRR("a.b.isthmus.internal. 5 IN A 192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_NSID{Code: dns.EDNS0NSID, Nsid: "77657374"},
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"},
		&dns.EDNS0_EDE{InfoCode: 18, ExtraText: "what makes a response larger than its query"},
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var got dns.Msg
	if err := got.Unpack(truncated(packed)); err != nil {
		t.Fatal(err)
	}
	if !got.Truncated || !got.Authoritative || got.Id != m.Id || len(got.Answer) != 0 || got.Question[0] != m.Question[0] {
		t.Errorf("got %v", &got)
	}
	if opt := got.IsEdns0(); opt == nil || len(opt.Option) != 1 || opt.Option[0].Option() != dns.EDNS0COOKIE {
		t.Errorf("OPT: %v", opt)
	}
}

func TestServFail(t *testing.T) {
	query := question("a.isthmus.internal")
	query.SetEdns0(1232, false)
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var got dns.Msg
	if err := got.Unpack(servFail(nil, packed)); err != nil {
		t.Fatal(err)
	}
	if got.Rcode != dns.RcodeServerFailure || !got.Response || got.Id != query.Id || !got.RecursionDesired || got.Question[0] != query.Question[0] {
		t.Errorf("got %v", &got)
	}
	packed[2] |= 0x80
	if m := servFail(nil, packed); len(m) > 0 {
		t.Errorf("a response is answered: %x", m)
	}
}

// FuzzMessage has all that is read of messages read something else.
func FuzzMessage(f *testing.F) {
	f.Add(reply(f, "a.isthmus.internal", 0, ""))
	f.Add(reply(f, "x.isthmus.internal", dns.RcodeNameError, "isthmus.internal."))
	f.Add([]byte("\x00\x01\x80\x03\x00\x01\x00\x00\x00\x01\x00\x00\xc0\x0c\x00\x01\x00\x01\xc0\x0c"))
	// The question's name is a pointer to the header, where the flags of the response are no label.
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x00\x00\x01\x00\x01"))
	// The question is cut off in its class.
	f.Add([]byte("\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00"))
	// Two questions, and what reads as an OPT record where one thinks that there is one.
	f.Add([]byte("\x00\x01\x80\x00\x00\x02\x00\x00\x00\x00\x00\x01\x00\x00\x29\x00\x01\x00\x00\x29\x00\x00\x00\x00\x00\x00\x00\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"))
	// The OPT record has a name, by a pointer to an answer that is cut off.
	f.Add([]byte("\x00\x01\x80\x00\x00\x00\x00\x01\x00\x00\x00\x01\x01a\x00\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x7f\x00\x00\x01\xc0\x0c\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"))
	l, from := newLimiter(RateLimit{Responses: 1}), netip.MustParseAddr("192.0.2.1")
	f.Fuzz(func(t *testing.T, m []byte) {
		if len(m) < wire.HeaderSize {
			return
		}
		l.hash(from, m)
		if name := appendName(nil, m, wire.HeaderSize); len(name) > 255 {
			t.Errorf("a name of %d bytes", len(name))
		}
		if s := servFail(nil, m); len(s) > len(m) {
			t.Errorf("SERVFAIL is larger than the query: %x", s)
		} else if len(s) > 0 && new(dns.Msg).Unpack(s) != nil {
			t.Errorf("SERVFAIL does not parse: %x", s)
		}
		cut := truncated(bytes.Clone(m))
		if len(cut) > len(m) || len(cut) < wire.HeaderSize {
			t.Errorf("truncated from %d to %d bytes", len(m), len(cut))
		}
		if new(dns.Msg).Unpack(m) == nil && new(dns.Msg).Unpack(cut) != nil {
			t.Errorf("truncated does not parse: %x", cut)
		}
	})
}
