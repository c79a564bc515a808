package wire

import "encoding/binary"

// AppendOptions adds options to a whole response that was made elsewhere, as Response has
// them: to its OPT record, which is its last. A response without one, or that can't be
// read, or that would be longer than a message can be, stays as it is.
func AppendOptions(response []byte, q *Query, o *Options) []byte {
	opt, ok := lastOPT(response)
	if !ok || !q.EDNS {
		return response
	}
	r := Response{Buf: response}
	if r.options(q, o); len(r.Buf) > maxMessage {
		return response
	}
	binary.BigEndian.PutUint16(r.Buf[opt+optSize-2:], uint16(len(r.Buf)-opt-optSize))
	return r.Buf
}

// maxMessage is how long a message can be, with the 16 bits that tell its length over TCP.
const maxMessage = 1<<16 - 1

// lastOPT is where the OPT record begins that ends a message.
func lastOPT(message []byte) (at int, ok bool) {
	if len(message) < HeaderSize {
		return 0, false
	}
	end := HeaderSize
	for range binary.BigEndian.Uint16(message[4:]) {
		if end, ok = skipName(message, end); !ok {
			return 0, false
		}
		end += 4
	}
	records := int(binary.BigEndian.Uint16(message[6:])) + int(binary.BigEndian.Uint16(message[8:])) + int(binary.BigEndian.Uint16(message[10:]))
	for range records {
		at = end
		if end, ok = skipName(message, at); !ok || len(message)-end < 10 {
			return 0, false
		}
		end += 10 + int(binary.BigEndian.Uint16(message[end+8:]))
	}
	return at, records > 0 && end == len(message) && message[at] == 0 && Type(binary.BigEndian.Uint16(message[at+1:])) == TypeOPT
}
