package wire

import "encoding/binary"

// Record is where a resource record stands in a message: offsets of its name, its type, its
// data, and its end.
type Record struct {
	Start, Fixed, Data, End int

	Kind, Class uint16
	TTL         uint32
}

// recordFixed is the size of what a record has between its name and its data.
const recordFixed = 10

// RecordAt reads the record at an offset; ok is false where it does not end within the
// message.
func RecordAt(m []byte, at int) (r Record, ok bool) {
	fixed, ok := NameEnd(m, at)
	if !ok || fixed+recordFixed > len(m) {
		return r, false
	}
	r = Record{
		Start: at, Fixed: fixed, Data: fixed + recordFixed,
		Kind: binary.BigEndian.Uint16(m[fixed:]), Class: binary.BigEndian.Uint16(m[fixed+2:]), TTL: binary.BigEndian.Uint32(m[fixed+4:]),
	}
	r.End = r.Data + int(binary.BigEndian.Uint16(m[fixed+8:]))
	return r, r.End <= len(m)
}

// NameEnd is where the name at an offset ends. Pointers are not followed; ok is false where
// the name does not end within the message.
func NameEnd(m []byte, at int) (end int, ok bool) {
	for at < len(m) {
		switch n := int(m[at]); {
		case n == 0:
			return at + 1, true
		case n&pointerBits == pointerBits:
			return at + 2, at+2 <= len(m)
		case n > maxLabel:
			return 0, false
		default:
			at += 1 + n
		}
	}
	return 0, false
}

// QuestionEnd is where the only question of a message ends; 0 and false where there is not
// just one, it does not end within the message, or its name is longer than MaxName or has a
// pointer. There is nothing before it that a pointer could lead to (RFC 1035, 4.1.4) but the
// header, which a response does not share with its query.
func QuestionEnd(m []byte) (end int, ok bool) {
	if len(m) < HeaderSize || binary.BigEndian.Uint16(m[4:]) != 1 {
		return 0, false
	}
	for at := HeaderSize; at < len(m) && at < HeaderSize+MaxName; {
		switch n := int(m[at]); {
		case n == 0:
			if end = at + 1 + 4; end > len(m) { // with type and class
				return 0, false
			}
			return end, true
		case n > maxLabel:
			return 0, false
		default:
			at += 1 + n
		}
	}
	return 0, false
}
