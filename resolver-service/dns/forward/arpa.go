package forward

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// By resolver.arpa clients ask the resolver that they have for servers that are the same by
// another protocol (RFC 9462). An upstream's answer would name the upstream's servers as if
// they were this one, so nothing at or below the name is passed on (6.1): there is no data, for
// any type (4 and 6.4).
var resolverArpa = []byte("\x08resolver\x04arpa\x00")

// arpaTTL is how long clients may keep that there is nothing.
const arpaTTL = time.Hour

// arpa is the answer for a name at or below resolver.arpa; nil for any other name.
func arpa(q *question) *answer {
	section := q.lower()
	name := section[:len(section)-4]
	if !bytes.HasSuffix(name, resolverArpa) || !wholeLabels(name, len(name)-len(resolverArpa)) {
		return nil
	}
	now := time.Now()
	packed := binary.BigEndian.AppendUint16(make([]byte, 2, 128), wire.FlagQR|wire.FlagAA|wire.FlagRA)
	packed = append(packed, 0, 1, 0, 0, 0, 1, 0, 0) // a question, and one record of authority
	packed = append(packed, section...)
	a := &answer{ttls: []uint16{uint16(len(packed) + 6)}, stored: now, expires: now}
	a.packed = appendArpaSOA(packed, 0xc000|uint16(wire.HeaderSize+len(name)-len(resolverArpa)))
	return a
}

// wholeLabels tells whether a label begins at an offset.
func wholeLabels(name []byte, at int) bool {
	i := 0
	for i < at {
		i += 1 + int(name[i])
	}
	return i == at
}

// appendArpaSOA appends the SOA that RFC 6303, 3 has for a zone that is served by everybody for
// their own. apex points to its name.
func appendArpaSOA(packed []byte, apex uint16) []byte {
	const typeSOA, classIN = 6, 1
	packed = binary.BigEndian.AppendUint16(packed, apex)
	packed = append(packed, 0, typeSOA, 0, classIN)
	packed = binary.BigEndian.AppendUint32(packed, uint32(arpaTTL/time.Second))
	nobody := "\x06nobody\x07invalid\x00"
	packed = binary.BigEndian.AppendUint16(packed, uint16(2+len(nobody)+5*4))
	packed = append(binary.BigEndian.AppendUint16(packed, apex), nobody...)
	for _, n := range []uint32{1, 3600, 1200, 604_800, uint32(arpaTTL / time.Second)} {
		packed = binary.BigEndian.AppendUint32(packed, n)
	}
	return packed
}
