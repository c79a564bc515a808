package transport

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// RateLimit bounds how many like responses a network of clients, a /24 or a /56, gets by
// UDP, so that nobody is flooded by us under a forged address. Alike are: all answers about
// one name, all names of one zone that are not there or have no data, and all errors. Since
// there may be no end of names, all responses to a network together are limited too, to
// allTogether times as many. Addresses that are known, and not proved, have limits of their
// own. Zero is no limit.
type RateLimit struct {
	Responses int // a second, 1 to 1,000,000; so many may also come at once
	// Slip is which of the responses over the limit are sent truncated instead of not at
	// all: one in so many, so that a real client comes by TCP. 0: none.
	Slip int
}

const (
	// allTogether is how many kinds of responses a network may get at the full rate.
	allTogether = 10
	// ofInstance and ofForwarder are how many times as many responses an address of that
	// standing gets, of all kinds.
	ofInstance  = 100
	ofForwarder = 1000
)

// verdict is what is done with a response.
type verdict uint8

const (
	pass verdict = iota
	slip
	drop
)

// limiter counts responses. Its memory is fixed; where more networks and names come than
// there is room for, those that are furthest from the limit are forgotten first. It takes
// no lock.
//
// An entry holds when a client would be out of debt if each response cost it a fixed
// time: 24 bits that tell keys apart, and that moment in 40 bits of microseconds.
type limiter struct {
	seed     maphash.Seed
	sets     []limiterSet
	start    time.Time
	interval uint64 // what a response costs, µs
	together uint64 // what it costs of what a network gets in all, µs
	// What it costs of what one address gets in all, µs.
	instance, forwarder uint64
	burst               uint64 // how much debt there may be, µs
	slip                uint32
}

// limiterSet is where the entries are that a key may have: a cache line.
type limiterSet [8]atomic.Uint64

const (
	limiterSets = 1 << 14 // 1 MiB, 131,072 entries
	momentBits  = 40
	momentMask  = 1<<momentBits - 1
	second      = uint64(time.Second / time.Microsecond)
)

func newLimiter(l RateLimit) *limiter {
	if l.Responses <= 0 {
		return nil
	}
	return &limiter{
		seed:     maphash.MakeSeed(),
		sets:     make([]limiterSet, limiterSets),
		start:    time.Now(),
		interval: max(second/uint64(l.Responses), 1),
		together: max(second/uint64(l.Responses)/allTogether, 1),
		instance: max(second/uint64(l.Responses)/ofInstance, 1), forwarder: max(second/uint64(l.Responses)/ofForwarder, 1),
		burst: second,
		slip:  uint32(max(l.Slip, 0)),
	}
}

// verdict counts the response to a query and says what is done with it.
func (l *limiter) verdict(q *Query, response []byte, now time.Time) verdict {
	switch q.Standing {
	case Stranger:
		return l.judge(q.From.Addr(), response, now)
	case Instance:
		return l.judgeKnown(q.From.Addr(), l.instance, now)
	case Forwarder:
		return l.judgeKnown(q.From.Addr(), l.forwarder, now)
	}
	return pass
}

// judgeKnown counts a response to an address that is known, at a cost.
func (l *limiter) judgeKnown(from netip.Addr, cost uint64, now time.Time) verdict {
	if l.take(l.hashAddress(from), uint64(now.Sub(l.start)/time.Microsecond), cost) {
		return pass
	}
	return l.refused()
}

// judge counts a response to a stranger and says what is done with it.
func (l *limiter) judge(from netip.Addr, response []byte, now time.Time) verdict {
	moment := uint64(now.Sub(l.start) / time.Microsecond)
	if l.take(l.hash(from, response), moment, l.interval) && l.take(l.hashAll(from), moment, l.together) {
		return pass
	}
	return l.refused()
}

func (l *limiter) refused() verdict {
	if l.slip > 0 && rand.Uint32N(l.slip) == 0 {
		return slip
	}
	return drop
}

// take lets a response of a key pass at a cost, or tells that it is one too many. now and
// cost are in µs.
func (l *limiter) take(hash, now, cost uint64) bool {
	tag := hash>>momentBits<<momentBits | 1<<63 // 0 is no entry
	set := &l.sets[hash%limiterSets]
	for range 16 {
		entry, was := set.find(tag, now, l.burst)
		debt := uint64(0)
		if was&^momentMask == tag {
			debt = debtAt(was, now, l.burst)
		}
		if debt+cost > l.burst {
			return false
		}
		if entry.CompareAndSwap(was, tag|(now+debt+cost)&momentMask) {
			return true
		}
	}
	return false // many do this at once, so it is the same key
}

// find returns the entry of a key, or the one that is given to it: that with the least debt.
func (s *limiterSet) find(tag, now, burst uint64) (entry *atomic.Uint64, was uint64) {
	least := ^uint64(0)
	for i := range s {
		v := s[i].Load()
		if v&^momentMask == tag {
			return &s[i], v
		}
		if debt := debtAt(v, now, burst); debt < least {
			least, entry, was = debt, &s[i], v
		}
	}
	return entry, was
}

// debtAt is the debt of an entry. A moment that is further ahead than debts can be has
// passed: the clock of 40 bits went round.
func debtAt(entry, now, burst uint64) uint64 {
	if ahead := (entry - now) & momentMask; ahead <= burst && entry != 0 {
		return ahead
	}
	return 0
}

// What responses are alike in.
const (
	ofName = iota
	ofMissing
	ofError
	ofAll
	ofAddress
)

// hash is that of what a response counts as.
func (l *limiter) hash(from netip.Addr, m []byte) uint64 {
	var room [1 + 8 + 256]byte
	key := appendNetwork(room[:0], from)
	code, soa := flagsOf(m)&wire.RCodeBits, authority(m)
	switch {
	case code == 0 && soa == 0:
		key = appendName(append(key, ofName), m, wire.HeaderSize)
	case code == 0, code == uint16(wire.NXDomain) && soa > 0:
		key = appendName(append(key, ofMissing), m, soa)
	case code == uint16(wire.NXDomain):
		key = append(key, ofMissing)
	default:
		key = append(key, ofError)
	}
	return maphash.Bytes(l.seed, key)
}

// hashAll is that of all responses to a network.
func (l *limiter) hashAll(from netip.Addr) uint64 {
	var room [1 + 8 + 1]byte
	return maphash.Bytes(l.seed, append(appendNetwork(room[:0], from), ofAll))
}

// hashAddress is that of all responses to an address.
func (l *limiter) hashAddress(from netip.Addr) uint64 {
	var room [16 + 1]byte
	whole := from.As16()
	return maphash.Bytes(l.seed, append(append(room[:0], whole[:]...), ofAddress))
}

// appendNetwork appends the network of an address: its /24 by IPv4, its /56 by IPv6.
func appendNetwork(key []byte, a netip.Addr) []byte {
	if a = a.Unmap(); a.Is4() {
		four := a.As4()
		return append(append(key, 4), four[:3]...)
	}
	six := a.As16()
	return append(append(key, 6), six[:7]...)
}

// authority is where the first record of the authority section begins, of a response
// without answers; 0 where there is none.
func authority(m []byte) int {
	end, ok := wire.QuestionEnd(m)
	if !ok || binary.BigEndian.Uint16(m[6:]) != 0 || binary.BigEndian.Uint16(m[8:]) == 0 {
		return 0
	}
	return end
}
