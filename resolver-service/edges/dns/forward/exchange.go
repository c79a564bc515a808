package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

var errMisfit = errors.New("no answer to the question")

// maxMisfits is how many such packets we take by UDP before we ask by TCP: an attacker may be
// guessing IDs (RFC 5452, 9.3).
const maxMisfits = 16

// lookup is a question for upstreams. It has none of the client's other options.
type lookup struct {
	question dns.Question
	section  string // the same as bytes, in lower case
	do, cd   bool
}

func newLookup(q *wire.Query, key string) *lookup {
	name, _, _ := dns.UnpackDomainName(q.Name.Wire(), 0) // q is parsed, so its name is one
	return &lookup{
		question: dns.Question{Name: name, Qtype: uint16(q.Type), Qclass: uint16(q.Class)},
		section:  key[:len(key)-1],
		do:       q.DO(), cd: q.Flags()&wire.FlagCD != 0,
	}
}

// exchange asks one upstream until ctx ends. It asks by UDP, from a random port with a random
// ID. It asks by TCP if the answer is truncated, or if many packets come that do not fit. An
// upstream that does not know EDNS gets the question again without it.
func (l *lookup) exchange(ctx context.Context, upstream netip.AddrPort) (m *dns.Msg, err error) {
	for _, edns := range []bool{true, false} {
		query := &dns.Msg{Question: []dns.Question{l.question}}
		query.Id, query.RecursionDesired, query.CheckingDisabled = dns.Id(), true, l.cd
		query.AuthenticatedData = true // we understand AD (RFC 6840, 5.7)
		if edns {
			query.SetEdns0(wire.MaxPayload, l.do)
		}
		m, err = over(ctx, "udp", upstream, query)
		if err == nil && m.Truncated || errors.Is(err, errMisfit) {
			m, err = over(ctx, "tcp", upstream, query)
		}
		if err != nil || m.Rcode != dns.RcodeFormatError && m.Rcode != dns.RcodeNotImplemented || m.IsEdns0() != nil {
			return m, err
		}
	}
	return m, err
}

// over asks by one protocol, on a connection of its own. The UDP socket is connected, so the
// kernel drops packets from any other address or port.
func over(ctx context.Context, network string, upstream netip.AddrPort, query *dns.Msg) (*dns.Msg, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, upstream.String())
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := &dns.Conn{Conn: raw}
	if err := conn.WriteMsg(query); err != nil {
		return nil, err
	}
	buffer := make([]byte, 4096)
	if network == "tcp" {
		buffer = make([]byte, dns.MaxMsgSize)
	}
	for range maxMisfits {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		if m := read(buffer[:n], query); m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w in %d packets by %s", errMisfit, maxMisfits, network)
}

// read unpacks a response with the query's ID and question; nil for any other packet. A server
// that refuses the format may leave the question out (RFC 1035, 4.1.1). Of a truncated message
// the question is enough.
func read(response []byte, query *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	err := m.Unpack(response)
	if m.Id != query.Id || !m.Response || m.Opcode != dns.OpcodeQuery {
		return nil
	}
	if err == nil && m.Rcode == dns.RcodeFormatError && len(response) == wire.HeaderSize {
		return m
	}
	if len(m.Question) != 1 || err != nil && !m.Truncated {
		return nil
	}
	got, asked := m.Question[0], query.Question[0]
	if got.Qtype != asked.Qtype || got.Qclass != asked.Qclass || !strings.EqualFold(got.Name, asked.Name) {
		return nil
	}
	return m
}
