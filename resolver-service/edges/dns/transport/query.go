// Package transport carries DNS queries and responses: UDP in batches, TCP with pipelining, and
// TLS. It knows the parts of a message that rate limiting needs, and no more.
package transport

import (
	"context"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Protocol is how a query came.
type Protocol uint8

// The protocols.
const (
	UDP Protocol = iota
	TCP          // RFC 7766
	TLS          // RFC 7858
)

// Query is one query as it came. It belongs to the transport, and a handler keeps nothing
// of it.
type Query struct {
	Packet   []byte         // the message, without the length that TCP puts first
	From     netip.AddrPort // who sent it; an IPv4 address is never one mapped into IPv6
	To       netip.Addr     // the address of this machine that it was sent to
	As       catalog.App    // whom the listener is bound to; zero if to nobody
	Protocol Protocol

	// Standing is for the handler to set: responses are limited by it.
	Standing Standing
}

// Standing is how well the sender of a query is known. Anybody can write the address of an
// instance or a forwarder into a packet, so these have a limit, too.
type Standing uint8

// The standings, each of which counts for more than the one before.
const (
	Stranger  Standing = iota
	Instance           // the address is that of an instance
	Forwarder          // the address is that of a listed forwarder
	Proved             // the sender has shown that it gets what is sent to its address
)

// Handler answers queries. Any number of goroutines call it, each with a Query and a
// buffer of its own.
type Handler interface {
	// Answer appends the response to out, which is empty and has room for 65,535 bytes,
	// and returns it: nothing where none is due. It never blocks and, for what is asked
	// all the time, allocates nothing. later is set where the response has to be waited
	// for; then a goroutine of its own calls Wait, with a copy of the query.
	Answer(q *Query, out []byte) (response []byte, later bool)

	// Wait is Answer for what has to be waited for. It returns at the latest when ctx
	// ends.
	Wait(ctx context.Context, q *Query, out []byte) []byte
}
