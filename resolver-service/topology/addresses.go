package topology

import (
	"net/netip"
	"slices"
)

// addresses knows which app each instance's address belongs to, over all sources: the one
// with the strongest claim, which mostly is the newest. Other apps that a source still has
// there are shadowed: the address is not theirs until that instance is gone.
type addresses struct {
	hosts
	contested map[netip.AddrPort][]claimant // the claims of several apps, the strongest last
	claims    uint64                        // numbers them
	// taken has who is served with an address that a change has reached: until what comes
	// of it is published, nobody else may be.
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

// claim notes that an instance has come to an address, and returns the app that loses it
// by that.
func (as *addresses) claim(c claimant, a netip.AddrPort) (loser *node) {
	owner, contested := as.owner(a), as.contested[a]
	if owner != c.node {
		as.note(owner, a)
	}
	if contested == nil && (owner == nil || owner == c.node) {
		as.set(a, c.node, c.hearsay && c.onlyHearsay(a))
		return nil
	}
	if contested == nil {
		for _, other := range owner.claims(a) {
			contested = as.enter(contested, other)
		}
	}
	loser, _ = as.decide(a, as.enter(contested, c))
	return loser
}

// enter puts a claim in its place among others, as the newest.
func (as *addresses) enter(claims []claimant, c claimant) []claimant {
	as.claims++
	c.number = as.claims
	return inPlace(claims, c)
}

func inPlace(claims []claimant, c claimant) []claimant {
	at, _ := slices.BinarySearchFunc(claims, c, claimant.compare)
	return slices.Insert(claims, at, c)
}

// release notes that an instance is at an address no longer, and returns the app that
// has the address by that.
func (as *addresses) release(c claimant, a netip.AddrPort) (heir *node) {
	as.note(as.owner(a), a)
	contested := as.contested[a]
	if contested != nil {
		_, heir = as.decide(a, slices.Delete(contested, c.among(contested), c.among(contested)+1))
		return heir
	}
	if c.has(a) {
		as.set(a, c.node, c.onlyHearsay(a))
	} else {
		as.remove(a)
	}
	return nil
}

// restate notes that a claim to an address is another than before, and the newest or not.
func (as *addresses) restate(c claimant, a netip.AddrPort, newest bool) (loser, heir *node) {
	contested := as.contested[a]
	if contested == nil {
		as.set(a, c.node, c.onlyHearsay(a))
		return nil, nil
	}
	as.note(as.owner(a), a)
	at := c.among(contested)
	c.number = contested[at].number
	contested = slices.Delete(contested, at, at+1)
	if newest {
		return as.decide(a, as.enter(contested, c))
	}
	return as.decide(a, inPlace(contested, c))
}

// decide gives an address to the strongest of its claims, and returns who loses and who has
// it by that.
func (as *addresses) decide(a netip.AddrPort, claims []claimant) (loser, heir *node) {
	strongest := claims[len(claims)-1]
	if slices.ContainsFunc(claims, func(other claimant) bool { return other.node != strongest.node }) {
		as.contested[a] = claims
	} else {
		delete(as.contested, a)
	}
	owner := as.owner(a)
	as.set(a, strongest.node, strongest.hearsay)
	if owner == strongest.node {
		return nil, nil
	}
	return owner, strongest.node
}

// note notes who is served with an address, before a change that reaches it: that app must
// be seen without it before another has it.
func (as *addresses) note(owner *node, a netip.AddrPort) {
	if owner == nil || as.taken[a] != nil {
		return
	}
	if _, served := slices.BinarySearch(owner.ready, a.String()); served {
		as.taken[a] = owner
	}
}

// withheld tells whether an address must not be an app's yet: another is served with it.
func (as *addresses) withheld(n *node, a netip.AddrPort) bool {
	served := as.taken[a]
	return served != nil && served.app != n.app
}

// has tells whether any source knows the app at an address.
func (n *node) has(a netip.AddrPort) bool {
	return slices.ContainsFunc(n.instances, func(i instance) bool { return i.address == a })
}

// onlyHearsay tells whether nobody but somebody elsewhere knows the app at an address.
func (n *node) onlyHearsay(a netip.AddrPort) bool {
	return !slices.ContainsFunc(n.instances, func(i instance) bool { return i.address == a && !i.hearsay })
}

// claims are those of the app's instances at an address.
func (n *node) claims(a netip.AddrPort) (claims []claimant) {
	for i := range n.instances {
		if n.instances[i].address == a {
			claims = append(claims, n.claimant(&n.instances[i]))
		}
	}
	return claims
}
