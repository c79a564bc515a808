package forward

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// The longest times that the cache keeps answers.
const (
	longestTTL      = 24 * time.Hour
	longestNegative = time.Hour   // RFC 2308, 5: one to three hours work well
	failureTTL      = time.Second // RFC 9520, 3.2: one second at least
)

// answer is a response as the cache keeps it. It is immutable.
type answer struct {
	packed  []byte   // with the question in lower case, without OPT
	ttls    []uint16 // where in packed a TTL stands
	failure string   // why there is no answer; then packed is empty
	stored  time.Time
	expires time.Time
}

// size is what it takes, roughly.
func (a *answer) size() int { return 256 + len(a.packed) + 2*len(a.ttls) + len(a.failure) }

var errUnpackable = errors.New("a response that can't be packed again")

// newAnswer makes one from an upstream's response to a question.
func newAnswer(m *dns.Msg, l *lookup, now time.Time) (_ *answer, err error) {
	m.Question = []dns.Question{l.question}
	m.Extra = slices.DeleteFunc(m.Extra, func(r dns.RR) bool { // records between us and the upstream only
		return slices.Contains([]uint16{dns.TypeOPT, dns.TypeTSIG, dns.TypeSIG}, r.Header().Rrtype)
	})
	for _, records := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for i, r := range records {
			h := r.Header()
			if h.Rdlength == 0 { // the library would pack such a record with fields that it lacks
				records[i] = &dns.RFC3597{Hdr: *h}
				h = records[i].Header()
			}
			if h.Ttl > 1<<31 { // RFC 2181, 8
				h.Ttl = 0
			}
			h.Ttl = min(h.Ttl, uint32(longestTTL/time.Second))
		}
	}
	a := &answer{stored: now, expires: now.Add(lifetime(m))}
	m.MsgHdr = dns.MsgHdr{Response: true, RecursionAvailable: true, AuthenticatedData: m.AuthenticatedData, Truncated: m.Truncated, Rcode: m.Rcode}
	m.Compress = true
	if a.packed, err = m.Pack(); err != nil {
		return nil, err
	}
	if err := new(dns.Msg).Unpack(a.packed); err != nil {
		return nil, err // the client could not read it either
	}
	at := wire.HeaderSize + len(l.section)
	if len(a.packed)+optSize > dns.MaxMsgSize || len(a.packed) < at || string(a.packed[wire.HeaderSize:at]) != l.section {
		return nil, errUnpackable
	}
	for at < len(a.packed) {
		r, ok := wire.RecordAt(a.packed, at)
		if !ok {
			return nil, errUnpackable
		}
		a.ttls = append(a.ttls, uint16(r.Fixed+4))
		at = r.End
	}
	return a, nil
}

// lifetime is how long the cache may keep a response (RFC 2308, 5).
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

const optSize = 11

// respond appends the response to a query, with what is left of the TTLs.
func (a *answer) respond(out []byte, q *wire.Query, query []byte, now time.Time) []byte {
	if a.failure != "" {
		return refuse(out, q, query, wire.ServFail, wire.ErrorNoReachableAuthority, a.failure)
	}
	m := append(out, a.packed...)
	age := uint32(max(0, now.Sub(a.stored)) / time.Second)
	for _, at := range a.ttls {
		ttl := binary.BigEndian.Uint32(m[at:])
		binary.BigEndian.PutUint32(m[at:], ttl-min(ttl, age))
	}
	copy(m, query[:2])
	flags := binary.BigEndian.Uint16(m[2:]) | q.Flags()&(wire.FlagRD|wire.FlagCD)
	if !q.DO() && q.Flags()&wire.FlagAD == 0 { // RFC 6840, 5.8
		flags &^= wire.FlagAD
	}
	binary.BigEndian.PutUint16(m[2:], flags)
	name := len(q.Name.Wire())
	copy(m[wire.HeaderSize:], query[wire.HeaderSize:wire.HeaderSize+name])
	if !q.EDNS {
		return m
	}
	var do byte
	if q.DO() {
		do = 1 << 7
	}
	binary.BigEndian.PutUint16(m[10:], binary.BigEndian.Uint16(m[10:])+1)
	return append(m, 0, 0, byte(wire.TypeOPT), wire.MaxPayload>>8, wire.MaxPayload&0xff, 0, 0, do, 0, 0, 0)
}

// refusalSize is the size of a response without an answer. Clients without EDNS take it, with
// room for options that the zone adds.
const refusalSize = 400

// refuse writes a response without an answer. The text says why, if it is not empty.
func refuse(out []byte, q *wire.Query, query []byte, rcode wire.RCode, code wire.ErrorCode, text string) []byte {
	var r wire.Response
	r.Begin(out, query, q, refusalSize, 0)
	r.RCode, r.Recursive = rcode, true
	mark := r.OpenOptions(q, &wire.Options{Error: text != "", Code: code})
	at := len(r.Buf)
	if q.EDNS {
		r.Buf = append(r.Buf, text...)
	}
	return r.Finish(mark, at)
}
