package forward

import "encoding/binary"

// record is where a resource record stands in a message.
type record struct {
	start int // of its name
	fixed int // of its type
	data  int
	end   int
	kind  uint16
	class uint16
	ttl   uint32
}

// recordAt reads the record at an offset.
func recordAt(m []byte, at int) (r record, ok bool) {
	fixed := nameEnd(m, at)
	if fixed < 0 || fixed+10 > len(m) {
		return r, false
	}
	r = record{
		start: at, fixed: fixed, data: fixed + 10,
		kind: binary.BigEndian.Uint16(m[fixed:]), class: binary.BigEndian.Uint16(m[fixed+2:]), ttl: binary.BigEndian.Uint32(m[fixed+4:]),
	}
	r.end = r.data + int(binary.BigEndian.Uint16(m[fixed+8:]))
	return r, r.end <= len(m)
}

// nameEnd is where the name at an offset ends, its pointers not followed; -1 if it does not.
func nameEnd(m []byte, at int) int {
	for at < len(m) {
		switch n := int(m[at]); {
		case n == 0:
			return at + 1
		case n >= 0xc0:
			if at+2 > len(m) {
				return -1
			}
			return at + 2
		case n > 63:
			return -1
		default:
			at += n + 1
		}
	}
	return -1
}

// recordsAt is where a response's records begin, or -1.
func recordsAt(response []byte) int {
	if len(response) < headerSize {
		return -1
	}
	if binary.BigEndian.Uint16(response[4:]) != 1 {
		return headerSize
	}
	at := nameEnd(response, headerSize)
	if at < 0 || at+4 > len(response) {
		return -1
	}
	return at + 4
}

// Truncate cuts a response to a size, by whole records, and keeps an OPT that is last. TC is
// set where answers or authority are missing (RFC 2181, 9). It works in place; what is no
// message it returns as it is.
func Truncate(response []byte, limit int) []byte {
	at := recordsAt(response)
	if len(response) <= limit || at < 0 {
		return response
	}
	var all []record
	for next := at; next < len(response); next = all[len(all)-1].end {
		r, ok := recordAt(response, next)
		if !ok {
			return response
		}
		all = append(all, r)
	}
	var opt []byte
	if n := len(all); n > 0 && all[n-1].kind == typeOPT {
		opt = response[all[n-1].start:all[n-1].end]
		all = all[:n-1]
	}
	end, kept := at, 0
	for _, r := range all {
		if r.end+len(opt) > limit {
			break
		}
		end, kept = r.end, kept+1
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
			binary.BigEndian.PutUint16(response[2:], flags|flagTC)
		}
		if section == 10 && opt && n < had {
			n++
		}
		binary.BigEndian.PutUint16(response[section:], uint16(n))
	}
}
