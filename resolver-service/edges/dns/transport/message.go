package transport

import (
	"encoding/binary"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

const (
	// maxQuery is the size of the largest query that is read by UDP: far more than one
	// has, with every option there is. A larger one is answered with FORMERR.
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

// servFail appends the response to a query that nothing else can be said to, with its
// question where it can be read; nothing where it is no query.
func servFail(out, query []byte) []byte {
	if len(query) < wire.HeaderSize || flagsOf(query)&wire.FlagQR != 0 {
		return out
	}
	start := len(out)
	end, question := wire.QuestionEnd(query)
	out = append(out, query[:max(end, wire.HeaderSize)]...)
	m := out[start:]
	binary.BigEndian.PutUint16(m[2:], wire.FlagQR|flagsOf(query)&(wire.OpcodeBits|wire.FlagRD)|uint16(wire.ServFail))
	setCounts(m, question, 0)
	return out
}

// truncated is a response cut down, in place, to what says that the client should come by
// TCP: the header, the question and the OPT record, of whose options a cookie is left. So it
// is no larger than the query was, but for that.
func truncated(m []byte) []byte {
	n, question := wire.QuestionEnd(m)
	n = max(n, wire.HeaderSize)
	additional := 0
	if opt, end := findOPT(m, n, question); end > opt {
		additional = 1
		n += cookieOnly(m[n : n+copy(m[n:], m[opt:end])])
	}
	binary.BigEndian.PutUint16(m[2:], flagsOf(m)|wire.FlagTC)
	setCounts(m, question, additional)
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

// findOPT finds the OPT record among the records from i on; nothing where there is none, or
// where a question that was not read stands before them.
func findOPT(m []byte, i int, question bool) (start, end int) {
	if !question && binary.BigEndian.Uint16(m[4:]) != 0 {
		return 0, 0
	}
	records := 0
	for section := 6; section < wire.HeaderSize; section += 2 {
		records += int(binary.BigEndian.Uint16(m[section:]))
	}
	for range records {
		r, ok := wire.RecordAt(m, i)
		if !ok {
			break
		}
		if r.Kind == uint16(wire.TypeOPT) && r.Fixed == i+1 { // of the root (RFC 6891, 6.1.2)
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
