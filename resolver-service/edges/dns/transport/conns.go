package transport

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// conns are the connections open now. There is room for so many, and a client address has at most its
// share of it. A query writes nothing here, only the time of its own connection: cores would compete.
type conns struct {
	max, share int
	counts     *counts
	began      time.Time

	mu       sync.Mutex
	all      map[*conn]struct{}
	byClient map[netip.Addr]int
}

// leastShare is how many connections a client may have however few there are in all.
const leastShare = 2

func newConns(most int, counts *counts) *conns {
	share := min(max(most/10, leastShare), most)
	return &conns{max: most, share: share, counts: counts, began: time.Now(), all: make(map[*conn]struct{}), byClient: make(map[netip.Addr]int)}
}

// client is what a sender counts as: its address, or the /64 that a host has by IPv6.
func client(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil { // no address
		return a
	}
	return p.Addr()
}

// add takes a connection in. Where there is no room, the one that was idle the longest
// gives way: of the same client if that has its share, or of all. It returns false where
// none is idle.
func (cs *conns) add(c *conn) bool {
	cs.counts.accepted.Add(1)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case cs.byClient[c.client] >= cs.share:
		if !cs.evict(func(other *conn) bool { return other.client == c.client }) {
			return false
		}
	case len(cs.all) >= cs.max:
		if !cs.evict(func(*conn) bool { return true }) {
			return false
		}
	}
	cs.used(c)
	cs.all[c] = struct{}{}
	cs.byClient[c.client]++
	cs.counts.open.Add(1)
	return true
}

// evict closes the connection that was idle the longest, of those that match and that no
// query is waited for on.
func (cs *conns) evict(match func(*conn) bool) bool {
	var idlest *conn
	for c := range cs.all {
		if c.waiting.Load() == 0 && match(c) && (idlest == nil || c.usedAt.Load() < idlest.usedAt.Load()) {
			idlest = c
		}
	}
	if idlest == nil {
		return false
	}
	cs.drop(idlest)
	cs.counts.evicted.Add(1)
	idlest.raw.Close() // its goroutine notices
	return true
}

// evictAny makes room where descriptors have run out.
func (cs *conns) evictAny() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.evict(func(*conn) bool { return true })
}

// used notes that a connection has brought a query.
func (cs *conns) used(c *conn) { c.usedAt.Store(int64(time.Since(cs.began))) }

// remove takes a connection out, if it was not evicted already.
func (cs *conns) remove(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.drop(c)
}

func (cs *conns) drop(c *conn) {
	if _, open := cs.all[c]; !open {
		return
	}
	delete(cs.all, c)
	if cs.byClient[c.client]--; cs.byClient[c.client] == 0 {
		delete(cs.byClient, c.client)
	}
	cs.counts.open.Add(-1)
}

// idleTimeout is how long a connection may be idle now: less when there is little room.
func (cs *conns) idleTimeout(usual time.Duration) time.Duration {
	if cs.counts.open.Load() >= int64(cs.max*3/4) {
		return usual / 5
	}
	return usual
}

// interrupt interrupts all connections.
func (cs *conns) interrupt() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.all {
		c.interrupt()
	}
}

// addressOf is the address and port of one end of a TCP connection.
func addressOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
