package forward

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// A query of ours that comes back to us would go round for ever. Each carries an EDNS option
// of local use (RFC 6891, 9) with a random number that stands for this process, and which
// upstream it went to. Forwarders that pass a query on as it is, as CoreDNS does, pass on the
// option too. Through those that don't, a query that comes back waits for itself, since the
// same is asked once at a time, and ends with its time limit; the name that a probe asks for
// tells then.
const (
	markerOption = 65_314
	markerSize   = 8
	probeSuffix  = "isthmus-loop-check" // a label, which no domain has at the top
)

// mark is the option for a query to an upstream.
func (f *Forwarder) mark(u *upstream) []byte {
	o := make([]byte, 0, 4+markerSize+1)
	o = binary.BigEndian.AppendUint16(o, markerOption)
	o = binary.BigEndian.AppendUint16(o, markerSize+1)
	return append(append(o, f.marker[:]...), byte(u.index))
}

// probeName is the question section that a probe of an upstream has: type HINFO.
func (f *Forwarder) probeName(u *upstream) []byte {
	first := hex.EncodeToString(append(f.marker[:], byte(u.index)))
	var s []byte
	for _, label := range []string{first, probeSuffix} {
		s = append(append(s, byte(len(label))), label...)
	}
	return append(s, 0, 0, 13, 0, 1)
}

// returned is the upstream that a query of ours came back from, or nil, and whether it is a
// probe's.
func (f *Forwarder) returned(q *question) (from *upstream, probe bool) {
	mark := probeMark(q.name)
	if probe = mark != nil; !probe {
		mark = q.mark
	}
	if len(mark) != markerSize+1 || !bytes.Equal(mark[:markerSize], f.marker[:]) || int(mark[markerSize]) >= len(f.upstreams) {
		return nil, false
	}
	return f.upstreams[mark[markerSize]], probe
}

// probeMark is the mark in the name of a probe.
func probeMark(name []byte) []byte {
	const digits = 2 * (markerSize + 1)
	if len(name) != 1+digits+1+len(probeSuffix)+1 || name[0] != digits || !strings.EqualFold(string(name[2+digits:len(name)-1]), probeSuffix) {
		return nil
	}
	mark, err := hex.DecodeString(strings.ToLower(string(name[1 : 1+digits])))
	if err != nil {
		return nil
	}
	return mark
}

// refusal is why a query is not forwarded, or nil.
func (f *Forwarder) refusal(q *question) *refusal {
	switch {
	case q.flags&wire.FlagRD == 0:
		return &refusal{code: refused, extended: notAuthoritative, text: "not a name of ours, and recursion is not desired"}
	case q.class != 1:
		return &refusal{code: refused, extended: notSupported, text: "this class is not forwarded"}
	case q.kind == 0 || q.kind == uint16(wire.TypeOPT) || q.kind >= 249 && q.kind <= 254: // TKEY, TSIG, transfers, MAILB, MAILA
		return &refusal{code: refused, extended: notSupported, text: "this type is not forwarded"}
	}
	if u, probe := f.returned(q); u != nil {
		f.counts.loops.Add(1)
		u.cameBack(probe)
		return &refusal{code: refused, extended: otherError, text: "a loop: upstream " + u.address.String() + " sends the queries that it gets from us back to us"}
	}
	return nil
}
