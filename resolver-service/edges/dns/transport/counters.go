package transport

import (
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// Counters are what a listener has done since it was opened.
type Counters struct {
	Traffic [3]Traffic // by [Protocol]

	Open     int64  // connections open now
	Accepted uint64 // connections, ever
	Evicted  uint64 // connections closed to make room for others
	Refused  uint64 // connections closed at once, for want of room
}

// Traffic counts messages of one protocol.
type Traffic struct {
	Queries   uint64 // that came
	Responses uint64 // that were sent
	Dropped   uint64 // queries that got no response: not DNS, or it could not be sent
	Limited   uint64 // responses over the rate limit; of these
	Slipped   uint64 // … were sent truncated rather than not at all
	Truncated uint64 // responses sent with TC=1, those slipped included
	Waited    uint64 // queries that had to be waited for
	Overload  uint64 // queries answered with SERVFAIL, since too many were being waited for
}

func (t *Traffic) add(o *tally) {
	t.Queries += o.queries.Load()
	t.Responses += o.responses.Load()
	t.Dropped += o.dropped.Load()
	t.Limited += o.limited.Load()
	t.Slipped += o.slipped.Load()
	t.Truncated += o.truncated.Load()
	t.Waited += o.waited.Load()
	t.Overload += o.overload.Load()
}

// tally is Traffic as it is counted. Each socket for UDP has one of its own, in cache
// lines of its own. Connections have some by turns, so that those that run at once seldom share one.
type tally struct {
	queries, responses, dropped, limited, slipped, truncated, waited, overload atomic.Uint64

	_ [64]byte
}

// counts are a listener's.
type counts struct {
	udp      []tally   // one for each socket
	tcp      [64]tally // or TLS
	open     atomic.Int64
	accepted atomic.Uint64
	evicted  atomic.Uint64
	refused  atomic.Uint64
}

func newCounts(sockets int) *counts { return &counts{udp: make([]tally, sockets)} }

// Counters reads the counters.
func (l *Listener) Counters() Counters {
	c := Counters{
		Open:     l.counts.open.Load(),
		Accepted: l.counts.accepted.Load(),
		Evicted:  l.counts.evicted.Load(),
		Refused:  l.counts.refused.Load(),
	}
	for i := range l.counts.udp {
		c.Traffic[UDP].add(&l.counts.udp[i])
	}
	for i := range l.counts.tcp {
		c.Traffic[l.stream()].add(&l.counts.tcp[i])
	}
	return c
}

// stream is the protocol of the listener's connections.
func (l *Listener) stream() Protocol {
	if l.cfg.TLS != nil {
		return TLS
	}
	return TCP
}

// sent counts a response that was sent.
func (t *tally) sent(m []byte) {
	t.responses.Add(1)
	if flagsOf(m)&wire.FlagTC != 0 {
		t.truncated.Add(1)
	}
}
