package topology

import (
	"net/netip"
	"slices"
)

// addresses knows which app each instance's address belongs to, over all sources: the
// one whose instance came up at it last. Other apps that a source still has there are
// shadowed: the address is not theirs until that instance is gone.
type addresses struct {
	hosts
	contested map[netip.AddrPort][]claimant // the claims of several apps, the newest last
	// taken has who is served with an address that a change has taken away from it: until
	// that is published, nobody else may be.
	taken map[netip.AddrPort]*node
}

func newAddresses() addresses {
	return addresses{
		hosts:     newHosts(),
		contested: map[netip.AddrPort][]claimant{}, taken: map[netip.AddrPort]*node{},
	}
}

// owns tells whether an address that an app has is not another's by now.
func (as *addresses) owns(n *node, a netip.AddrPort) bool {
	return len(as.contested) == 0 || as.owner(a) == n
}

// claimant is an instance that a source names at an address.
type claimant struct {
	*node
	source, id string
}

// claim notes that an instance has come up at an address, and returns the app that loses
// it by that.
func (as *addresses) claim(c claimant, a netip.AddrPort) (loser *node) {
	owner, contested := as.owner(a), as.contested[a]
	switch {
	case contested != nil:
		as.contested[a] = append(contested, c)
	case owner != nil && owner != c.node:
		as.contested[a] = append(owner.claims(a), c)
	}
	if owner == c.node {
		return nil
	}
	as.set(a, c.node)
	if owner != nil {
		as.lose(owner, a)
	}
	return owner
}

// release notes that an instance is at an address no longer, and returns the app that
// has the address by that.
func (as *addresses) release(c claimant, a netip.AddrPort) (heir *node) {
	contested := as.contested[a]
	if contested == nil {
		if !c.has(a) {
			as.lose(c.node, a)
			as.remove(a)
		}
		return nil
	}
	contested = slices.DeleteFunc(contested, func(other claimant) bool { return other == c })
	heir = contested[len(contested)-1].node
	if slices.ContainsFunc(contested, func(other claimant) bool { return other.node != heir }) {
		as.contested[a] = contested
	} else {
		delete(as.contested, a)
	}
	owner := as.owner(a)
	if heir == owner {
		return nil
	}
	as.lose(owner, a)
	as.set(a, heir)
	return heir
}

// lose notes that an app must be seen without an address before another has it.
func (as *addresses) lose(n *node, a netip.AddrPort) {
	if _, served := slices.BinarySearch(n.ready, a.String()); served && as.taken[a] == nil {
		as.taken[a] = n
	}
}

// has tells whether any source knows the app at an address.
func (n *node) has(a netip.AddrPort) bool {
	return slices.ContainsFunc(n.instances, func(i instance) bool { return i.address == a })
}

// claims are those of the app's instances at an address.
func (n *node) claims(a netip.AddrPort) (claims []claimant) {
	for _, i := range n.instances {
		if i.address == a {
			claims = append(claims, claimant{n, i.source, i.id})
		}
	}
	return claims
}
