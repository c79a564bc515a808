package topology

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
	"strings"
)

// offers are the addresses on this cluster's network that one peer names, and which of its apps
// each belongs to. What a peer says of itself comes in parts, and late: an address that goes
// from one of its apps to another may be named with both. The newest has it.
//
// Between peers, and between a peer and what runs here, nobody takes any: whoever names an
// address says something of itself, and nothing of others.
type offers struct {
	top    map[netip.AddrPort]offer   // the strongest
	weaker map[netip.AddrPort]*rivals // the others, where there are any
	number uint64                     // of the newest
}

// offer is an address with an app of the peer.
type offer struct {
	*node
	number uint64 // the newest has the highest; 0: it was there before the peer was first heard
}

// compare is below zero where an offer is weaker than another. Those that were there before
// are told apart by what all replicas see.
func (o offer) compare(other offer) int {
	return cmp.Or(cmp.Compare(o.number, other.number), other.app.Compare(o.app))
}

// rivals are a heap of offers, with the strongest first.
type rivals struct {
	offers []offer
	at     map[*node]int // the place of each
}

func (r *rivals) Len() int           { return len(r.offers) }
func (r *rivals) Less(i, j int) bool { return r.offers[i].compare(r.offers[j]) > 0 }

func (r *rivals) Swap(i, j int) {
	r.offers[i], r.offers[j] = r.offers[j], r.offers[i]
	r.at[r.offers[i].node], r.at[r.offers[j].node] = i, j
}

// Push appends an offer.
func (r *rivals) Push(o any) {
	r.at[o.(offer).node] = len(r.offers)
	r.offers = append(r.offers, o.(offer))
}

// Pop takes the last.
func (r *rivals) Pop() any {
	last := r.offers[len(r.offers)-1]
	r.offers = slices.Delete(r.offers, len(r.offers)-1, len(r.offers))
	delete(r.at, last.node)
	return last
}

// put adds an offer, and returns the app that loses the address by that.
func (os *offers) put(a netip.AddrPort, o offer) (loser *node) {
	if os.top == nil {
		os.top, os.weaker = map[netip.AddrPort]offer{}, map[netip.AddrPort]*rivals{}
	}
	top, any := os.top[a]
	if !any {
		os.top[a] = o
		return nil
	}
	if top.compare(o) < 0 {
		os.top[a] = o
		loser, o = top.node, top
	}
	if os.weaker[a] == nil {
		os.weaker[a] = &rivals{at: map[*node]int{}}
	}
	heap.Push(os.weaker[a], o)
	return loser
}

// remove takes an offer back, and returns the app that has the address by that.
func (os *offers) remove(a netip.AddrPort, n *node) (heir *node) {
	weaker := os.weaker[a]
	switch {
	case os.top[a].node != n:
		at, there := 0, false
		if weaker != nil {
			at, there = weaker.at[n]
		}
		if !there {
			return nil // it was refused when it came
		}
		heap.Remove(weaker, at)
	case weaker == nil:
		delete(os.top, a)
		return nil
	default:
		next := heap.Pop(weaker).(offer)
		os.top[a], heir = next, next.node
	}
	if weaker.Len() == 0 {
		delete(os.weaker, a)
	}
	return heir
}

// moves are what a change has reached of a peer's offers.
type moves struct {
	// taken has who is served with an address: until what comes of the change is published,
	// no other app of the peer may be.
	taken   map[netip.AddrPort]*node
	reached map[*node]struct{} // whose addresses may be others than before
}

// movesOf are those of a peer.
func (g *Graph) movesOf(c *cluster) *moves {
	m := g.moves[c]
	if m == nil {
		m = &moves{map[netip.AddrPort]*node{}, map[*node]struct{}{}}
		g.moves[c] = m
	}
	return m
}

// touch notes that the addresses of an app may be others than before.
func (m *moves) touch(n *node) {
	if n != nil {
		m.reached[n] = struct{}{}
	}
}

// note notes who is served with an address, before a change that reaches it.
func (m *moves) note(a netip.AddrPort, top *node) {
	if top != nil && m.taken[a] == nil {
		m.taken[a] = top
	}
}

// withheld tells whether an address must not be an app's yet: another is served with it.
func (m *moves) withheld(a netip.AddrPort, n *node) bool {
	return m != nil && m.taken[a] != nil && m.taken[a] != n
}

// offer notes which addresses a peer's app has, and which it had. standing says that those
// were there before the peer was first heard.
func (g *Graph) offer(c *cluster, n *node, had, has []string, standing bool) {
	lost, gained := difference(had, has)
	if len(lost) == 0 && len(gained) == 0 {
		return
	}
	m, os := g.movesOf(c), &c.offers
	for _, text := range lost {
		if a, ok := canonical(text); ok {
			m.note(a, os.top[a].node)
			m.touch(os.remove(a, n))
		}
	}
	for _, text := range gained {
		a, ok := canonical(text)
		if !ok || g.refusesDirect(c, a) != nil {
			m.touch(n)
			continue
		}
		o := offer{node: n}
		if !standing {
			os.number++
			o.number = os.number
		}
		if top := os.top[a].node; top != nil || m.withheld(a, n) {
			m.note(a, top)
			m.touch(n)
		}
		m.touch(os.put(a, o))
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
	g.saved.keep(c)
	c.offers = offers{}
	for n := range c.exports {
		if joins {
			g.offer(c, n, nil, n.remote.of(c.name).Addresses, true)
		}
		g.movesOf(c).touch(n)
	}
}

// pair is an app of a peer.
type pair struct {
	*cluster
	*node
}

// settleOffers brings the addresses of the peers' apps that a change has reached up to date,
// and returns those with an address that another app is still served with: they come second.
func (g *Graph) settleOffers() (second []pair) {
	for c, m := range g.moves {
		for n := range m.reached {
			if p := (pair{c, n}); g.offersChanged(p) {
				second = append(second, p)
			}
		}
	}
	clear(g.moves)
	return second
}

// offersChanged reaches whoever may call a peer's app, if its addresses are others than
// before. It leaves out those that others are still served with, and tells whether there are
// any.
func (g *Graph) offersChanged(p pair) (withheld bool) {
	export := p.remote.of(p.name)
	if export == nil {
		return false
	}
	before := export.direct()
	export.left, export.zones, export.refused = nil, export.Zones, 0
	if g.onNetwork(p.cluster) {
		var left []string
		left, export.refused, withheld = g.leftOf(p, export.Addresses)
		if len(left) < len(export.Addresses) {
			left = slices.Clip(left)
			export.left = &left
			export.zones = zonesLeft(export.Zones, export.Addresses, left)
		}
	}
	if !slices.Equal(before, export.direct()) {
		for caller := range p.callers {
			g.dirty.entry(caller, p.node)
		}
	}
	return withheld
}

// leftOf are those of the addresses that an app of a peer has which are not another's of that
// peer, and not refused.
func (g *Graph) leftOf(p pair, all []string) (left []string, refused uint32, withheld bool) {
	m := g.moves[p.cluster]
	for _, text := range all {
		a, ok := canonical(text)
		switch {
		case ok && p.offers.top[a].node == nil:
			refused++
		case !ok || p.offers.top[a].node != p.node:
		case g.synced && g.saved == nil && m.withheld(a, p.node):
			withheld = true
		default:
			left = append(left, text)
		}
	}
	return left, refused, withheld
}
