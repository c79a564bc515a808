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

// Truncate cuts a response to a size: first by the extended errors of an OPT that is last,
// the last of them first, then by whole records, but for that OPT. TC is set where answers,
// authority (RFC 2181, 9) or errors (RFC 8914, 3) are missing. It works in place; what is no
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
		opt = withoutErrors(response, all[n-1], len(response)-limit)
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

// withoutErrors is an OPT without as many extended errors, the last first, as make it so much
// shorter, or without any. TC is set where one is left out.
func withoutErrors(response []byte, r wire.Record, by int) []byte {
	opt := response[r.Start:r.End]
	data := r.Data - r.Start
	for by > 0 {
		at, end := lastError(opt[data:])
		if end == 0 {
			break
		}
		opt = append(opt[:data+at], opt[data+end:]...)
		binary.BigEndian.PutUint16(opt[data-2:], uint16(len(opt)-data))
		setTC(response)
		by -= end - at
	}
	return opt
}

// lastError is where the last extended error begins and ends among options; 0 and 0 where
// there is none.
func lastError(options []byte) (at, end int) {
	next := 0
	eachOption(options, func(code uint16, value []byte) {
		begin := next
		if next += 4 + len(value); code == extendedOption {
			at, end = begin, next
		}
	})
	return at, end
}

func setTC(response []byte) {
	binary.BigEndian.PutUint16(response[2:], binary.BigEndian.Uint16(response[2:])|wire.FlagTC)
}

// recount writes how many records are left in each section.
func recount(response []byte, kept int, opt bool) {
	for _, section := range []int{6, 8, 10} {
		had := int(binary.BigEndian.Uint16(response[section:]))
		n := min(had, kept)
		kept -= n
		if n < had && section != 10 {
			setTC(response)
		}
		if section == 10 && opt && n < had {
			n++
		}
		binary.BigEndian.PutUint16(response[section:], uint16(n))
	}
}
