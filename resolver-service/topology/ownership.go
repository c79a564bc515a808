package topology

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Rank says how well a source knows which app has an address. Each source names its own.
//
// The rule that decides whose address it is has three sentences. A live registration beats a
// listed one. Of two live registrations the later has the address. A registration for an
// address that is not its sender's is refused, unless instances.delegates allows it by name.
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

// compare is below zero where a claim is weaker than another. Claims of two apps are never
// equal: where neither rank nor time decides, as between two AppInstance objects, a ready
// instance comes before one that drains, and then the app whose name is first.
func (c claim) compare(o claim) int {
	switch {
	case c.rank != o.rank:
		return cmp.Compare(c.rank, o.rank)
	case c.since != o.since:
		return cmp.Compare(c.since, o.since)
	case c.draining != o.draining && o.draining:
		return 1
	case c.draining != o.draining:
		return -1
	}
	return o.app.Compare(c.app)
}

func (n *node) claim(i *instance) claim {
	return claim{n, i.source, i.rank, i.since, i.draining}
}

// claimTo is the strongest of an app's claims to an address; ok is false where it has none.
func (n *node) claimTo(a netip.AddrPort) (best claim, ok bool) {
	for i := range n.instances {
		if n.instances[i].address != a {
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

// ownership knows which app has each instance's address, over all sources. Other apps with a
// claim there are shadowed: the address is theirs once no stronger claim is left.
type ownership struct {
	hosts
	contested map[netip.AddrPort][]claim // one for each app, where there are several
	// served has the app that callers see at an address which a change has reached. Until the
	// change is published, no other app may be seen there.
	served map[netip.AddrPort]*node
}

func newOwnership() ownership {
	return ownership{hosts: newHosts(), contested: map[netip.AddrPort][]claim{}, served: map[netip.AddrPort]*node{}}
}

// owns tells whether an address that an app has a claim to is its own.
func (o *ownership) owns(n *node, a netip.AddrPort) bool {
	return len(o.contested) == 0 || o.owner(a) == n
}

// arrive decides whose an address is that an instance has come to.
func (o *ownership) arrive(c claim, a netip.AddrPort) (loser, heir *node) {
	if o.owner(a) == nil {
		o.set(a, c.node, c.rank == unverified)
		return nil, nil
	}
	return o.decide(c.node, a)
}

// decide decides whose an address is after one app's claims to it have changed. It returns the
// app that loses the address and the one that gets it; none where it stays.
func (o *ownership) decide(n *node, a netip.AddrPort) (loser, heir *node) {
	owner, rivals := o.owner(a), o.contested[a]
	best, claims := n.claimTo(a)
	if rivals == nil && (owner == nil || owner == n) {
		if claims {
			o.set(a, n, best.rank == unverified)
		} else {
			o.note(owner, a)
			o.remove(a)
		}
		return nil, nil
	}
	o.note(owner, a)
	if rivals == nil {
		other, _ := owner.claimTo(a)
		rivals = []claim{other}
	}
	rivals = slices.DeleteFunc(rivals, func(c claim) bool { return c.node == n })
	if claims {
		rivals = append(rivals, best)
	}
	if len(rivals) > 1 {
		o.contested[a] = rivals
	} else {
		delete(o.contested, a)
	}
	strongest := slices.MaxFunc(rivals, claim.compare)
	o.set(a, strongest.node, strongest.rank == unverified)
	if owner == strongest.node {
		return nil, nil
	}
	return owner, strongest.node
}

// note notes the app that callers see at an address, before a change that reaches it.
func (o *ownership) note(owner *node, a netip.AddrPort) {
	if owner == nil || o.served[a] != nil {
		return
	}
	if _, seen := slices.BinarySearch(owner.ready, a.String()); seen {
		o.served[a] = owner
	}
}

// withheld tells whether an app must not have an address yet, since callers still see another
// app there.
func (o *ownership) withheld(n *node, a netip.AddrPort) bool {
	served := o.served[a]
	return served != nil && served.app != n.app
}

// holder is the app that has an address by a live registration; nil if none has.
func (o *ownership) holder(a netip.AddrPort) *node {
	if owner := o.owner(a); owner != nil {
		if c, ok := owner.claimTo(a); ok && c.rank == Live {
			return owner
		}
	}
	return nil
}
