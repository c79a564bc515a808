package forward

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// errMisfit is what an upstream said that answers nothing.
var errMisfit = errors.New("no answer to what was asked")

// mostMisfits are the packets over UDP that don't fit, after which we ask by TCP: somebody may
// be guessing ids (RFC 5452, 9.3).
const mostMisfits = 16

var packets = sync.Pool{New: func() any { return new([4096]byte) }}

// exchange asks one upstream, until ctx ends: over UDP from a port of its own with an id of
// its own, and over TCP where the answer does not fit, or many come that are none. An upstream
// that does not know EDNS is asked again without.
func (f *Forwarder) exchange(ctx context.Context, u *upstream, section []byte, checked, do bool) (*dns.Msg, error) {
	for _, edns := range []bool{true, false} {
		query := f.query(u, section, checked, do, edns)
		m, err := overUDP(ctx, u, query, section)
		if err == nil && m.Truncated || errors.Is(err, errMisfit) {
			m, err = overTCP(ctx, u, query, section)
		}
		if err != nil || m.Rcode != dns.RcodeFormatError && m.Rcode != dns.RcodeNotImplemented || m.IsEdns0() != nil {
			return m, err
		}
		if !edns {
			return m, nil
		}
	}
	return nil, errMisfit
}

// query packs what goes out: recursion desired, AD understood (RFC 6840, 5.7), none of the
// client's options.
func (f *Forwarder) query(u *upstream, section []byte, checked, do, edns bool) []byte {
	m := make([]byte, wire.HeaderSize, wire.HeaderSize+len(section)+optSize+4+markerSize+1)
	rand.Read(m[:2])
	flags := uint16(wire.FlagRD | wire.FlagAD)
	if checked {
		flags |= wire.FlagCD
	}
	binary.BigEndian.PutUint16(m[2:], flags)
	m[5] = 1
	m = append(m, section...)
	if edns {
		m[11] = 1
		m = (&question{do: do}).appendOPT(m, f.mark(u))
	}
	return m
}

func dial(ctx context.Context, network string, u *upstream) (net.Conn, func(), error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, u.address.String())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() { stop(); conn.Close() }, nil
}

// overUDP reads until an answer comes. The socket is connected, so the kernel lets through
// only what has the upstream's address and port.
func overUDP(ctx context.Context, u *upstream, query, section []byte) (*dns.Msg, error) {
	conn, end, err := dial(ctx, "udp", u)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buffer := packets.Get().(*[4096]byte)
	defer packets.Put(buffer)
	for misfits := 0; misfits < mostMisfits; misfits++ {
		n, err := conn.Read(buffer[:])
		if err != nil {
			return nil, err
		}
		if m := read(buffer[:n], query, section); m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w in %d packets", errMisfit, mostMisfits)
}

// overTCP asks over a connection of its own.
func overTCP(ctx context.Context, u *upstream, query, section []byte) (*dns.Msg, error) {
	conn, end, err := dial(ctx, "tcp", u)
	if err != nil {
		return nil, err
	}
	defer end()
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(query)), uint16(len(query)))
	if _, err := conn.Write(append(framed, query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	response := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, response); err != nil {
		return nil, err
	}
	if m := read(response, query, section); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w over TCP", errMisfit)
}

// read unpacks what answers a query: it has the query's id and its question. One that refuses
// the format may have none (RFC 1035, 4.1.1). Nil is what does not fit. A message that was cut
// needs to be no more than its beginning.
func read(response, query, section []byte) *dns.Msg {
	if len(response) < wire.HeaderSize || response[0] != query[0] || response[1] != query[1] {
		return nil
	}
	flags := binary.BigEndian.Uint16(response[2:])
	if flags&wire.FlagQR == 0 || flags&wire.OpcodeBits != 0 {
		return nil
	}
	m := new(dns.Msg)
	if binary.BigEndian.Uint16(response[4:]) == 0 && flags&wire.RCodeBits == formerr && len(response) == wire.HeaderSize {
		m.Rcode = formerr
		return m
	}
	end := wire.HeaderSize + len(section)
	if binary.BigEndian.Uint16(response[4:]) != 1 || len(response) < end || !sameQuestion(response[wire.HeaderSize:end], section) {
		return nil
	}
	if err := m.Unpack(response); err != nil {
		if flags&wire.FlagTC == 0 {
			return nil
		}
		return &dns.Msg{MsgHdr: dns.MsgHdr{Truncated: true}}
	}
	return m
}
