package gateway

import (
	"cmp"
	"net/netip"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// admitted is one accepted connection, and everything that it is counted by until it ends.
// It has one owner at a time: the loop or goroutine that serves the connection.
//
// It is the owner of its pair in the relay; see relay.Owner.
type admitted struct {
	serving  *serving
	from     netip.AddrPort
	place    place
	over     reason         // the bound that leaves it a place in the reserve only
	plain    bool           // HTTP/2 without TLS
	key      uint64         // of its ClientHello, among those in flight; 0 for none
	instance string         // among the loads; "" for none
	app      catalog.App    // of this cluster; zero until an instance is chosen
	traffic  *exportTraffic // nil until an instance of an app is chosen
	left     bool           // it counts no more; guarded by shares.mu
}

// place says what a connection is counted against.
type place int

const (
	amongApps  place = iota // Config.MaxConnections and its source's share
	inReserve               // the reserve, until it names the resolver service or is refused
	amongPeers              // the bounds of peers
)

// DefaultMaxPeers is how many connections to the resolver service there may be. Each replica of a
// peer keeps one for each gateway, and has a second for a moment when it reconnects.
const DefaultMaxPeers = 1024

// The bounds that go with DefaultMaxPeers, and are smaller with fewer. The reserve is for
// connections beyond the bounds of apps, which may still ask for the resolver service. A good one
// leaves it after a round trip. Farewells are refused clients that are told; more are reset.
const (
	maxPeersPerSource = 64
	reserved          = 64
	reservedPerSource = 8
	maxFarewells      = 512
)

// withPeers is a bound in the proportion that peers have of DefaultMaxPeers, and least at least.
func withPeers(bound, peers, least int) int {
	return min(bound, max(bound*peers/DefaultMaxPeers, least))
}

func reserveOf(peers int) int   { return withPeers(reserved, peers, reservedPerSource) }
func farewellsOf(peers int) int { return withPeers(maxFarewells, peers, reservedPerSource) }

// Descriptors is how many descriptors a gateway with listeners takes beside those of
// MaxConnections.
func Descriptors(peers, listeners int) int {
	return peers + listeners*(reserveOf(peers)+farewellsOf(peers))
}

// source is an address that connections come from: an IPv4 address, or the /64 of an IPv6
// one, all of which a single host may have.
type source uint64

func sourceOf(from netip.Addr) source {
	from = from.Unmap()
	var bits uint64
	if from.Is4() {
		for _, b := range from.As4() {
			bits = bits<<8 | uint64(b)
		}
		return source(bits)
	}
	all := from.As16()
	for _, b := range all[:8] {
		bits = bits<<8 | uint64(b)
	}
	return source(bits)
}

// network is the /24 of an IPv4 source, the /48 of an IPv6 one.
func (s source) network() source {
	if s>>32 == 0 {
		return s &^ 0xff
	}
	return s &^ 0xffff
}

// shares bounds the connections that are open, in all and for each source. A network may
// have half as many again as one of its sources: so a source leaves something to its
// neighbours, and a network to other networks.
type shares struct {
	max, perSource           int
	maxPeers, peersPerSource int

	mu       sync.Mutex
	apps     int
	sources  map[source]int
	networks map[source]int
	peers    int
	peersOf  map[source]int
}

func newShares(c *Config) *shares {
	return &shares{max: c.MaxConnections, perSource: c.MaxPerSource, maxPeers: c.MaxPeers, peersPerSource: withPeers(maxPeersPerSource, c.MaxPeers, 8), sources: map[source]int{}, networks: map[source]int{}, peersOf: map[source]int{}}
}

// admit counts a connection among those of apps, or tells which bound is reached.
func (s *shares) admit(a *admitted) (over reason) {
	from := sourceOf(a.from.Addr())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.apps >= s.max:
		return tooMany
	case s.sources[from] >= s.perSource || s.networks[from.network()] >= s.perSource+s.perSource/2:
		return sourceShare
	}
	s.apps++
	s.sources[from]++
	s.networks[from.network()]++
	return ""
}

// mayTunnel tells whether a connection may go by a tunnel. For the other end all of a tunnel is from
// one source, so one source here may fill half of that.
func (s *shares) mayTunnel(a *admitted) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sources[sourceOf(a.from.Addr())] <= max(s.perSource/2, 1)
}

// toPeers counts a connection among those of peers instead, unless they have too many.
func (s *shares) toPeers(a *admitted) bool {
	from := sourceOf(a.from.Addr())
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.left || s.peers >= s.maxPeers || s.peersOf[from] >= s.peersPerSource {
		return false
	}
	s.drop(a)
	a.place = amongPeers
	s.peers++
	s.peersOf[from]++
	return true
}

// fullOfPeers tells whether a connection's source may have one more, and there is no room.
func (s *shares) fullOfPeers(a *admitted) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !a.left && s.peers >= s.maxPeers && s.peersOf[sourceOf(a.from.Addr())] < s.peersPerSource
}

// remove counts a connection out.
func (s *shares) remove(a *admitted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(a)
}

// leave counts a connection out before it has ended: it is refused, or gave way to another.
// Its owner may be another goroutine.
func (s *shares) leave(a *admitted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(a)
	a.left = true
}

func (s *shares) drop(a *admitted) {
	if a.left {
		return
	}
	from := sourceOf(a.from.Addr())
	switch a.place {
	case amongApps:
		s.apps--
		countOut(s.sources, from)
		countOut(s.networks, from.network())
	case amongPeers:
		s.peers--
		countOut(s.peersOf, from)
	}
}

// countOut takes one from a count, which takes no room when it is nothing.
func countOut[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// shareOf is what one source may have of a bound, in the proportion that it may have of
// all connections.
func (c *Config) shareOf(bound int) int {
	return cmp.Or(min(bound, int(int64(bound)*int64(c.MaxPerSource)/int64(c.MaxConnections))), 1)
}
