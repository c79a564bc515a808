package wire

import (
	"testing"

	"github.com/miekg/dns"
)

// TestRecordsAreFound one after the other, and none that is cut off.
func TestRecordsAreFound(t *testing.T) {
	m := new(dns.Msg)
	m.SetQuestion("orders.shop.example.", dns.TypeA)
	m.Compress = true
	for _, line := range []string{"orders.shop.example. 5 IN A 10.0.0.1", "other.example. 7 IN TXT a", "\\200.example. 1 IN A 10.0.0.2"} {
		r, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, r)
	}
	m.SetEdns0(1232, false)
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	begin, ok := NameEnd(packet, HeaderSize)
	at := begin + 4
	for _, want := range append(m.Answer, m.Extra...) {
		r, found := RecordAt(packet, at)
		h := want.Header()
		if !ok || !found || r.Start != at || r.Kind != h.Rrtype || r.Class != h.Class || r.TTL != h.Ttl || r.Data != r.Fixed+10 {
			t.Fatalf("%+v at %d; want %v", r, at, want)
		}
		for end := range r.End {
			if _, found := RecordAt(packet[:end], at); found {
				t.Errorf("found at %d of a message of %d bytes", at, end)
			}
		}
		at = r.End
	}
	if at != len(packet) {
		t.Errorf("%d of %d bytes", at, len(packet))
	}
	for _, name := range []string{"", "\x01", "\x01a", "\x40" + string(make([]byte, 80)), "\x80\x00", "\xc0"} {
		if end, ok := NameEnd([]byte(name), 0); ok {
			t.Errorf("%q ends at %d", name, end)
		}
	}
}
