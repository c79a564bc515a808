package wire

import (
	"encoding/binary"
	"unsafe"
)

// MaxName is how long a name may be, with the lengths of labels and the root (RFC 1035,
// 2.3.4).
const MaxName = 255

const (
	maxLabel  = 63
	maxLabels = 127
)

// Name is a name in lower case, in the form of the wire: a length before each label, and
// an empty label at the end. A label may hold any byte, also a dot.
type Name struct {
	wire   [MaxName + 1]byte // a multiple of 8
	size   uint8             // with the root
	labels uint8             // without the root
	starts [maxLabels + 1]uint8
}

// Labels is how many labels the name has, without the root.
func (n *Name) Labels() int { return int(n.labels) }

// Label is a label, from 0 on the left. The string is the name's own memory: it stands
// as long as the name does not change, and nobody may keep it.
func (n *Name) Label(i int) string {
	at := int(n.starts[i])
	return unsafe.String(&n.wire[at+1], int(n.wire[at]))
}

// Wire is the whole name. The bytes are the name's own.
func (n *Name) Wire() []byte { return n.wire[:n.size] }

// From is the name from a label on, in the form of the wire; the root where i is
// Labels. The bytes are the name's own.
func (n *Name) From(i int) []byte {
	return n.wire[n.start(i):n.size]
}

func (n *Name) start(i int) int {
	if i >= int(n.labels) {
		return int(n.size) - 1
	}
	return int(n.starts[i])
}

// Pointer stands for the name from a label on in the rest of a message, whose only question asks
// for the name.
func (n *Name) Pointer(i int) uint16 { return pointerBits<<8 | uint16(HeaderSize+n.start(i)) }

// Below is how many labels the name has before those of a zone, whose name is in the form
// of the wire and in lower case; ok is false where it is not in the zone.
func (n *Name) Below(zone []byte, labels int) (count int, ok bool) {
	count = int(n.labels) - labels
	if count < 0 {
		return 0, false
	}
	return count, string(n.From(count)) == string(zone)
}

// parse reads a question's name, which starts at packet[at] and has no compression
// pointers. It returns where the name ends.
func (n *Name) parse(packet []byte, at int) (end int, ok bool) {
	n.size, n.labels = 0, 0
	labels := 0
	for end = at; ; {
		if end >= len(packet) || end-at >= MaxName {
			return at, false
		}
		length := int(packet[end])
		if length == 0 {
			end++
			break
		}
		if length > maxLabel {
			return at, false // a pointer, or nothing that RFC 1035 knows
		}
		n.starts[labels&maxLabels] = uint8(end - at)
		labels++
		end += 1 + length
	}
	n.size, n.labels = uint8(end-at), uint8(labels)
	copy(n.wire[:], packet[at:end])
	n.lower()
	return end, true
}

// lower puts the name into lower case, eight bytes at a time. The lengths of labels are
// below 'A', so they stay.
func (n *Name) lower() {
	for i := 0; i < int(n.size); i += 8 {
		word := n.wire[i : i+8 : i+8]
		binary.LittleEndian.PutUint64(word, lowerWord(binary.LittleEndian.Uint64(word)))
	}
}

// lowerWord sets the bit that makes a lower-case letter in each byte from 'A' to 'Z'.
func lowerWord(x uint64) uint64 {
	const each = 0x0101010101010101
	low := x & (0x7f * each)
	fromA := low + (0x80-'A')*each
	beyondZ := low + (0x7f-'Z')*each
	upper := (fromA ^ beyondZ) & ^x & (0x80 * each)
	return x | upper>>2
}

const pointerBits = 0xc0

// skipName returns where a name ends that may have compression pointers; each must lead
// to the left of all of the name so far, so there are no loops.
func skipName(packet []byte, at int) (end int, ok bool) {
	size, leftOf := 0, at
	for {
		if at >= len(packet) {
			return 0, false
		}
		switch length := int(packet[at]); {
		case length == 0:
			if end == 0 {
				end = at + 1
			}
			return end, size < MaxName
		case length <= maxLabel:
			if size += 1 + length; size >= MaxName {
				return 0, false
			}
			at += 1 + length
		case length&pointerBits == pointerBits && at+1 < len(packet):
			to := (length&^pointerBits)<<8 | int(packet[at+1])
			if end == 0 {
				end = at + 2
			}
			if to >= leftOf || to < HeaderSize {
				return 0, false
			}
			at, leftOf = to, to
		default:
			return 0, false
		}
	}
}

// AppendName appends a name that is written with dots, as configuration has it, in the
// form of the wire. Its labels must be labels of DNS names.
func AppendName(b []byte, name string) []byte {
	for start := 0; start < len(name); {
		end := start
		for end < len(name) && name[end] != '.' {
			end++
		}
		b = AppendLabel(b, name[start:end])
		start = end + 1
	}
	return append(b, 0)
}

// AppendLabel appends one label, of 1 to 63 bytes.
func AppendLabel(b []byte, label string) []byte {
	return append(append(b, byte(len(label))), label...)
}
