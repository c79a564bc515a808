package topology

import (
	"cmp"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Rank says how well a source knows which app has an address. Each source names its own.
//
// The rule that decides whose address it is has four sentences. A live registration beats a
// listed one. Of two live registrations the later has the address. Of two in lists of one rank the
// ready one has it. A registration for an address that is not its sender's is refused, unless
// instances.delegates allows it by name.
//
// [claim.compare] is the rule. It looks at data alone, which travels with each instance: the
// rank, and [catalog.Instance.Since]. So replicas agree in whatever order they hear of things,
// and a restart changes nothing.
type Rank int8

// The ranks from the weakest to the strongest. Only Live is a live registration; the others are
// lists, and among lists the one that knows better counts.
const (
	unverified Rank = iota - 2 // a delegate registered it: it takes no address from anybody
	Written                    // somebody wrote it down, such as an AppInstance object
	Listed                     // a catalog has it; the rank of a source that names none
	Scheduled                  // the platform that runs the app says so
	Live                       // its sidecar registered, here or with another replica
)

// rankOf is the rank of an instance.
func rankOf(source Rank, i *catalog.Instance) Rank {
	if i.Unverified {
		return unverified
	}
	return source
}

// claim is the strongest word that an app is at an address.
type claim struct {
	*node
	source   string
	rank     Rank
	since    int64
	draining bool
}

// compare is below zero where a claim is weaker than another. Of two registrations the later is
// stronger, ready or not. In a list a ready instance comes before one that drains, and only then
// the newer one: a list may name an instance that ends for a while after another has its address.
// Claims of two apps are never equal: in the end the app comes first whose name does.
func (c claim) compare(o claim) int {
	later, ready := cmp.Compare(c.since, o.since), 0
	switch {
	case c.draining && !o.draining:
		ready = -1
	case o.draining && !c.draining:
		ready = 1
	}
	if c.rank == Live || c.rank == unverified {
		return cmp.Or(cmp.Compare(c.rank, o.rank), later, ready, o.app.Compare(c.app))
	}
	return cmp.Or(cmp.Compare(c.rank, o.rank), ready, later, o.app.Compare(c.app))
}

func (n *node) claim(i *instance) claim {
	return claim{n, i.origin.Value().source, i.rank, i.since, i.draining}
}

// claimTo is the strongest of an app's claims to an address; ok is false where it has none.
func (n *node) claimTo(a netip.AddrPort) (best claim, ok bool) {
	for i := range n.instances {
		if n.instances[i].address() != a {
			continue
		}
		if c := n.claim(&n.instances[i]); !ok || best.compare(c) < 0 {
			best, ok = c, true
		}
	}
	return best, ok
}

// onlyUnverified tells whether no source but a delegate names the app at an address.
func (n *node) onlyUnverified(a netip.AddrPort) bool {
	best, _ := n.claimTo(a)
	return best.rank == unverified
}

// ownership knows the instances of all sources, and which app has each address.
type ownership struct {
	*nodes
	addresses
	sources   map[string]int // instances of each source
	takeovers []takeover     // that nobody was told of yet
	callers   *catalog.Callers
}

func newOwnership(ns *nodes) *ownership {
	return &ownership{nodes: ns, addresses: newAddresses(), sources: map[string]int{}, callers: &catalog.Callers{}}
}

// enter decides whose the address of an instance is that has come to it.
func (o *ownership) enter(n *node, i *instance) {
	loser, heir := o.arrive(n.claim(i), i.address())
	o.changesHands(n, i.address(), loser, heir)
}

// review decides whose an address is after one app's claims to it have changed.
func (o *ownership) review(n *node, a netip.AddrPort) {
	loser, heir := o.decide(n, a)
	o.changesHands(n, a, loser, heir)
}

// changesHands reaches the apps that an address goes from and to. An operator is told if the
// app whose claims have changed takes it from another.
func (o *ownership) changesHands(n *node, a netip.AddrPort, loser, heir *node) {
	o.touch(loser)
	o.touch(heir)
	o.callerChanged(a.Addr())
	if heir == n && len(o.takeovers) < maxTakeovers {
		by, _ := heir.claimTo(a)
		o.takeovers = append(o.takeovers, takeover{a, loser.app, heir.app, by.source})
	}
}

// takeover is an address that has become another app's.
type takeover struct {
	address  netip.AddrPort
	from, to catalog.App
	source   string // that names the other app there
}

// maxTakeovers is how many of them are told of at a time.
const maxTakeovers = 20
