package topology

import (
	"net/netip"
	"slices"
)

// addresses knows which app has each instance's address, over all sources. Other apps with a
// claim there are shadowed: the address is theirs once no stronger claim is left.
type addresses struct {
	hosts
	contested map[netip.AddrPort][]claim // one for each app, where there are several
	// served has the app that callers see at an address which a change has reached. Until the
	// change is published, no other app may be seen there.
	served map[netip.AddrPort]*node
}

func newAddresses() addresses {
	return addresses{hosts: newHosts(), contested: map[netip.AddrPort][]claim{}, served: map[netip.AddrPort]*node{}}
}

// owns tells whether an address that an app has a claim to is its own.
func (as *addresses) owns(n *node, a netip.AddrPort) bool {
	return len(as.contested) == 0 || as.owner(a) == n
}

// arrive decides whose an address is that an instance has come to.
func (as *addresses) arrive(c claim, a netip.AddrPort) (loser, heir *node) {
	if as.owner(a) == nil {
		as.set(a, c.node, c.rank == unverified)
		return nil, nil
	}
	return as.decide(c.node, a)
}

// decide decides whose an address is after one app's claims to it have changed. It returns the
// app that loses the address and the one that gets it; none where it stays.
func (as *addresses) decide(n *node, a netip.AddrPort) (loser, heir *node) {
	owner, rivals := as.owner(a), as.contested[a]
	best, claims := n.claimTo(a)
	if rivals == nil && (owner == nil || owner == n) {
		if claims {
			as.set(a, n, best.rank == unverified)
		} else {
			as.note(owner, a)
			as.remove(a)
		}
		return nil, nil
	}
	as.note(owner, a)
	if rivals == nil {
		other, _ := owner.claimTo(a)
		rivals = []claim{other}
	}
	rivals = slices.DeleteFunc(rivals, func(c claim) bool { return c.node == n })
	if claims {
		rivals = append(rivals, best)
	}
	if len(rivals) > 1 {
		as.contested[a] = rivals
	} else {
		delete(as.contested, a)
	}
	strongest := slices.MaxFunc(rivals, claim.compare)
	as.set(a, strongest.node, strongest.rank == unverified)
	if owner == strongest.node {
		return nil, nil
	}
	return owner, strongest.node
}

// note notes the app that callers see at an address, before a change that reaches it.
func (as *addresses) note(owner *node, a netip.AddrPort) {
	if owner == nil || as.served[a] != nil {
		return
	}
	if _, seen := slices.BinarySearch(owner.ready, a.String()); seen {
		as.served[a] = owner
	}
}

// withheld tells whether an app must not have an address yet, since callers still see another
// app there.
func (as *addresses) withheld(n *node, a netip.AddrPort) bool {
	served := as.served[a]
	return served != nil && served.app != n.app
}

// holder is the app that has an address by a live registration.
func (as *addresses) holder(a netip.AddrPort) (h Holder) {
	if owner := as.owner(a); owner != nil {
		if c, _ := owner.claimTo(a); c.rank == Live {
			h = Holder{owner.app, c.source}
		}
	}
	return h
}
