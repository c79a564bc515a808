package wire

import (
	"encoding/binary"
	"net/netip"
	"unicode/utf8"
)

// Section is a section of a response.
type Section uint8

// The sections that have records.
const (
	Answer Section = iota
	Authority
	Additional
)

// Response is a response in the making. Begin starts it, then records are added section by section,
// and Finish ends it. Records without room are left out whole, and TC is set, unless it is in the
// additional section. It writes into the buffer that it is given, which must have room for the
// whole response.
type Response struct {
	// Buf is the message so far. What Open begins is appended here.
	Buf []byte

	RCode RCode
	// Authoritative and Recursive are the flags AA and RA.
	Authoritative, Recursive bool

	limit   int // without what is kept free for OPT
	reserve int
	counts  [3]uint16
	flags   uint16
	edns    bool
	do      bool
}

// Begin starts the response to a query in the message that q has been read from, which
// may have limit bytes. reserve is kept free for the options of OPT; see OptionsSize.
func (r *Response) Begin(out []byte, message []byte, q *Query, limit, reserve int) {
	r.flags = FlagQR | q.flags&(OpcodeBits|FlagRD)
	r.edns, r.do = q.EDNS, q.do
	if r.edns {
		r.reserve = optSize + reserve
	}
	r.limit = limit - r.reserve
	if q.end == 0 {
		r.Buf = append(out, message[:2]...)
		r.Buf = append(r.Buf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		return
	}
	r.Buf = append(out, message[:q.end]...)
	clear(r.Buf[2:HeaderSize])
	r.Buf[5] = 1
}

// Empty tells whether there is no answer so far.
func (r *Response) Empty() bool { return r.counts[Answer] == 0 }

// Room is how many more records of a size fit.
func (r *Response) Room(size int) int { return max(0, r.limit-len(r.Buf)) / size }

// Rotated adds records that were packed beforehand, each of so many bytes, beginning with
// the record that first is the number of and going around. Their TTL is made ttl seconds.
func (r *Response) Rotated(records []byte, size, first int, ttl uint32) {
	n := len(records) / size
	fits := min(n, r.Room(size))
	if fits < n {
		r.flags |= FlagTC
	}
	start := len(r.Buf)
	if from := first * size; fits <= n-first {
		r.Buf = append(r.Buf, records[from:from+fits*size]...)
	} else {
		r.Buf = append(r.Buf, records[from:]...)
		r.Buf = append(r.Buf, records[:(fits-(n-first))*size]...)
	}
	for at := start + ttlOffset; at < len(r.Buf); at += size {
		binary.BigEndian.PutUint32(r.Buf[at:], ttl)
	}
	r.counts[Answer] += uint16(fits)
}

// The sizes of records of addresses whose name is a pointer, and where in a record the
// TTL is then.
const (
	SizeA     = 16
	SizeAAAA  = 28
	ttlOffset = 6
)

// AppendAddress appends the record of an address of the name that was asked for: one of
// SizeA or SizeAAAA bytes, with a TTL of 0.
func AppendAddress(b []byte, address netip.Addr) []byte {
	if address.Is4() {
		four := address.As4()
		b = append(b, pointerBits, HeaderSize, 0, byte(TypeA), 0, byte(ClassIN), 0, 0, 0, 0, 0, 4)
		return append(b, four[:]...)
	}
	sixteen := address.As16()
	b = append(b, pointerBits, HeaderSize, 0, byte(TypeAAAA), 0, byte(ClassIN), 0, 0, 0, 0, 0, 16)
	return append(b, sixteen[:]...)
}

// Owner is a pointer to the name that was asked for.
const Owner uint16 = pointerBits<<8 | HeaderSize

// PointerTo is a pointer to a name that starts at an offset of the message; ok is false
// where it is too far from the start for one.
func PointerTo(offset int) (pointer uint16, ok bool) {
	return pointerBits<<8 | uint16(offset), offset < 1<<14
}

// Open begins a record of class IN. The caller appends the data to Buf and calls Close
// with the mark.
func (r *Response) Open(owner uint16, t Type, ttl uint32) (mark int) {
	return r.OpenClass(owner, t, ClassIN, ttl)
}

// OpenClass is Open for any class.
func (r *Response) OpenClass(owner uint16, t Type, class Class, ttl uint32) (mark int) {
	mark = len(r.Buf)
	r.Buf = append(r.Buf, byte(owner>>8), byte(owner), byte(t>>8), byte(t), byte(class>>8), byte(class),
		byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl), 0, 0)
	return mark
}

// recordHead is what Open appends.
const recordHead = 12

// Close ends the record that began at mark, or takes it back where it does not fit, and
// tells which.
func (r *Response) Close(section Section, mark int) (fits bool) {
	if len(r.Buf) > r.limit || len(r.Buf)-mark-recordHead > MaxSize {
		r.Buf = r.Buf[:mark]
		if section != Additional {
			r.flags |= FlagTC
		}
		return false
	}
	binary.BigEndian.PutUint16(r.Buf[mark+recordHead-2:], uint16(len(r.Buf)-mark-recordHead))
	r.counts[section]++
	return true
}

// Uint16 appends numbers.
func (r *Response) Uint16(numbers ...uint16) {
	for _, n := range numbers {
		r.Buf = append(r.Buf, byte(n>>8), byte(n))
	}
}

// Uint32 appends numbers.
func (r *Response) Uint32(numbers ...uint32) {
	for _, n := range numbers {
		r.Buf = binary.BigEndian.AppendUint32(r.Buf, n)
	}
}

// Address adds the record of an address.
func (r *Response) Address(section Section, owner uint16, ttl uint32, address netip.Addr) (fits bool) {
	if address.Is4() {
		mark := r.Open(owner, TypeA, ttl)
		four := address.As4()
		r.Buf = append(r.Buf, four[:]...)
		return r.Close(section, mark)
	}
	mark := r.Open(owner, TypeAAAA, ttl)
	sixteen := address.As16()
	r.Buf = append(r.Buf, sixteen[:]...)
	return r.Close(section, mark)
}

// maxString is how long one string of a TXT record may be.
const maxString = 255

// Text appends text as strings of at most 255 bytes (RFC 1035, 3.3.14).
func (r *Response) Text(text string) {
	for {
		n := min(len(text), maxString)
		r.Buf = append(append(r.Buf, byte(n)), text[:n]...)
		if text = text[n:]; text == "" {
			return
		}
	}
}

// Options are what a response's OPT record has besides what the query's asks for.
type Options struct {
	NSID   string // sent where the query asks for it
	Cookie []byte // the client's and the server's; none where empty
	Subnet bool   // the query's subnet has decided the answer, all of it
	Error  bool   // ErrorCode and what the text says are sent
	Code   ErrorCode
}

// optSize is an OPT record without options; optionHead begins each option.
const (
	optSize    = 11
	optionHead = 4
)

// OptionsSize is what the options of a response take at most, without the text of an
// error.
func OptionsSize(q *Query, nsid string) int {
	size := optionHead + 2 // an error
	if q.NSID {
		size += optionHead + len(nsid)
	}
	if q.Cookie != nil {
		size += optionHead + ClientCookieSize + ServerCookieSize
	}
	if q.Subnet.Sent {
		size += optionHead + 4 + 16
	}
	return size
}

// AppendedSize is how much AppendOptions makes a response longer, at most.
func AppendedSize(q *Query, o *Options) (size int) {
	if !q.EDNS {
		return 0
	}
	if q.NSID && o.NSID != "" {
		size += optionHead + len(o.NSID)
	}
	if len(o.Cookie) > 0 {
		size += optionHead + len(o.Cookie)
	}
	if o.Subnet {
		size += optionHead + 4 + (int(q.Subnet.Prefix)+7)/8
	}
	if o.Error {
		size += optionHead + 2
	}
	return size
}

// OpenOptions adds the OPT record with its options, the error last. The caller may append the
// error's text to Buf before it calls Finish with the mark.
func (r *Response) OpenOptions(q *Query, o *Options) (mark int) {
	mark = len(r.Buf)
	if !r.edns {
		return mark
	}
	flags := byte(0)
	if r.do {
		flags = optionDO >> 8
	}
	r.Buf = append(r.Buf, 0, 0, byte(TypeOPT), MaxPayload>>8, MaxPayload&0xff, byte(r.RCode>>4), 0, flags, 0, 0, 0)
	r.options(q, o)
	return mark
}

func (r *Response) options(q *Query, o *Options) {
	if q.NSID && o.NSID != "" {
		r.option(optionNSID, len(o.NSID))
		r.Buf = append(r.Buf, o.NSID...)
	}
	if len(o.Cookie) > 0 {
		r.option(optionCookie, len(o.Cookie))
		r.Buf = append(r.Buf, o.Cookie...)
	}
	if o.Subnet {
		r.subnet(&q.Subnet)
	}
	if o.Error {
		r.option(optionError, 2)
		r.Uint16(uint16(o.Code))
	}
}

func (r *Response) option(code uint16, size int) { r.Uint16(code, uint16(size)) }

// subnet says that all of the prefix has decided the answer.
func (r *Response) subnet(s *Subnet) {
	bytes := (int(s.Prefix) + 7) / 8
	r.option(optionSubnet, 4+bytes)
	r.Uint16(s.Family)
	r.Buf = append(r.Buf, s.Prefix, s.Prefix)
	if s.Address.Is4() {
		four := s.Address.As4()
		r.Buf = append(r.Buf, four[:bytes]...)
		return
	}
	sixteen := s.Address.As16()
	r.Buf = append(r.Buf, sixteen[:bytes]...)
}

// Finish ends the response. mark is where OpenOptions began, and text where the text of the
// error begins that was appended after it; both are len(Buf) where there is none. The text
// is shortened to what fits.
func (r *Response) Finish(mark, text int) []byte {
	opt := byte(0)
	if r.edns {
		opt = 1
		r.finishOptions(mark, text)
	} else {
		r.Buf = r.Buf[:mark]
	}
	flags := r.flags | uint16(r.RCode&0xf)
	if r.Authoritative {
		flags |= FlagAA
	}
	if r.Recursive {
		flags |= FlagRA
	}
	header := r.Buf[:HeaderSize]
	header[2], header[3] = byte(flags>>8), byte(flags)
	binary.BigEndian.PutUint16(header[6:], r.counts[Answer])
	binary.BigEndian.PutUint16(header[8:], r.counts[Authority])
	binary.BigEndian.PutUint16(header[10:], r.counts[Additional]+uint16(opt))
	return r.Buf
}

func (r *Response) finishOptions(mark, text int) {
	if most := r.limit + r.reserve; len(r.Buf) > most && text <= most {
		r.Buf = wholeRunes(r.Buf, text, most)
	}
	if size := len(r.Buf) - text; size > 0 { // before it are the option's size and the error's code
		binary.BigEndian.PutUint16(r.Buf[text-4:], uint16(2+size))
	}
	binary.BigEndian.PutUint16(r.Buf[mark+optSize-2:], uint16(len(r.Buf)-mark-optSize))
}

// wholeRunes is b up to end, or a little less where that would cut UTF-8, which the text
// of an error is.
func wholeRunes(b []byte, text, end int) []byte {
	for end > text && !utf8.RuneStart(b[end]) {
		end--
	}
	return b[:end]
}
