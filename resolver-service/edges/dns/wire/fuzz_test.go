package wire

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// packed is a query as miekg/dns writes it.
func packed(t testing.TB, name string, typ uint16, change ...func(*dns.Msg)) []byte {
	m := new(dns.Msg).SetQuestion(name, typ)
	for _, c := range change {
		c(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func options(all ...dns.EDNS0) func(*dns.Msg) {
	return func(m *dns.Msg) {
		m.SetEdns0(4096, true)
		m.IsEdns0().Option = all
	}
}

// seeds are queries of every kind, and some that are none.
func seeds(t testing.TB) [][]byte {
	long := strings.Repeat("a.", 118) + "isthmus.internal."
	all := [][]byte{
		packed(t, "orders.shop.isthmus.internal.", dns.TypeA),
		packed(t, "OrDeRs.Shop.Isthmus.Internal.", dns.TypeAAAA, options()),
		packed(t, ".", dns.TypeNS),
		packed(t, `a\.b.\000\255.example.`, dns.TypeTXT),
		packed(t, long, dns.TypeA),
		packed(t, strings.Repeat("a", 63)+".example.", dns.TypeANY),
		packed(t, "example.", dns.TypeA, options(
			&dns.EDNS0_NSID{Code: dns.EDNS0NSID}, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"},
			&dns.EDNS0_PADDING{Padding: make([]byte, 7)})),
		packed(t, "example.", dns.TypeA, options(&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: strings.Repeat("ab", 24)})),
		packed(t, "example.", dns.TypeA, options(&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 20, Address: []byte{10, 1, 16, 0}})),
		packed(t, "example.", dns.TypeA, options(&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 2, SourceNetmask: 128, Address: netip.MustParseAddr("fd00::1").AsSlice()})),
		packed(t, "example.", dns.TypeA, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }),
		packed(t, "example.", dns.TypeIXFR, func(m *dns.Msg) { m.SetIxfr("example.", 1, "ns.example.", "root.example.") }),
		packed(t, "example.", dns.TypeA, func(m *dns.Msg) { m.SetTsig("key.", dns.HmacSHA256, 300, 1) }),
		packed(t, "example.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(7) }),
	}
	for _, text := range []string{
		"000101000001000000000000c00c00010001",                                               // a pointer to itself
		"000101000001000000000000016100c00e00010001",                                         // a pointer after a label
		"0001010000010000000000004061000001000100",                                           // a label of another kind
		"00010100000100000000000001610000010001ff",                                           // more than there should be
		"0001010000010000000000020161000001000100002904d000000000000000002904d0000000000000", // two OPTs
		"0001010000010000000000010161000001000101610000290200000000000000",                   // OPT of a name
		"00010100000200000000000001610000010001016200000100ff",
		"000101000001000000000001016100000100010000290200000000000003000a00",
		"000181800001000000000000016100000100ff",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// FuzzParse holds what is accepted to what miekg/dns makes of it.
func FuzzParse(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var q Query
		rcode, reply := q.Parse(message)
		if !reply || rcode != NoError {
			return
		}
		var want dns.Msg
		if err := want.Unpack(message); err != nil {
			if end := max(q.end, HeaderSize); hasOtherRecords(message, end) || hasOtherOptions(message[end:]) {
				return // we do not look into those
			}
			t.Fatalf("accepted, but %v", err)
		}
		if q.Bare != (len(want.Question) == 0) {
			t.Errorf("bare %v, want %v", q.Bare, &want)
		} else if !q.Bare {
			sameQuestion(t, &q, &want)
		}
		if opt := want.IsEdns0(); (opt != nil) != q.EDNS {
			t.Errorf("EDNS %v, want %v", q.EDNS, opt)
		} else if opt != nil {
			sameOptions(t, &q, opt)
		}
	})
}

// hasOtherRecords tells whether there is anything but an OPT record after the question.
func hasOtherRecords(message []byte, end int) bool {
	return string(message[6:HeaderSize]) != "\x00\x00\x00\x00\x00\x01" || !strings.HasPrefix(string(message[end:]), "\x00\x00\x29")
}

// hasOtherOptions tells whether an OPT record has options that are not read.
func hasOtherOptions(opt []byte) bool {
	if len(opt) < optSize {
		return false
	}
	for options := opt[optSize:]; len(options) >= 4; {
		switch code := binary.BigEndian.Uint16(options); code {
		case optionNSID, optionSubnet, optionCookie:
		default:
			return true
		}
		options = options[4+int(binary.BigEndian.Uint16(options[2:])):]
	}
	return false
}

func sameQuestion(t *testing.T, q *Query, want *dns.Msg) {
	asked := want.Question[0]
	room := make([]byte, 256)
	n, err := dns.PackDomainName(strings.Map(lowerASCII, asked.Name), room, 0, nil, false)
	if err != nil {
		t.Fatalf("%q: %v", asked.Name, err)
	}
	if string(room[:n]) != string(q.Name.Wire()) || uint16(q.Type) != asked.Qtype || uint16(q.Class) != asked.Qclass || q.ID != want.Id {
		t.Errorf("read %q %d %d, want %v", q.Name.Wire(), q.Type, q.Class, asked)
	}
	if labels := dns.CountLabel(asked.Name); q.Name.Labels() != labels {
		t.Errorf("%d labels of %q, want %d", q.Name.Labels(), asked.Name, labels)
	}
	var joined []byte
	for i := range q.Name.Labels() {
		joined = AppendLabel(joined, q.Name.Label(i))
	}
	if string(append(joined, 0)) != string(q.Name.Wire()) {
		t.Errorf("labels %q of %q", joined, q.Name.Wire())
	}
}

func lowerASCII(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

func sameOptions(t *testing.T, q *Query, opt *dns.OPT) {
	nsid, cookie, subnet := false, "", (*dns.EDNS0_SUBNET)(nil)
	for _, o := range opt.Option {
		switch o := o.(type) {
		case *dns.EDNS0_NSID:
			nsid = true
		case *dns.EDNS0_COOKIE:
			if cookie == "" {
				cookie = o.Cookie
			}
		case *dns.EDNS0_SUBNET:
			if subnet == nil {
				subnet = o
			}
		}
	}
	if q.NSID != nsid || hex.EncodeToString(q.Cookie) != cookie || q.do != opt.Do() || q.payload != opt.UDPSize() {
		t.Errorf("read %+v, want %v", q.OPT, opt)
	}
	if q.Subnet.Sent != (subnet != nil) {
		t.Fatalf("read %+v, want %v", q.Subnet, subnet)
	}
	if subnet != nil && (q.Subnet.Family != subnet.Family || q.Subnet.Prefix != subnet.SourceNetmask) {
		t.Errorf("read %+v, want %v", q.Subnet, subnet)
	}
	if subnet != nil && subnet.Family != 0 {
		want, _ := netip.AddrFromSlice(subnet.Address)
		if subnet.Family == 1 {
			want = want.Unmap()
		}
		if q.Subnet.Address != want {
			t.Errorf("read %+v, want %v", q.Subnet, subnet)
		}
	}
}

// FuzzRespond holds every response to what miekg/dns can read, to the limit, and to the
// query's id and question.
func FuzzRespond(f *testing.F) {
	for i, seed := range seeds(f) {
		f.Add(seed, uint16(512+i*50), uint8(i), "text that says why")
	}
	f.Fuzz(func(t *testing.T, message []byte, limit uint16, records uint8, text string) {
		var q Query
		rcode, reply := q.Parse(message)
		if !reply || q.Bare { // no record is of a name that is not asked for
			return
		}
		most := max(int(limit), MinPayload)
		out := respond(&q, message, most, int(records), rcode, strings.ToValidUTF8(text, "?"))
		if len(out) > most {
			t.Fatalf("%d bytes, and %d may be", len(out), most)
		}
		var got dns.Msg
		if err := got.Unpack(out); err != nil {
			t.Fatalf("%v in %x", err, out)
		}
		if got.Id != q.ID || !got.Response || got.Rcode != int(rcode) || (got.IsEdns0() != nil) != q.EDNS {
			t.Errorf("got %v", &got)
		}
		if q.end > 0 && string(out[HeaderSize:q.end]) != string(message[HeaderSize:q.end]) {
			t.Errorf("the question is %x, and %x was asked", out[HeaderSize:q.end], message[HeaderSize:q.end])
		}
		if n := len(got.Answer); rcode == NoError && n < int(records) && !got.Truncated {
			t.Errorf("%d records of %d, and TC is not set", n, records)
		}
	})
}

// respond makes a response with so many addresses, and one of everything else.
func respond(q *Query, message []byte, limit, records int, rcode RCode, text string) []byte {
	r := Response{RCode: rcode, Authoritative: true}
	const nsid = "west-1"
	r.Begin(nil, message, q, limit, OptionsSize(q, nsid))
	if rcode == NoError {
		var block []byte
		for i := range records {
			block = AppendAddress(block, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
		}
		if records > 0 {
			r.Rotated(block, SizeA, records/2, 5)
		}
		mark := r.Open(q.Name.Pointer(q.Name.Labels()/2), TypeTXT, 5)
		r.Text(text)
		r.Close(Authority, mark)
		r.Address(Additional, Owner, 5, netip.MustParseAddr("fd00::1"))
	}
	o := Options{NSID: nsid, Subnet: q.Subnet.Sent, Error: true, Code: ErrorBlocked}
	if q.Cookie != nil {
		o.Cookie = make([]byte, ClientCookieSize+ServerCookieSize)
	}
	mark := r.OpenOptions(q, &o)
	start := len(r.Buf)
	r.Buf = append(r.Buf, text...)
	return r.Finish(mark, start)
}

// intoOptions are responses with a name that goes on in the length of the OPT record after it,
// so that each option would make another name of it: that of an owner, which we take for no name,
// and one in data, which miekg/dns takes for none. Names may only point to where another was
// before (RFC 1035, 4.1.4).
var intoOptions = []string{
	"000181800000000100000001" + "c026000100010000000500040a000001" + "00002904d0000000000000",
	"000181800000000100000001" + "0000050001000000050002c023" + "00002904d0000000000000",
}

// FuzzAppendOptions: whatever a response from elsewhere is, what comes out can be read if
// it could before.
func FuzzAppendOptions(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Add(longOPT(maxMessage))
	f.Add(longOPT(maxMessage + HeaderSize + optSize)) // as long as its OPT record can say
	for _, text := range intoOptions {
		b, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var before, after dns.Msg
		readable := before.Unpack(message) == nil
		q := Query{OPT: OPT{EDNS: true, NSID: true}}
		o := Options{NSID: "west-1", Cookie: make([]byte, ClientCookieSize+ServerCookieSize)}
		out := AppendOptions(append([]byte(nil), message...), &q, &o)
		if longer := len(out) - len(message); longer != 0 && longer != AppendedSize(&q, &o) {
			t.Errorf("%d bytes longer, and AppendedSize is %d", longer, AppendedSize(&q, &o))
		}
		if !readable {
			return
		}
		if err := after.Unpack(out); err != nil {
			t.Fatalf("%x became %x: %v", message, out, err)
		}
		if opt := before.IsEdns0(); opt != nil && len(out) != len(message) && len(after.IsEdns0().Option) != len(opt.Option)+2 {
			t.Errorf("%v became %v", opt, after.IsEdns0())
		}
	})
}
