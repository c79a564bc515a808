// Package wire reads DNS queries and writes responses (RFC 1035, 6891), in buffers that it is
// given: it allocates nothing. It knows the form of messages and no zone.
package wire

// Type is the type of a record, or what a question asks for.
type Type uint16

// The types that a server of names has to tell apart.
const (
	TypeA     Type = 1
	TypeNS    Type = 2
	TypeSOA   Type = 6
	TypePTR   Type = 12
	TypeHINFO Type = 13
	TypeTXT   Type = 16
	TypeAAAA  Type = 28
	TypeSRV   Type = 33
	TypeOPT   Type = 41
	TypeSVCB  Type = 64
	TypeHTTPS Type = 65
	TypeIXFR  Type = 251
	TypeAXFR  Type = 252
	TypeANY   Type = 255
)

// firstMeta and lastMeta bound the types that no record has (RFC 6895, 3.1).
const (
	firstMeta Type = 128
	lastMeta  Type = 255
)

// Meta tells whether no record can have the type: it stands in questions alone, or is OPT.
func (t Type) Meta() bool { return t == TypeOPT || t >= firstMeta && t <= lastMeta }

// Class is the class of a record or a question.
type Class uint16

// The classes that are served.
const (
	ClassIN Class = 1
	ClassCH Class = 3
)

// RCode is how a query ended. Those above 15 need EDNS.
type RCode uint16

// The response codes that are sent.
const (
	NoError  RCode = 0
	FormErr  RCode = 1
	ServFail RCode = 2
	NXDomain RCode = 3
	NotImp   RCode = 4
	Refused  RCode = 5
	BadVers  RCode = 16
)

// String is the code as dig writes it.
func (r RCode) String() string {
	switch r {
	case NoError:
		return "NOERROR"
	case FormErr:
		return "FORMERR"
	case ServFail:
		return "SERVFAIL"
	case NXDomain:
		return "NXDOMAIN"
	case NotImp:
		return "NOTIMP"
	case Refused:
		return "REFUSED"
	case BadVers:
		return "BADVERS"
	default:
		return "RCODE"
	}
}

// ErrorCode is the code of an Extended DNS Error (RFC 8914).
type ErrorCode uint16

// The extended errors that are sent.
const (
	ErrorOther                ErrorCode = 0
	ErrorStaleAnswer          ErrorCode = 3
	ErrorNotReady             ErrorCode = 14
	ErrorBlocked              ErrorCode = 15
	ErrorProhibited           ErrorCode = 18
	ErrorNotAuthoritative     ErrorCode = 20
	ErrorNotSupported         ErrorCode = 21
	ErrorNoReachableAuthority ErrorCode = 22
)

// Bounds of a message.
const (
	HeaderSize = 12
	MaxSize    = 65535
	// MinPayload is what every client can receive by UDP (RFC 1035, 4.2.1), and
	// MaxPayload what is sent at most, so that no path has to fragment it
	// (https://www.dnsflagday.net/2020/).
	MinPayload = 512
	MaxPayload = 1232
)

// The flags of a header, and the bits of its operation and of its code (RFC 1035, 4.1.1;
// RFC 4035, 3.2).
const (
	FlagQR = 1 << 15
	FlagAA = 1 << 10
	FlagTC = 1 << 9
	FlagRD = 1 << 8
	FlagRA = 1 << 7
	FlagAD = 1 << 5
	FlagCD = 1 << 4

	OpcodeBits = 0xf << 11
	RCodeBits  = 0xf
)
