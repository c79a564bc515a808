package network

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Network joins places. It is safe for use by many goroutines.
type Network struct {
	done    chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex
	rules     []rule // the latest first
	random    *rand.Rand
	places    []*Place
	byAddress map[netip.Addr]*Place
	counts    Counts
	watch     func(source, target netip.Addr, packet []byte)
}

// Conditions are how packets fare on their way, in one direction. The zero value is a link
// on which all is well.
type Conditions struct {
	Delay time.Duration // added to each packet
	Loss  float64       // the share that is lost by chance, from 0 to 1
	Drop  bool          // all vanish; the sender is told nothing
	MTU   int           // longer ones vanish, and the sender is told nothing; 0: none are too long
}

// rule is the conditions from addresses to addresses.
type rule struct {
	from, to netip.Prefix
	Conditions
}

// Counts are packets since the network was made.
type Counts struct {
	Sent    int // by places
	Lost    int // by chance
	Dropped int // by rule
	Overrun int // since too many were under way
	Astray  int // to addresses that no place has, or of no use to anybody
}

// New makes a network without places. What is lost by chance is decided by the seed.
func New(seed uint64) *Network {
	return &Network{
		done: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 0)), byAddress: map[netip.Addr]*Place{},
	}
}

// Place adds a place with addresses, all in one network of 16 bits. Connections that leave
// it come from the first. It needs the right to make a network namespace, as root has.
func (n *Network) Place(addresses ...netip.Addr) (*Place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		if n.byAddress[a] != nil || !a.Is4() {
			return nil, fmt.Errorf("place at %s: want IPv4 addresses that no other place has", a)
		}
	}
	p, err := newPlace(addresses)
	if err != nil {
		return nil, err
	}
	n.places = append(n.places, p)
	for _, a := range addresses {
		n.byAddress[a] = p
	}
	n.running.Go(func() { n.forward(p) })
	n.running.Go(func() { p.deliver(n.done) })
	return p, nil
}

// Set says how packets fare from some addresses to others. Where several rules hold for a
// packet, the one that was set latest does.
func (n *Network) Set(from, to netip.Prefix, c Conditions) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = slices.DeleteFunc(n.rules, func(r rule) bool { return r.from == from && r.to == to })
	n.rules = slices.Insert(n.rules, 0, rule{from, to, c})
}

// Watch shows a function each packet on its way from one place to another, before it is decided
// what becomes of it. The function must not keep the packet, nor block.
func (n *Network) Watch(see func(source, target netip.Addr, packet []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watch = see
}

// Heal takes every rule back. Packets that were delayed still are.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = nil
}

// Counts are the packets so far.
func (n *Network) Counts() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts
}

// Close cuts every place off, and lets go of it. What runs there goes on without a network.
func (n *Network) Close() error {
	close(n.done)
	n.mu.Lock()
	var errs []error
	for _, p := range n.places {
		errs = append(errs, p.close())
	}
	n.mu.Unlock()
	n.running.Wait()
	return errors.Join(errs...)
}

// forward reads what leaves a place until the network is closed.
func (n *Network) forward(from *Place) {
	for {
		buffer := make([]byte, maxPacket)
		size, err := from.device.Read(buffer)
		if err != nil {
			return // the device was closed
		}
		n.route(buffer[:size])
	}
}

// route decides what becomes of a packet.
func (n *Network) route(p []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	source, target, ok := ends(p)
	to := n.byAddress[target]
	n.counts.Sent++
	if !ok || to == nil {
		n.counts.Astray++
		return
	}
	if n.watch != nil {
		n.watch(source, target, p)
	}
	c := n.conditions(source, target)
	switch {
	case c.Drop, c.MTU > 0 && len(p) > c.MTU:
		n.counts.Dropped++
	case c.Loss > 0 && n.random.Float64() < c.Loss:
		n.counts.Lost++
	case !to.queue.put(packet{p, time.Now().Add(c.Delay)}):
		n.counts.Overrun++
	}
}

// conditions are those of the latest rule that holds.
func (n *Network) conditions(source, target netip.Addr) Conditions {
	for _, r := range n.rules {
		if r.from.Contains(source) && r.to.Contains(target) {
			return r.Conditions
		}
	}
	return Conditions{}
}

// maxPacket is the longest packet of a device whose MTU nobody has changed, and more.
const maxPacket = 2048

// ends are the addresses that an IPv4 packet goes from and to.
func ends(p []byte) (source, target netip.Addr, ok bool) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return source, target, false // such as IPv6 looking for routers
	}
	return netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), true
}
