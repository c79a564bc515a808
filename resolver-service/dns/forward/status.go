package forward

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

type counters struct {
	queries, hits, stale, misses, joined, failures, crowded, loops atomic.Uint64
}

// Counters are what a forwarder has done since it was made, and what it holds.
type Counters struct {
	Queries  uint64 // in all
	Hits     uint64 // answered from the cache
	Stale    uint64 // answered with what had ended, for want of upstreams
	Misses   uint64 // that were asked upstream
	Joined   uint64 // that waited for one that was the same
	Failures uint64 // answered with SERVFAIL
	Crowded  uint64 // of them because too many were under way
	Loops    uint64 // queries of ours that came back

	Entries int // answers kept
	Bytes   int // and what they weigh
	Flights int // questions under way
}

// Counters tells them.
func (f *Forwarder) Counters() Counters {
	c := Counters{
		Queries: f.counts.queries.Load(), Hits: f.counts.hits.Load(), Stale: f.counts.stale.Load(),
		Misses: f.counts.misses.Load(), Joined: f.counts.joined.Load(), Failures: f.counts.failures.Load(),
		Crowded: f.counts.crowded.Load(), Loops: f.counts.loops.Load(), Flights: f.flights.count(),
	}
	c.Entries, c.Bytes = f.cache.load()
	return c
}

// Status is how an upstream is.
type Status struct {
	Address netip.AddrPort
	Up      bool
	Loops   bool      // it sends our own queries back to us
	Since   time.Time // since when it is not up
	Err     error     // why not
}

// errLoop says what to do about an upstream that sends queries back.
type errLoop struct{ upstream netip.AddrPort }

func (e errLoop) Error() string {
	return "upstream " + e.upstream.String() + " forwards to this server what this server forwards to it; take one out of the other's list"
}

// Status tells how each upstream is, in the order of the configuration.
func (f *Forwarder) Status() []Status {
	all := make([]Status, len(f.upstreams))
	for i, u := range f.upstreams {
		u.mu.Lock()
		all[i] = Status{Address: u.address, Up: !u.down && !u.loops, Loops: u.loops}
		if !all[i].Up {
			all[i].Since, all[i].Err = u.since, u.last
		}
		if u.loops {
			all[i].Err = errLoop{u.address}
		}
		u.mu.Unlock()
	}
	return all
}

// isLocal tells whether an address is one of this machine's.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, own := range addresses {
		if prefix, err := netip.ParsePrefix(own.String()); err == nil && prefix.Addr().Unmap() == a {
			return true
		}
	}
	return false
}
