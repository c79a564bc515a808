package transport

import "encoding/binary"

// What rate limiting and overload have to know of a message, RFC 1035 section 4.1.
const (
	headerSize   = 12
	flagResponse = 1 << 15
	flagTC       = 1 << 9
	flagRD       = 1 << 8
	opcodeBits   = 0xf << 11
	rcodeBits    = 0xf

	rcodeServFail = 2
	rcodeNXDomain = 3
)

func flagsOf(m []byte) uint16 { return binary.BigEndian.Uint16(m[2:]) }

// skipName returns where the name at i ends, or 0 where it does not end within m.
func skipName(m []byte, i int) int {
	for i < len(m) {
		switch n := int(m[i]); {
		case n == 0:
			return i + 1
		case n >= 0xc0:
			if i+2 > len(m) {
				return 0
			}
			return i + 2
		case n >= 0x40:
			return 0
		default:
			i += 1 + n
		}
	}
	return 0
}

// questionEnd returns where the only question of a message ends; 0 where there is not
// just one, or it is cut off.
func questionEnd(m []byte) int {
	if len(m) < headerSize || binary.BigEndian.Uint16(m[4:]) != 1 {
		return 0
	}
	end := skipName(m, headerSize)
	if end == 0 || end+4 > len(m) {
		return 0
	}
	return end + 4
}

// servFail appends the response to a query that nothing else can be said to; nothing
// where it is no query.
func servFail(out, query []byte) []byte {
	if len(query) < headerSize || flagsOf(query)&flagResponse != 0 {
		return out
	}
	end := max(questionEnd(query), headerSize)
	start := len(out)
	out = append(out, query[:end]...)
	m := out[start:]
	binary.BigEndian.PutUint16(m[2:], flagResponse|flagsOf(query)&(opcodeBits|flagRD)|rcodeServFail)
	if end == headerSize {
		m[5] = 0
	}
	m[4] = 0
	clear(m[6:headerSize])
	return out
}

// maxQuery is the size of the largest query that is read by UDP: far more than one has,
// with every option there is.
const maxQuery = 2048
