package wire

import (
	"strings"
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

// TestQuestionEnds where its class does, and only if the name can stand in a response too.
func TestQuestionEnds(t *testing.T) {
	const counts, one = "\x00\x01\x00\x00\x00\x00\x00\x00", "\x00\x01\x00\x01"
	header := "\x12\x34\x01\x00" + counts
	label := "\x3f" + strings.Repeat("a", 63)
	longest := label + label + label + "\x3d" + strings.Repeat("b", 61) + "\x00"
	for name, message := range map[string]string{
		"root":    header + "\x00" + one,
		"a name":  header + "\x06Orders\x04shop\x00" + one,
		"longest": header + longest + one,
	} {
		for _, after := range []string{"", "\x00\x00\x29"} {
			if end, ok := QuestionEnd([]byte(message + after)); !ok || end != len(message) {
				t.Errorf("%s: ends at %d of %d bytes, %v", name, end, len(message), ok)
			}
		}
		for short := range len(message) {
			if end, ok := QuestionEnd([]byte(message[:short])); ok || end != 0 {
				t.Errorf("%s, cut to %d bytes, ends at %d, %v", name, short, end, ok)
			}
		}
	}
	for name, message := range map[string]string{
		"a pointer to the header":    header + "\xc0\x00" + one,
		"a pointer to itself":        header + "\xc0\x0c" + one,
		"a pointer after a label":    header + "\x01a\xc0\x04" + one,
		"a label of an unknown kind": header + "\x41\x00" + one,
		"too long":                   header + label + label + label + "\x3e" + strings.Repeat("b", 62) + "\x00" + one,
		"no question":                "\x12\x34\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + one,
		"two questions":              "\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00" + one + "\x00" + one,
	} {
		if end, ok := QuestionEnd([]byte(message)); ok || end != 0 {
			t.Errorf("%s ends at %d, %v", name, end, ok)
		}
	}
}
