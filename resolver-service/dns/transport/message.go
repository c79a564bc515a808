package transport

import (
	"encoding/binary"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

const (
	// maxQuery is the size of the largest query that is read by UDP: far more than one
	// has, with every option there is.
	maxQuery = 2048
)

func flagsOf(m []byte) uint16 { return binary.BigEndian.Uint16(m[2:]) }

// appendName appends the name at i in lower case, without pointers; as much of it as
// makes sense, 255 bytes at most.
func appendName(out, m []byte, i int) []byte {
	start := len(out)
	for jumps := 0; i < len(m) && jumps < 16; {
		n := int(m[i])
		switch {
		case n == 0:
			return out
		case n >= 0xc0:
			if i+2 > len(m) {
				return out
			}
			i = int(binary.BigEndian.Uint16(m[i:]) & 0x3fff)
			jumps++
			continue
		case n >= 0x40 || i+1+n > len(m) || len(out)-start+1+n > 255:
			return out
		}
		for _, c := range m[i : i+1+n] {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			out = append(out, c)
		}
		i += 1 + n
	}
	return out
}

// questionEnd returns where the only question of a message ends; 0 where there is not
// just one, or it is cut off.
func questionEnd(m []byte) int {
	if len(m) < wire.HeaderSize || binary.BigEndian.Uint16(m[4:]) != 1 {
		return 0
	}
	end, ok := wire.NameEnd(m, wire.HeaderSize)
	if !ok || end+4 > len(m) {
		return 0
	}
	return end + 4
}

// servFail appends the response to a query that nothing else can be said to; nothing
// where it is no query.
func servFail(out, query []byte) []byte {
	if len(query) < wire.HeaderSize || flagsOf(query)&wire.FlagQR != 0 {
		return out
	}
	start, end := len(out), questionEnd(query)
	out = append(out, query[:max(end, wire.HeaderSize)]...)
	m := out[start:]
	binary.BigEndian.PutUint16(m[2:], wire.FlagQR|flagsOf(query)&(wire.OpcodeBits|wire.FlagRD)|uint16(wire.ServFail))
	setCounts(m, end > 0, 0)
	return out
}

// truncated is a response cut down, in place, to what says that the client should come by
// TCP: the header, the question and the OPT record, of whose options a cookie is left. So it
// is no larger than the query was, but for that.
func truncated(m []byte) []byte {
	question := questionEnd(m)
	end := max(question, wire.HeaderSize)
	opt, optEnd := findOPT(m, end)
	n := end + copy(m[end:], m[opt:optEnd])
	if optEnd > opt {
		n = end + cookieOnly(m[end:n])
	}
	binary.BigEndian.PutUint16(m[2:], flagsOf(m)|wire.FlagTC)
	additional := 0
	if optEnd > opt {
		additional = 1
	}
	setCounts(m, question > 0, additional)
	return m[:n]
}

// cookieOnly leaves of an OPT record's options a cookie, in place, and returns its size.
func cookieOnly(opt []byte) (size int) {
	const optionCookie = 10
	r, _ := wire.RecordAt(opt, 0) // found, so it is one
	start := r.Data
	size = start
	for i := start; i+4 <= len(opt); {
		next := i + 4 + int(binary.BigEndian.Uint16(opt[i+2:]))
		if next > len(opt) {
			break
		}
		if binary.BigEndian.Uint16(opt[i:]) == optionCookie {
			size += copy(opt[size:], opt[i:next])
		}
		i = next
	}
	binary.BigEndian.PutUint16(opt[start-2:], uint16(size-start))
	return size
}

// findOPT finds the OPT record among the records from i on; nothing where there is none.
func findOPT(m []byte, i int) (start, end int) {
	records := 0
	for section := 6; section < wire.HeaderSize; section += 2 {
		records += int(binary.BigEndian.Uint16(m[section:]))
	}
	for range records {
		r, ok := wire.RecordAt(m, i)
		if !ok {
			break
		}
		if r.Kind == uint16(wire.TypeOPT) {
			return i, r.End
		}
		i = r.End
	}
	return 0, 0
}

// setCounts sets how many records a message has, without answers.
func setCounts(m []byte, question bool, additional int) {
	clear(m[4:wire.HeaderSize])
	if question {
		m[5] = 1
	}
	m[11] = byte(additional)
}
