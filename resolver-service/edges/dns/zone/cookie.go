package zone

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/dchest/siphash"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// cookies make and check server cookies, as RFC 9018 has them so that servers behind
// one address understand each other's.
type cookies struct{ k0, k1 uint64 }

func (c *cookies) setSecret(secret [16]byte) {
	c.k0, c.k1 = binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])
}

// A server cookie is a version, three reserved bytes, a time in seconds, and a hash.
const (
	cookieVersion  = 1
	fullCookieSize = wire.ClientCookieSize + wire.ServerCookieSize
)

// How old and how far ahead a cookie's time may be, and until when it is not made anew
// (RFC 9018, 4.3).
const (
	maxCookieAge   = int32(time.Hour / time.Second)
	maxCookieAhead = int32(5 * time.Minute / time.Second)
	freshCookie    = int32(30 * time.Minute / time.Second)
)

// answer makes the cookie that a client is to be sent, and tells whether the one that it
// sent was ours.
func (c *cookies) answer(sent []byte, client netip.Addr, now time.Time) (cookie [fullCookieSize]byte, valid bool) {
	stamp := uint32(now.Unix())
	if len(sent) == fullCookieSize && sent[8] == cookieVersion {
		copy(cookie[:], sent)
		age := int32(stamp - binary.BigEndian.Uint32(sent[12:]))
		valid = age <= maxCookieAge && age >= -maxCookieAhead && c.hash(&cookie, client) == binary.LittleEndian.Uint64(sent[16:])
		if valid && age < freshCookie {
			return cookie, true
		}
	}
	copy(cookie[:wire.ClientCookieSize], sent)
	binary.BigEndian.PutUint32(cookie[8:], cookieVersion<<24)
	binary.BigEndian.PutUint32(cookie[12:], stamp)
	binary.LittleEndian.PutUint64(cookie[16:], c.hash(&cookie, client))
	return cookie, valid
}

// hash is that of a cookie up to its own hash, and of the client's address.
func (c *cookies) hash(cookie *[fullCookieSize]byte, client netip.Addr) uint64 {
	var room [16 + 16]byte
	data := append(room[:0], cookie[:16]...)
	if client.Is4() {
		four := client.As4()
		data = append(data, four[:]...)
	} else {
		sixteen := client.As16()
		data = append(data, sixteen[:]...)
	}
	return siphash.Hash(c.k0, c.k1, data)
}
