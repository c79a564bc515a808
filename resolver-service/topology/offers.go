package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// offers are the addresses that peers name which are on this cluster's network, and whose
// each is: what reaches the peers' instances must not lead to another app's, whether in this
// cluster, in theirs or in another's. What peers say of themselves comes in parts, and late.
//
// A peer's offer takes no address from an app that is ready here, unless by hearsay alone:
// this cluster's own sources know better what runs in it. Of several offers the newest has
// the address.
type offers struct {
	top    map[netip.AddrPort]offer   // the strongest
	weaker map[netip.AddrPort][]offer // the others, where there are any
	number uint64                     // of the newest
	pairs  map[pair]struct{}          // that a change has reached
}

// offer is an address with an app of a peer.
type offer struct {
	*node
	cluster *cluster
	number  uint64 // the newest has the highest; 0: it was there before the peer was first heard
}

// pair is an app of a peer.
type pair struct {
	*node
	cluster *cluster
}

func newOffers() offers {
	return offers{top: map[netip.AddrPort]offer{}, weaker: map[netip.AddrPort][]offer{}, pairs: map[pair]struct{}{}}
}

// any tells whether a peer names an address.
func (os *offers) any(a netip.AddrPort) bool {
	if len(os.top) == 0 {
		return false
	}
	_, ok := os.top[a]
	return ok
}

// touch notes that a change may have reached which addresses an app of a peer has.
func (os *offers) touch(o offer) { os.pairs[pair{o.node, o.cluster}] = struct{}{} }

// reach notes that a change has reached an address here.
func (os *offers) reach(a netip.AddrPort) {
	if len(os.top) == 0 {
		return
	}
	if top, ok := os.top[a]; ok {
		os.touch(top)
	}
}

func (o offer) is(other offer) bool { return o.node == other.node && o.cluster == other.cluster }

// compare is below zero where an offer is weaker than another. Those that were there before
// are told apart by what all replicas see.
func (o offer) compare(other offer) int {
	return cmp.Or(cmp.Compare(o.number, other.number), strings.Compare(other.cluster.name, o.cluster.name), other.app.Compare(o.app))
}

// maxOffers bounds the offers of one address that are kept. Of what is beyond it, nothing is
// true: it is as if that were never offered.
const maxOffers = 256

// put adds an offer.
func (os *offers) put(a netip.AddrPort, o offer) {
	top, any := os.top[a]
	if !any {
		os.top[a] = o
		return
	}
	if top.compare(o) < 0 {
		os.top[a] = o
		os.touch(top)
		o = top
	}
	if weaker := os.weaker[a]; len(weaker)+1 < maxOffers {
		os.weaker[a] = append(weaker, o)
	}
}

// remove takes an offer back, and returns its number.
func (os *offers) remove(a netip.AddrPort, o offer) (number uint64) {
	top, weaker := os.top[a], os.weaker[a]
	if !top.is(o) {
		at := slices.IndexFunc(weaker, o.is)
		if at < 0 {
			return 0 // it was one too many
		}
		number = weaker[at].number
		os.keep(a, slices.Delete(weaker, at, at+1))
		return number
	}
	if len(weaker) == 0 {
		delete(os.top, a)
		return top.number
	}
	next := slices.MaxFunc(weaker, offer.compare)
	os.top[a] = next
	os.keep(a, slices.DeleteFunc(weaker, next.is))
	os.touch(next)
	return top.number
}

func (os *offers) keep(a netip.AddrPort, weaker []offer) {
	if len(weaker) == 0 {
		delete(os.weaker, a)
	} else {
		os.weaker[a] = weaker
	}
}

// offer notes which addresses a peer's app has, and which it had. standing says that those
// were there before the peer was first heard.
func (g *Graph) offer(c *cluster, n *node, had, has []string, standing bool) {
	lost, gained := difference(had, has)
	as, o := &g.addresses, offer{node: n, cluster: c}
	for _, text := range lost {
		if a, ok := canonical(text); ok {
			owner := as.owner(a)
			as.note(owner, a)
			g.touchHearsay(owner, a)
			g.saved.recall(a, o, as.offers.remove(a, o))
		}
	}
	for _, text := range gained {
		a, ok := canonical(text)
		if !ok {
			as.offers.touch(o)
			continue
		}
		owner := as.owner(a)
		as.note(owner, a)
		g.touchHearsay(owner, a)
		o.number = 0
		if !standing {
			as.offers.number++
			o.number = as.offers.number
		}
		if before, ok := g.saved.recalled(a, o); ok {
			o.number = before
		}
		if owner != nil || as.offers.any(a) || as.withheld(n, a) {
			as.offers.touch(o)
		}
		as.offers.put(a, o)
	}
}

// difference is what the second of two lists lacks, and has, beside the first; each once.
func difference(had, has []string) (lost, gained []string) {
	had, has = ascending(had), ascending(has)
	for len(had) > 0 || len(has) > 0 {
		order := 0
		switch {
		case len(has) == 0:
			order = -1
		case len(had) == 0:
			order = 1
		default:
			order = strings.Compare(had[0], has[0])
		}
		switch {
		case order < 0:
			lost, had = append(lost, had[0]), had[1:]
		case order > 0:
			gained, has = append(gained, has[0]), has[1:]
		default:
			had, has = had[1:], has[1:]
		}
	}
	return lost, gained
}

// ascending is a list as it is, or sorted and without what is there twice.
func ascending(all []string) []string {
	for i := 1; i < len(all); i++ {
		if all[i-1] >= all[i] {
			return slices.Compact(slices.Sorted(slices.Values(all)))
		}
	}
	return all
}

// canonical is an address in the form that a resolver service tells; others say nothing that
// can be compared.
func canonical(text string) (a netip.AddrPort, ok bool) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Addr().Is4In6() {
		return netip.AddrPort{}, false
	}
	var room [64]byte
	return a, string(a.AppendTo(room[:0])) == text
}

// joinsNetwork notes that a cluster is on this cluster's network by now, or no more.
func (g *Graph) joinsNetwork(c *cluster, joins bool) {
	for n := range c.exports {
		addresses := n.remote.of(c.name).Addresses
		if joins {
			g.offer(c, n, nil, addresses, true)
		} else {
			g.offer(c, n, addresses, nil, true)
		}
		g.addresses.offers.touch(offer{node: n, cluster: c})
	}
}

// settleOffers brings the addresses of the peers' apps that a change has reached up to date,
// and returns those with an address that another app is still served with: they come second.
func (g *Graph) settleOffers() (second []pair) {
	os := &g.addresses.offers
	if len(os.pairs) == 0 {
		return nil
	}
	for p := range os.pairs {
		if g.offersChanged(p) {
			second = append(second, p)
		}
	}
	clear(os.pairs)
	return second
}

// offersChanged reaches whoever may call a peer's app, if its addresses are others than
// before. It leaves out those that others are still served with, and tells whether there are
// any.
func (g *Graph) offersChanged(p pair) (withheld bool) {
	export := p.remote.of(p.cluster.name)
	if export == nil {
		return false
	}
	before := export.direct()
	export.left = nil
	if g.onNetwork(p.cluster) {
		var left []string
		left, withheld = g.leftOf(p, export.Addresses)
		if len(left) < len(export.Addresses) {
			left = slices.Clip(left)
			export.left = &left
		}
	}
	if !slices.Equal(before, export.direct()) {
		for caller := range p.callers {
			g.dirty.entry(caller, p.node)
		}
	}
	return withheld
}

// leads tells whether an address that a peer's app has is no other's.
func (g *Graph) leads(o offer, a netip.AddrPort) bool {
	return g.addresses.offers.top[a].is(o) && !keeps(g.addresses.owner(a), o.node, a)
}

// keeps tells whether who has an address here keeps it from a peer's app.
func keeps(owner, from *node, a netip.AddrPort) bool {
	return owner != nil && owner != from && owner.serves(a) && !owner.onlyHearsay(a)
}

// outbid tells whether an instance here that is known by hearsay alone is at an address which
// a peer has with another app.
func (g *Graph) outbid(n *node, i *instance) bool {
	return i.hearsay && g.addresses.offers.any(i.address) && g.addresses.offers.top[i.address].node != n && n.onlyHearsay(i.address)
}

// touchHearsay notes that a peer's offer of an address may reach an app here that has it by
// hearsay alone.
func (g *Graph) touchHearsay(owner *node, a netip.AddrPort) {
	if owner != nil && owner.onlyHearsay(a) {
		g.touch(owner)
	}
}

// leftOf are those of the addresses that an app of a peer has which are not another's.
func (g *Graph) leftOf(p pair, all []string) (left []string, withheld bool) {
	as, o := &g.addresses, offer{node: p.node, cluster: p.cluster}
	for _, text := range all {
		a, ok := canonical(text)
		if !ok || !g.leads(o, a) {
			continue
		}
		if g.synced && as.withheld(p.node, a) {
			withheld = true
			continue
		}
		left = append(left, text)
	}
	return left, withheld
}
