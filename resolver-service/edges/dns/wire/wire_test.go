package wire

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestWhatIsWrongIsRefused has messages in hex: header, question, and what follows.
func TestWhatIsWrongIsRefused(t *testing.T) {
	const (
		one      = "0001 0100 0001 0000 0000 0000 "
		extra    = "0001 0100 0001 0000 0000 0001 "
		extras   = "0001 0100 0001 0000 0000 0002 "
		question = "0161 00 0001 0001 "
		opt      = "00 0029 04d0 00 00 0000 "
	)
	for what, c := range map[string]struct {
		message string
		rcode   RCode
		reply   bool
	}{
		"a question":                       {one + question, NoError, true},
		"with EDNS":                        {extra + question + opt + "0000", NoError, true},
		"the root":                         {one + "00 0001 0001", NoError, true},
		"nothing":                          {"", FormErr, false},
		"half a header":                    {"0001 0100 0001", FormErr, false},
		"a response":                       {"0001 8180 0001 0000 0000 0000" + question, FormErr, false},
		"no question":                      {"0001 0100 0000 0000 0000 0000", FormErr, true},
		"no question, but a cookie":        {"0001 0100 0000 0000 0000 0001" + opt + "000c 000a 0008 0102030405060708", NoError, true},
		"no question, but EDNS":            {"0001 0100 0000 0000 0000 0001" + opt + "0000", FormErr, true},
		"no question, and EDNS version 1":  {"0001 0100 0000 0000 0000 0001 00 0029 04d0 00 01 0000 0000", BadVers, true},
		"no question, and more":            {"0001 0100 0000 0000 0000 0001" + opt + "000c 000a 0008 0102030405060708 00", FormErr, true},
		"an answer and no question":        {"0001 0100 0000 0001 0000 0000 00 0001 0001 00000000 0004 0a000001", FormErr, true},
		"two questions":                    {"0001 0100 0002 0000 0000 0000" + question + question, FormErr, true},
		"a question that is not there":     {one, FormErr, true},
		"half a question":                  {one + "0161 00 0001", FormErr, true},
		"a name without an end":            {one + "0161", FormErr, true},
		"a pointer to itself":              {one + "c00c 0001 0001", FormErr, true},
		"a pointer into the header":        {one + "c004 0001 0001", FormErr, true},
		"a pointer after a label":          {one + "0161 c00c 0001 0001", FormErr, true},
		"a label of another kind":          {one + "4161 00 0001 0001", FormErr, true},
		"a label that is too long":         {one + "40" + strings.Repeat("61", 64) + "00 0001 0001", FormErr, true},
		"a name of 255 bytes":              {one + strings.Repeat("0161", 127) + "00 0001 0001", NoError, true},
		"a name of 257 bytes":              {one + strings.Repeat("0161", 128) + "00 0001 0001", FormErr, true},
		"a name of 256 bytes":              {one + strings.Repeat("0161", 126) + "026161 00 0001 0001", FormErr, true},
		"more than there should be":        {one + question + "00", FormErr, true},
		"a record that is not there":       {extra + question, FormErr, true},
		"an answer":                        {"0001 0100 0001 0001 0000 0000" + question + "00 0001 0001 00000000 0004 0a000001", FormErr, true},
		"an authority":                     {"0001 0100 0001 0000 0001 0000" + question + "00 0001 0001 00000000 0004 0a000001", FormErr, true},
		"an authority of IXFR":             {"0001 0100 0001 0000 0001 0000 0161 00 00fb 0001 00 0006 0001 00000000 0000", NoError, true},
		"another record":                   {extra + question + "00 0010 0001 00000000 0001 00", NoError, true},
		"a record with a loop":             {extra + question + "c013 0010 0001 00000000 0000", FormErr, true},
		"a record that points back":        {extra + question + "c00c 0010 0001 00000000 0000", NoError, true},
		"a record longer than the message": {extra + question + "00 0010 0001 00000000 0010 00", FormErr, true},
		"two OPT records":                  {extras + question + opt + "0000" + opt + "0000", FormErr, true},
		"OPT of a name":                    {extra + question + "0161" + opt + "0000", FormErr, true},
		"OPT of a pointer to the root":     {extra + question + "c00e 0029 04d0 00 00 0000 0000", FormErr, true},
		"OPT among authorities":            {"0001 0100 0001 0000 0001 0000" + question + opt + "0000", FormErr, true},
		"EDNS version 1":                   {extra + question + "00 0029 04d0 00 01 0000 0000", BadVers, true},
		"half an option":                   {extra + question + opt + "0003 0003 00", FormErr, true},
		"an option beyond the record":      {extra + question + opt + "0005 0003 0002 00", FormErr, true},
		"an option that nobody knows":      {extra + question + opt + "0006 fde9 0002 0102", NoError, true},
		"a cookie of 7 bytes":              {extra + question + opt + "000b 000a 0007 01020304050607", FormErr, true},
		"a cookie of 8 bytes":              {extra + question + opt + "000c 000a 0008 0102030405060708", NoError, true},
		"a cookie of 15 bytes":             {extra + question + opt + "0013 000a 000f 0102030405060708090a0b0c0d0e0f", FormErr, true},
		"a subnet":                         {extra + question + opt + "000b 0008 0007 0001 18 00 0a0000", NoError, true},
		"a subnet with a scope":            {extra + question + opt + "000b 0008 0007 0001 18 18 0a0000", FormErr, true},
		"a subnet with more bits":          {extra + question + opt + "000b 0008 0007 0001 17 00 0a0001", FormErr, true},
		"a subnet with fewer bytes":        {extra + question + opt + "000a 0008 0006 0001 18 00 0a00", FormErr, true},
		"a subnet of 33 bits":              {extra + question + opt + "000d 0008 0009 0001 21 00 0a00000080", FormErr, true},
		"a subnet of another family":       {extra + question + opt + "0008 0008 0004 0003 00 00", FormErr, true},
		"a subnet of nothing":              {extra + question + opt + "0008 0008 0004 0000 00 00", NoError, true},
		"OPT asked for":                    {one + "0161 00 0029 0001", FormErr, true},
		"type 0":                           {one + "0161 00 0000 0001", FormErr, true},
		"an update":                        {"0001 2800 0001 0000 0000 0000" + question, NotImp, true},
		"a notification with an answer":    {"0001 2000 0001 0001 0000 0000" + question + "c00c 0006 0001 00000000 0000", NotImp, true},
		"an update of no form":             {"0001 2800 0007 0000 0000 0000", NotImp, true},
	} {
		message, err := hex.DecodeString(strings.ReplaceAll(c.message, " ", ""))
		if err != nil {
			t.Fatal(what, err)
		}
		var q Query
		if rcode, reply := q.Parse(message); rcode != c.rcode || reply != c.reply {
			t.Errorf("%s: got %v and reply %v, want %v and %v", what, rcode, reply, c.rcode, c.reply)
		}
	}
}

func TestLowerCaseIsThatOfASCII(t *testing.T) {
	for c := range 256 {
		want := byte(c)
		if 'A' <= want && want <= 'Z' {
			want += 'a' - 'A'
		}
		x := uint64(c) | uint64(0x41)<<8 | uint64(c)<<56
		if got := lowerWord(x); got != uint64(want)|uint64(0x61)<<8|uint64(want)<<56 {
			t.Errorf("%#x became %#x", x, got)
		}
	}
}

func TestANameIsBelowAZoneByWholeLabels(t *testing.T) {
	zone := AppendName(nil, "isthmus.internal")
	for name, want := range map[string]int{
		"isthmus.internal.": 0, "Orders.Shop.ISTHMUS.Internal.": 2, "notisthmus.internal.": -1, "internal.": -1, ".": -1,
		`orders\.shop.isthmus.internal.`: 1, `x\.isthmus.internal.`: -1, `x\007isthmus.internal.`: -1, "isthmus.internal.example.": -1,
	} {
		var q Query
		q.Parse(packed(t, name, dns.TypeA))
		below, ok := q.Name.Below(zone, 2)
		if !ok {
			below = -1
		}
		if below != want {
			t.Errorf("%s is %d labels below, want %d", name, below, want)
		}
	}
}

func TestRecordsGoAround(t *testing.T) {
	var block []byte
	for i := range 5 {
		block = AppendAddress(block, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	message := packed(t, "a.", dns.TypeA)
	var q Query
	q.Parse(message)
	for first := range 5 {
		for fits := range 7 {
			var r Response
			r.Begin(nil, message, &q, len(message)+fits*SizeA+3, 0)
			r.Rotated(block, SizeA, first, 7)
			out := r.Finish(len(r.Buf), len(r.Buf))
			var got dns.Msg
			if err := got.Unpack(out); err != nil {
				t.Fatal(err)
			}
			if len(got.Answer) != min(fits, 5) || got.Truncated != (fits < 5) {
				t.Fatalf("from %d, of which %d fit: got %v", first, fits, &got)
			}
			for i, rr := range got.Answer {
				if a := rr.(*dns.A); a.A[3] != byte((first+i)%5) || a.Hdr.Ttl != 7 {
					t.Errorf("from %d: record %d is %v", first, i, a)
				}
			}
		}
	}
}

func TestTheTextOfAnErrorIsShortenedToWhatFits(t *testing.T) {
	message := packed(t, "a.", dns.TypeA, options())
	var q Query
	q.Parse(message)
	out := respond(&q, message, MinPayload, 20, NoError, strings.Repeat("é", 300))
	var got dns.Msg
	if err := got.Unpack(out); err != nil || len(out) > MinPayload {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	text := got.IsEdns0().Option[0].(*dns.EDNS0_EDE).ExtraText
	if !strings.HasPrefix(text, "é") || strings.Trim(text, "é") != "" {
		t.Errorf("got %q", text)
	}
	if got.Truncated && len(got.Answer) == 20 && len(got.Ns) == 1 {
		t.Error("TC is set, and only text is missing")
	}
}

func TestNothingIsAllocated(t *testing.T) {
	message := packed(t, "orders.shop.isthmus.internal.", dns.TypeA, options())
	block := AppendAddress(nil, netip.MustParseAddr("10.0.0.1"))
	out := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() {
		var q Query
		q.Parse(message)
		var r Response
		r.Begin(out, message, &q, q.Limit(), OptionsSize(&q, ""))
		r.Rotated(block, SizeA, 0, 5)
		mark := r.OpenOptions(&q, &Options{Error: true})
		r.Finish(mark, len(r.Buf))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOptionsAreAddedToAResponseFromElsewhere(t *testing.T) {
	m := new(dns.Msg).SetQuestion("example.", dns.TypeA)
	m.SetEdns0(1232, false)
	q := Query{OPT: OPT{EDNS: true, NSID: true}}
	without, err := new(dns.Msg).SetQuestion("example.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	if got := AppendOptions(without, &q, &Options{NSID: "west-1"}); !bytes.Equal(got, without) {
		t.Errorf("%x became %x", without, got)
	}
	with, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var got dns.Msg
	if err := got.Unpack(AppendOptions(with, &q, &Options{NSID: "west-1"})); err != nil {
		t.Fatal(err)
	}
	if o := got.IsEdns0().Option; len(o) != 1 || o[0].(*dns.EDNS0_NSID).Nsid != hex.EncodeToString([]byte("west-1")) {
		t.Errorf("got %v", o)
	}
}

func TestOptionsAreNotAddedToWhatIsLongAsItIs(t *testing.T) {
	q, o := Query{OPT: OPT{EDNS: true, NSID: true}}, Options{NSID: "west-1"}
	size := optionHead + len(o.NSID)
	for length, added := range map[int]bool{maxMessage - size: true, maxMessage - size + 1: false, maxMessage: false, maxMessage + HeaderSize + optSize: false} {
		response := longOPT(length)
		got := AppendOptions(bytes.Clone(response), &q, &o)
		if !added && !bytes.Equal(got, response) {
			t.Errorf("%d bytes became %d", length, len(got))
		}
		if opt, ok := lastOPT(got); added && (!ok || opt != HeaderSize || len(got) != length+size) {
			t.Errorf("%d bytes became %d that can't be read", length, len(got))
		}
	}
}

// longOPT is a response of so many bytes with nothing but an OPT record.
func longOPT(length int) []byte {
	data := length - HeaderSize - optSize
	b := append([]byte{0, 1, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 1}, 0, 0, byte(TypeOPT), 4, 0xd0, 0, 0, 0, 0, byte(data>>8), byte(data))
	b = append(b, 0xfd, 0xe9, byte((data-optionHead)>>8), byte(data-optionHead)) // of private use
	return append(b, make([]byte, data-optionHead)...)
}

func BenchmarkParse(b *testing.B) {
	message := packed(b, "orders.shop.isthmus.internal.", dns.TypeA, options())
	var q Query
	b.ReportAllocs()
	for b.Loop() {
		q.Parse(message)
	}
}
