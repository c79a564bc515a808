package forward

import (
	"encoding/binary"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// recordsAt is where a response's records begin, or -1.
func recordsAt(response []byte) int {
	if len(response) >= wire.HeaderSize && binary.BigEndian.Uint16(response[4:]) == 0 {
		return wire.HeaderSize
	}
	if end, ok := wire.QuestionEnd(response); ok {
		return end
	}
	return -1
}

// Truncate cuts a response to a size, by whole records, and keeps an OPT that is last. TC is
// set where answers or authority are missing (RFC 2181, 9). It works in place; what is no
// message it returns as it is.
func Truncate(response []byte, limit int) []byte {
	at := recordsAt(response)
	if len(response) <= limit || at < 0 {
		return response
	}
	var all []wire.Record
	for next := at; next < len(response); next = all[len(all)-1].End {
		r, ok := wire.RecordAt(response, next)
		if !ok {
			return response
		}
		all = append(all, r)
	}
	var opt []byte
	if n := len(all); n > 0 && all[n-1].Kind == uint16(wire.TypeOPT) {
		opt = response[all[n-1].Start:all[n-1].End]
		all = all[:n-1]
	}
	end, kept := at, 0
	for _, r := range all {
		if r.End+len(opt) > limit {
			break
		}
		end, kept = r.End, kept+1
	}
	recount(response, kept, len(opt) > 0)
	return append(response[:end], opt...)
}

// recount writes how many records are left in each section.
func recount(response []byte, kept int, opt bool) {
	for _, section := range []int{6, 8, 10} {
		had := int(binary.BigEndian.Uint16(response[section:]))
		n := min(had, kept)
		kept -= n
		if n < had && section != 10 {
			flags := binary.BigEndian.Uint16(response[2:])
			binary.BigEndian.PutUint16(response[2:], flags|wire.FlagTC)
		}
		if section == 10 && opt && n < had {
			n++
		}
		binary.BigEndian.PutUint16(response[section:], uint16(n))
	}
}
