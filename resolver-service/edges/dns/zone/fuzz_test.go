package zone

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

// FuzzAnswer asks a zone anything, from anywhere: every response can be read, is to its
// query, and is not longer than it may be.
func FuzzAnswer(f *testing.F) {
	for _, a := range often() {
		f.Add(must(a.message().Pack()), uint8(0), uint8(0))
	}
	for _, name := range []string{
		"_tcp.orders.shop.isthmus.internal.", "3.stock.shop.north.isthmus.internal.", "10-0-0-1.orders.shop.west.isthmus.internal.",
		"shop.east.isthmus.internal.", `\000.\255.isthmus.internal.`, "version.bind.", "_dapr._tcp.stock-dapr.shop.svc.cluster.local.",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
	} {
		for _, typ := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeSRV, dns.TypeHTTPS, dns.TypePTR, dns.TypeANY} {
			m := new(dns.Msg).SetQuestion(name, typ)
			m.SetEdns0(1232, true)
			f.Add(must(m.Pack()), uint8(typ), uint8(typ>>1))
		}
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x08abcdefgh"), uint8(0), uint8(0))
	w := shop(f, forwarders)
	senders := []string{"10.0.0.9", "10.9.9.9", "10.53.0.1", "10.0.0.8", "fe80::1%eth0"}
	f.Fuzz(func(t *testing.T, packet []byte, sender, protocol uint8) {
		q := &transport.Query{
			Packet: packet, Protocol: transport.Protocol(protocol % 3), To: netip.MustParseAddr("192.0.2.53"),
			From: netip.AddrPortFrom(netip.MustParseAddr(senders[int(sender)%len(senders)]), 5353),
		}
		out, later := w.Answer(q, make([]byte, 0, 65535))
		if later {
			t.Fatal("nothing is waited for here")
		}
		if len(out) == 0 {
			return
		}
		var asked, got dns.Msg
		if err := got.Unpack(out); err != nil {
			t.Fatalf("%v in %x", err, out)
		}
		if got.Id != uint16(packet[0])<<8|uint16(packet[1]) || !got.Response {
			t.Errorf("got %v", &got)
		}
		if q.Protocol == transport.UDP && len(out) > 1232 {
			t.Errorf("%d bytes by UDP", len(out))
		}
		if got.Rcode == dns.RcodeFormatError || got.Rcode == dns.RcodeNotImplemented && len(got.Question) == 0 {
			return // what is asked could not be read
		}
		if len(packet) > 5 && packet[4]|packet[5] == 0 {
			if len(got.Question) != 0 {
				t.Errorf("nothing was asked, got %v", &got)
			}
			return
		}
		if asked.Unpack(packet) == nil && (len(got.Question) != 1 || got.Question[0] != asked.Question[0]) {
			t.Errorf("asked %v, got %v", &asked, &got)
		}
	})
}
