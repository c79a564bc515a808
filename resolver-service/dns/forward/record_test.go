package forward

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestErrorsAreCutBeforeRecords, the last first, and no more of them than must be.
func TestErrorsAreCutBeforeRecords(t *testing.T) {
	m := new(dns.Msg).SetReply(query("a.test.", dns.TypeA))
	for i := range 4 {
		m.Answer = append(m.Answer, rr(t, fmt.Sprintf("a.test. 60 A 192.0.2.%d", i)))
	}
	m.SetEdns0(1232, true)
	for i := range uint16(3) {
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: i, ExtraText: strings.Repeat("x", 200)})
	}
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID, Nsid: "ab"})
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	bare := len(packed) - 3*206
	for limit, want := range map[int]struct {
		answers, errors int
		truncated       bool
	}{
		len(packed):     {4, 3, false},
		len(packed) - 1: {4, 2, true},
		bare + 2*206:    {4, 2, true},
		bare + 206:      {4, 1, true},
		bare + 205:      {4, 0, true},
		bare:            {4, 0, true},
		bare - 1:        {3, 0, true},
	} {
		var got dns.Msg
		cut := Truncate(append([]byte(nil), packed...), limit)
		if err := got.Unpack(cut); err != nil || got.IsEdns0() == nil {
			t.Fatalf("cut to %d: %v, %x", limit, err, cut)
		}
		options := got.IsEdns0().Option
		errors := len(options) - 1
		if len(cut) > limit || len(got.Answer) != want.answers || errors != want.errors || got.Truncated != want.truncated {
			t.Errorf("cut to %d of %d: %d bytes, %d answers, %d errors, TC %v, want %+v", limit, len(packed), len(cut), len(got.Answer), errors, got.Truncated, want)
		}
		for i, o := range options[:errors] {
			if e, ok := o.(*dns.EDNS0_EDE); !ok || e.InfoCode != uint16(i) {
				t.Errorf("cut to %d: option %d is %v, want the first errors", limit, i, o)
			}
		}
		if _, ok := options[errors].(*dns.EDNS0_NSID); !ok {
			t.Errorf("cut to %d: %v is last, want the option that is no error", limit, options[errors])
		}
	}
}
