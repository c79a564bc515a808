package wire

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
)

// TestWholeRecordsAreCut: an OPT that is last stays, and its options as long as there is room.
func TestWholeRecordsAreCut(t *testing.T) {
	m := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("a.test.", dns.TypeA))
	for i := range 4 {
		r, err := dns.NewRR(fmt.Sprintf("a.test. 60 A 192.0.2.%d", i))
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, r)
	}
	m.Compress = true
	m.SetEdns0(1232, true)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: 22, ExtraText: "nobody answers"})
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	empty := len(packed) - 4*SizeA
	for limit, want := range map[int]struct {
		answers, options int
		truncated        bool
	}{
		len(packed):          {4, 1, false},
		len(packed) - 1:      {3, 1, true},
		len(packed) - SizeA:  {3, 1, true},
		empty + 2*SizeA - 1:  {1, 1, true},
		empty:                {0, 1, true},
		empty - 1:            {1, 0, true}, // without options there is room for it,
		HeaderSize + 12 + 11: {0, 0, true},
	} {
		var got dns.Msg
		cut := Truncate(append([]byte(nil), packed...), limit)
		if err := got.Unpack(cut); err != nil || got.IsEdns0() == nil {
			t.Fatalf("cut to %d: %v, %x", limit, err, cut)
		}
		if options := len(got.IsEdns0().Option); len(cut) > limit || len(got.Answer) != want.answers || options != want.options || got.Truncated != want.truncated {
			t.Errorf("cut to %d of %d: %d bytes, %d answers, %d options, TC %v, want %+v", limit, len(packed), len(cut), len(got.Answer), options, got.Truncated, want)
		}
	}
}
