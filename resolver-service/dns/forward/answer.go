package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// How long answers are kept, at most.
const (
	longestTTL      = 24 * time.Hour // RFC 8767, 4 allows a week
	longestNegative = time.Hour      // RFC 2308, 5: one to three hours work well
	failureTTL      = 5 * time.Second
	staleTTL        = 30 // seconds; RFC 8767, 4
)

// answer is a response as it is kept: packed, with the question in lower case, without OPT. It
// is immutable, but for retry.
type answer struct {
	packed  []byte
	ttls    []uint16 // where in packed a TTL stands
	options []byte   // extended errors (RFC 8914) for clients with EDNS
	stored  time.Time
	expires time.Time // stored, where it must not be kept
	failure bool
	retry   atomic.Int64 // Unix time in ns until which a failed refresh is not tried again
}

// newAnswer makes one of what an upstream answered to a question section in lower case.
func newAnswer(u *upstream, m *dns.Msg, section []byte, now time.Time) (*answer, error) {
	if len(m.Question) != 1 {
		return nil, errors.New("a response without its question")
	}
	a := &answer{options: u.extendedErrors(m), stored: now}
	m.Extra = withoutPseudo(m.Extra)
	name, _, err := dns.UnpackDomainName(section, 0)
	if err != nil {
		return nil, err
	}
	m.Question[0].Name = name
	for _, records := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for i, r := range records {
			h := r.Header()
			if h.Rdlength == 0 { // else it would be packed with fields that are nowhere
				records[i] = &dns.RFC3597{Hdr: *h}
				h = records[i].Header()
			}
			h.Name = likeQuestion(h.Name, name)
			if h.Ttl > 1<<31 { // RFC 2181, 8
				h.Ttl = 0
			}
			h.Ttl = min(h.Ttl, uint32(longestTTL/time.Second))
		}
	}
	a.expires = now.Add(lifetime(m))
	m.MsgHdr = dns.MsgHdr{Response: true, RecursionAvailable: true, AuthenticatedData: m.AuthenticatedData, Truncated: m.Truncated, Rcode: m.Rcode}
	m.Compress = true
	return a, a.pack(m, section)
}

func (a *answer) pack(m *dns.Msg, section []byte) error {
	packed, err := m.Pack()
	if err != nil {
		return err
	}
	at := wire.HeaderSize + len(section)
	if err := new(dns.Msg).Unpack(packed); err != nil {
		return err // whoever gets it could not read it either
	}
	if len(packed) > dns.MaxMsgSize || len(packed) < at || string(packed[wire.HeaderSize:at]) != string(section) {
		return errors.New("a response that can't be packed again")
	}
	a.packed = append(make([]byte, 0, len(packed)), packed...)
	for at < len(packed) {
		r, ok := wire.RecordAt(packed, at)
		if !ok {
			return errors.New("a response that can't be packed again")
		}
		a.ttls = append(a.ttls, uint16(r.Fixed+4))
		at = r.End
	}
	return nil
}

// likeQuestion gives an owner's name the case of the question, where it ends like it: an
// upstream may have compressed it with ours.
func likeQuestion(owner, name string) string {
	if n := len(name) - len(owner); n >= 0 && strings.EqualFold(name[n:], owner) {
		return name[n:]
	}
	return owner
}

// withoutPseudo leaves out what is between us and the upstream only.
func withoutPseudo(extra []dns.RR) []dns.RR {
	var kept []dns.RR
	for _, r := range extra {
		switch r.Header().Rrtype {
		case dns.TypeOPT, dns.TypeTSIG, dns.TypeSIG:
		default:
			kept = append(kept, r)
		}
	}
	return kept
}

// lifetime is how long a response may be kept (RFC 2308, 5).
func lifetime(m *dns.Msg) time.Duration {
	if m.Truncated {
		return 0
	}
	least := uint32(longestTTL / time.Second)
	answered := false
	for _, r := range m.Answer {
		h := r.Header()
		least = min(least, h.Ttl)
		answered = answered || h.Rrtype == m.Question[0].Qtype || m.Question[0].Qtype == dns.TypeANY
	}
	if answered && m.Rcode == dns.RcodeSuccess {
		return time.Duration(least) * time.Second
	}
	for _, r := range m.Ns {
		if soa, ok := r.(*dns.SOA); ok {
			return min(time.Duration(min(least, soa.Hdr.Ttl, soa.Minttl))*time.Second, longestNegative)
		}
	}
	return 0
}

// failed is the answer where upstreams gave none.
func failed(section []byte, extended uint16, text string, options []byte, keep time.Duration, now time.Time) *answer {
	packed := make([]byte, wire.HeaderSize, wire.HeaderSize+len(section))
	binary.BigEndian.PutUint16(packed[2:], wire.FlagQR|wire.FlagRA|servfail)
	packed[5] = 1
	return &answer{
		packed: append(packed, section...), options: append(appendExtended(nil, extended, text), options...),
		stored: now, expires: now.Add(keep), failure: true,
	}
}

// appendTo appends the response to a query, with what is left of the TTLs.
func (a *answer) appendTo(out []byte, q *question, now time.Time) []byte {
	age := uint32(max(0, now.Sub(a.stored)) / time.Second)
	start := len(out)
	out = append(out, a.packed...)
	m := out[start:]
	for _, at := range a.ttls {
		ttl := binary.BigEndian.Uint32(m[at:])
		binary.BigEndian.PutUint32(m[at:], ttl-min(ttl, age))
	}
	return a.finish(out, start, q, a.options)
}

// appendStale appends it as what was true once (RFC 8767).
func (a *answer) appendStale(out []byte, q *question) []byte {
	start := len(out)
	out = append(out, a.packed...)
	for _, at := range a.ttls {
		binary.BigEndian.PutUint32(out[start+int(at):], staleTTL)
	}
	return a.finish(out, start, q, appendExtended(nil, staleAnswer, "no upstream answers; this was true once"))
}

// finish gives a copy of an answer the query's id, flags and question, and an OPT.
func (a *answer) finish(out []byte, start int, q *question, options []byte) []byte {
	m := out[start:]
	binary.BigEndian.PutUint16(m, q.id)
	flags := binary.BigEndian.Uint16(m[2:]) | q.flags&(wire.FlagRD|wire.FlagCD)
	if !q.do && q.flags&wire.FlagAD == 0 { // RFC 6840, 5.8
		flags &^= wire.FlagAD
	}
	binary.BigEndian.PutUint16(m[2:], flags)
	copy(m[wire.HeaderSize:], q.name)
	if !q.edns {
		return out
	}
	if len(m)+optSize+len(options) > dns.MaxMsgSize {
		options = nil
	}
	out = q.appendOPT(out, options)
	binary.BigEndian.PutUint16(out[start+10:], binary.BigEndian.Uint16(out[start+10:])+1)
	if len(out)-start > dns.MaxMsgSize {
		return append(out[:start], Truncate(out[start:], dns.MaxMsgSize)...)
	}
	return out
}

const optSize = 11

// appendOPT appends our OPT, with the client's DO.
func (q *question) appendOPT(out, options []byte) []byte {
	var do uint32
	if q.do {
		do = ednsDO
	}
	out = append(out, 0, 0, byte(wire.TypeOPT))
	out = binary.BigEndian.AppendUint16(out, wire.MaxPayload)
	out = binary.BigEndian.AppendUint32(out, do)
	out = binary.BigEndian.AppendUint16(out, uint16(len(options)))
	return append(out, options...)
}

// Extended errors (RFC 8914, 4).
const (
	staleAnswer          = 3
	prohibited           = 18
	notAuthoritative     = 20
	notSupported         = 21
	noReachableAuthority = 22
	networkError         = 23
	otherError           = 0
)

const (
	extendedOption  = 15
	longestText     = 200 // of an extended error, so that it fits in 512 bytes with any name
	mostOfUpstreams = 3   // extended errors passed on from one answer
)

// appendExtended appends an extended error as an option.
func appendExtended(options []byte, code uint16, text string) []byte {
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText-3], "") + "…"
	}
	options = binary.BigEndian.AppendUint16(options, extendedOption)
	options = binary.BigEndian.AppendUint16(options, uint16(2+len(text)))
	options = binary.BigEndian.AppendUint16(options, code)
	return append(options, text...)
}

// extendedErrors are those of an upstream, as options, bounded. Each says that it is the
// upstream's, since "this server" in its text would read as if it were us.
func (u *upstream) extendedErrors(m *dns.Msg) []byte {
	var options []byte
	opt := m.IsEdns0()
	if opt == nil {
		return nil
	}
	n := 0
	for _, o := range opt.Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok && n < mostOfUpstreams {
			options = appendExtended(options, e.InfoCode, u.quote(e.ExtraText))
			n++
		}
	}
	return options
}

func (u *upstream) quote(text string) string {
	text = strings.ToValidUTF8(text, "�")
	if text == "" {
		return "upstream " + u.address.String()
	}
	return "upstream " + u.address.String() + ": " + text
}

// refusal is a response that says why it has no answer.
type refusal struct {
	code     int
	extended uint16
	text     string
}

func (r *refusal) Error() string { return fmt.Sprintf("response code %d: %s", r.code, r.text) }

// appendRefusal appends it. What could not be read for a question is answered without one.
func (q *question) appendRefusal(out []byte, r *refusal) []byte {
	out = binary.BigEndian.AppendUint16(out, q.id)
	out = binary.BigEndian.AppendUint16(out, wire.FlagQR|wire.FlagRA|q.flags&(wire.OpcodeBits|wire.FlagRD|wire.FlagCD)|uint16(r.code))
	counts := len(out)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0)
	if q.name != nil {
		out[counts+1] = 1
		out = append(out, q.name...)
		out = binary.BigEndian.AppendUint16(out, q.kind)
		out = binary.BigEndian.AppendUint16(out, q.class)
	}
	if q.edns {
		out[counts+7] = 1
		var options []byte
		if r.text != "" {
			options = appendExtended(nil, r.extended, r.text)
		}
		out = q.appendOPT(out, options)
	}
	return out
}
