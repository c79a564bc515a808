package wire

import "encoding/binary"

// Query is what a query asks. It holds no pointer into the message but Cookie.
type Query struct {
	ID    uint16
	Name  Name
	Type  Type
	Class Class

	// Bare is set where there is no question, and a cookie alone is wanted (RFC 7873, 5.4).
	Bare bool

	flags uint16
	end   int // of the question in the message; 0 where there is none, or it could not be read

	OPT
}

// opcodeQuery is the only one that is served.
const opcodeQuery = 0

// Parse reads a message. reply is false where none is due: what came is shorter than a
// header, or a response itself. rcode is NoError where q has all that is asked, and
// otherwise what the response says: FormErr for what breaks the rules of a query, NotImp
// for any other operation, BadVers for another version of EDNS.
func (q *Query) Parse(message []byte) (rcode RCode, reply bool) {
	q.end, q.Bare, q.OPT = 0, false, OPT{}
	if len(message) < HeaderSize {
		return FormErr, false
	}
	q.ID, q.flags = binary.BigEndian.Uint16(message), binary.BigEndian.Uint16(message[2:])
	if q.flags&FlagQR != 0 {
		return FormErr, false
	}
	rcode = q.body(message)
	if q.flags&OpcodeBits != opcodeQuery {
		return NotImp, true // its sections mean something else; the response may have the question all the same
	}
	return rcode, true
}

func (q *Query) body(message []byte) RCode {
	counts := binary.BigEndian.Uint64(message[4:])
	if counts>>48 != 1 { // RFC 9619
		return q.bare(message, counts)
	}
	at, ok := q.Name.parse(message, HeaderSize)
	if !ok || len(message)-at < 4 {
		return FormErr
	}
	q.Type, q.Class = Type(binary.BigEndian.Uint16(message[at:])), Class(binary.BigEndian.Uint16(message[at+2:]))
	at += 4
	q.end = at
	if counts<<16 == 0 && at == len(message) {
		return q.sound()
	}
	answers, authorities, additionals := int(uint16(counts>>32)), int(uint16(counts>>16)), int(uint16(counts))
	if answers > 0 || authorities > 0 && q.Type != TypeIXFR {
		return FormErr
	}
	if at, ok = q.records(message, at, authorities, false); !ok {
		return FormErr
	}
	if at, ok = q.records(message, at, additionals, true); !ok || at != len(message) {
		return FormErr
	}
	if q.version != 0 {
		return BadVers
	}
	return q.sound()
}

// bare reads a message without a question: that is in order with a cookie, and with no other
// records than additional ones.
func (q *Query) bare(message []byte, counts uint64) RCode {
	if counts>>16 != 0 {
		return FormErr
	}
	at, ok := q.records(message, HeaderSize, int(uint16(counts)), true)
	switch {
	case !ok || at != len(message):
		return FormErr
	case q.version != 0:
		return BadVers
	case q.Cookie == nil:
		return FormErr
	}
	q.Bare = true
	return NoError
}

// sound is whether anybody may ask for the type at all.
func (q *Query) sound() RCode {
	if q.Type == TypeOPT || q.Type == 0 {
		return FormErr
	}
	return NoError
}

// records passes over records, and reads the OPT record among them.
func (q *Query) records(message []byte, at, count int, additional bool) (end int, ok bool) {
	for range count {
		end, ok := skipName(message, at)
		if !ok || len(message)-end < 10 {
			return 0, false
		}
		root := end == at+1
		fixed := message[end : end+10]
		rdata := end + 10
		at = rdata + int(binary.BigEndian.Uint16(fixed[8:]))
		if at > len(message) {
			return 0, false
		}
		if Type(binary.BigEndian.Uint16(fixed)) != TypeOPT {
			continue
		}
		if !additional || !root || q.EDNS || !q.readOPT(fixed, message[rdata:at]) {
			return 0, false
		}
	}
	return at, true
}

// Flags are the flags and the operation of the query's header.
func (q *Query) Flags() uint16 { return q.flags }

// Limit is how large a response by UDP may be.
func (q *Query) Limit() int {
	if !q.EDNS {
		return MinPayload
	}
	return min(max(int(q.payload), MinPayload), MaxPayload)
}
