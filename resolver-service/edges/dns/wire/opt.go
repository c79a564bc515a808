package wire

import (
	"encoding/binary"
	"net/netip"
)

// OPT is what a query's OPT record says (RFC 6891).
type OPT struct {
	EDNS bool // there is one
	NSID bool // the client wants to know who answers (RFC 5001)
	// Cookie is the client's cookie of 8 bytes and, after it, the server's, if the client
	// has one (RFC 7873). It is a part of the message; nil where there is none.
	Cookie []byte
	Subnet Subnet

	version uint8
	payload uint16
	do      bool // DNSSEC OK, which the response has too (RFC 3225)
}

// Subnet is the network of the client for whom a forwarder asks (RFC 7871).
type Subnet struct {
	Sent    bool
	Family  uint16 // 1 is IPv4, 2 is IPv6, 0 nothing
	Prefix  uint8  // how many bits of the address are told
	Address netip.Addr
}

// Whole is the client's address, where all of it is told.
func (s *Subnet) Whole() (address netip.Addr, ok bool) {
	return s.Address, s.Sent && s.Address.IsValid() && int(s.Prefix) == s.Address.BitLen()
}

// DO tells whether the client wants DNSSEC records (RFC 3225).
func (o *OPT) DO() bool { return o.do }

// The options of an OPT record that are read or sent.
const (
	optionNSID   = 3
	optionSubnet = 8
	optionCookie = 10
	optionError  = 15
)

// Sizes of cookies (RFC 7873, 4). ServerCookieSize is that of those that are sent
// (RFC 9018).
const (
	ClientCookieSize = 8
	ServerCookieSize = 16
	minServerCookie  = 8
	maxServerCookie  = 32
)

const optionDO = 1 << 15

// readOPT reads the record from its type on, and its options. Those of another version
// are left alone.
func (o *OPT) readOPT(fixed, options []byte) (ok bool) {
	o.EDNS = true
	o.payload = binary.BigEndian.Uint16(fixed[2:])
	o.version = fixed[5]
	o.do = binary.BigEndian.Uint16(fixed[6:])&optionDO != 0
	if o.version != 0 {
		return true
	}
	for len(options) > 0 {
		if len(options) < 4 {
			return false
		}
		code, size := binary.BigEndian.Uint16(options), int(binary.BigEndian.Uint16(options[2:]))
		if len(options)-4 < size {
			return false
		}
		if !o.readOption(code, options[4:4+size:4+size]) {
			return false
		}
		options = options[4+size:]
	}
	return true
}

// readOption reads an option; of several of a kind the first counts.
func (o *OPT) readOption(code uint16, data []byte) (ok bool) {
	switch code {
	case optionNSID:
		o.NSID = true
	case optionCookie:
		server := len(data) - ClientCookieSize
		if server != 0 && (server < minServerCookie || server > maxServerCookie) {
			return false
		}
		if o.Cookie == nil {
			o.Cookie = data
		}
	case optionSubnet:
		subnet, ok := readSubnet(data)
		if !ok {
			return false
		}
		if !o.Subnet.Sent {
			o.Subnet = subnet
		}
	}
	return true
}

// readSubnet reads a client's subnet, which is refused where RFC 7871, 6 and 7.1.2, say
// so: of an unknown family, with a scope, or with more or other bits than the prefix has.
func readSubnet(data []byte) (s Subnet, ok bool) {
	if len(data) < 4 || data[3] != 0 {
		return s, false
	}
	s = Subnet{Sent: true, Family: binary.BigEndian.Uint16(data), Prefix: data[2]}
	address := data[4:]
	if len(address) != (int(s.Prefix)+7)/8 {
		return s, false
	}
	var room [16]byte
	switch {
	case s.Family == 0:
		return s, s.Prefix == 0
	case s.Family == 1 && s.Prefix <= 32:
		copy(room[:4], address)
		s.Address = netip.AddrFrom4([4]byte(room[:4]))
	case s.Family == 2 && s.Prefix <= 128:
		copy(room[:], address)
		s.Address = netip.AddrFrom16(room)
	default:
		return s, false
	}
	if rest := s.Prefix % 8; rest != 0 && address[len(address)-1]&(0xff>>rest) != 0 {
		return s, false
	}
	return s, true
}
