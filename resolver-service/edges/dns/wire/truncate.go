package wire

import (
	"encoding/binary"
)

// Truncate cuts a response to a size by whole records, in place. An OPT that is last stays, without
// its options if even those don't fit. TC is set if answers, authority (RFC 2181, 9) or options are
// missing. Other bytes stay as they are.
func Truncate(response []byte, limit int) []byte {
	at, ok := QuestionEnd(response)
	if !ok {
		at = HeaderSize
	}
	if len(response) <= limit || len(response) < HeaderSize {
		return response
	}
	var all []Record
	for next := at; next < len(response); next = all[len(all)-1].End {
		r, ok := RecordAt(response, next)
		if !ok {
			return response
		}
		all = append(all, r)
	}
	var opt []byte
	if n := len(all); n > 0 && all[n-1].Kind == uint16(TypeOPT) {
		opt, all = response[all[n-1].Start:], all[:n-1]
	}
	if at+len(opt) > limit && len(opt) > optSize {
		opt = append(opt[:optSize-2:optSize-2], 0, 0)
		response[2] |= FlagTC >> 8
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
			response[2] |= FlagTC >> 8
		}
		if section == 10 && opt && n < had {
			n++
		}
		binary.BigEndian.PutUint16(response[section:], uint16(n))
	}
}
