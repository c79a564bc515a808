package forward

import (
	"bytes"
	"encoding/binary"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// ednsDO is the flag in the TTL of an OPT record (RFC 3225).
const ednsDO = 1 << 15

// Response codes, and those that only parse returns.
const (
	formerr  = 1
	servfail = 2
	nxdomain = 3
	notimp   = 4
	refused  = 5
	dropped  = -1 // no query, so no response
)

const maxKey = wire.MaxName + 5 // type, class, and DO and CD

// question is a query as far as a forwarder cares. Its slices are of the query.
type question struct {
	id    uint16
	flags uint16
	name  []byte // as it came, in labels, not compressed
	kind  uint16
	class uint16

	edns bool
	do   bool
	size uint16 // of UDP payload, as the client says
	mark []byte // what a query of ours is known by; see marker.go
}

// parse reads a query: what is wrong with it is a response code or dropped.
func parse(query []byte) (q question, code int) {
	if len(query) < wire.HeaderSize {
		return q, dropped
	}
	q.id = binary.BigEndian.Uint16(query)
	q.flags = binary.BigEndian.Uint16(query[2:])
	switch {
	case q.flags&wire.FlagQR != 0:
		return q, dropped
	case q.flags&wire.OpcodeBits != 0:
		return q, notimp
	}
	end, ok := wire.QuestionEnd(query)
	if !ok {
		return q, formerr
	}
	q.name = query[wire.HeaderSize : end-4]
	q.kind = binary.BigEndian.Uint16(query[end-4:])
	q.class = binary.BigEndian.Uint16(query[end-2:])
	if !q.readOptions(query, end) {
		return q, formerr
	}
	return q, 0
}

// readOptions finds the OPT (RFC 6891) among the records from an offset on. There may be one.
func (q *question) readOptions(query []byte, at int) bool {
	records := 0
	for _, section := range []int{6, 8, 10} {
		records += int(binary.BigEndian.Uint16(query[section:]))
	}
	for ; records > 0; records-- {
		r, ok := wire.RecordAt(query, at)
		if !ok {
			return false
		}
		at = r.End
		if r.Kind != uint16(wire.TypeOPT) {
			continue
		}
		if q.edns || r.Fixed-r.Start != 1 {
			return false
		}
		q.edns, q.do, q.size = true, r.TTL&ednsDO != 0, r.Class
		if !q.readMark(query[r.Data:r.End]) {
			return false
		}
	}
	return true
}

func (q *question) readMark(options []byte) bool {
	return eachOption(options, func(code uint16, value []byte) {
		if code == markerOption {
			q.mark = value
		}
	})
}

// eachOption visits the options of an OPT; false if they are malformed.
func eachOption(options []byte, visit func(code uint16, value []byte)) bool {
	for len(options) > 0 {
		if len(options) < 4 {
			return false
		}
		n := 4 + int(binary.BigEndian.Uint16(options[2:]))
		if n > len(options) {
			return false
		}
		visit(binary.BigEndian.Uint16(options), options[4:n])
		options = options[n:]
	}
	return true
}

// key appends what an answer is kept under: the name in lower case, type, class, DO and CD.
func (q *question) key(to []byte) []byte {
	to = appendLower(to, q.name)
	to = binary.BigEndian.AppendUint16(to, q.kind)
	to = binary.BigEndian.AppendUint16(to, q.class)
	var bits byte
	if q.do {
		bits |= 1
	}
	if q.flags&wire.FlagCD != 0 {
		bits |= 2
	}
	return append(to, bits)
}

// lower is the question's section in lower case: what we ask upstreams.
func (q *question) lower() []byte {
	to := appendLower(make([]byte, 0, len(q.name)+4), q.name)
	to = binary.BigEndian.AppendUint16(to, q.kind)
	return binary.BigEndian.AppendUint16(to, q.class)
}

// clone is the question with a name of its own.
func (q *question) clone() question {
	c := *q
	c.name, c.mark = bytes.Clone(q.name), nil
	return c
}

// appendLower lowers ASCII letters. Lengths of labels, at most 63, are none.
func appendLower(to, name []byte) []byte {
	for _, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		to = append(to, b)
	}
	return to
}

// sameQuestion tells whether two sections are the same but for case.
func sameQuestion(a, b []byte) bool {
	n := len(a) - 4
	if n < 1 || len(a) != len(b) || !bytes.Equal(a[n:], b[n:]) {
		return false
	}
	for i := range n {
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x += 'a' - 'A'
		}
		if 'A' <= y && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return false
		}
	}
	return true
}
