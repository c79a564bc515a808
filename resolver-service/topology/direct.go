package topology

import (
	"net/netip"
	"slices"
	"strings"
)

// direct has the addresses on this cluster's network that one peer names, with the app of the
// peer that each belongs to. The peer says of one app after the other, so for a moment it may
// name an address with two apps: then the address is neither's, whichever was heard first.
//
// Between peers, and between a peer and this cluster, no app takes an address from another.
type direct struct {
	one     map[netip.AddrPort]*node
	several map[netip.AddrPort]map[*node]struct{}
}

// put notes that an app is named at an address. It returns the app that loses it by that.
func (d *direct) put(a netip.AddrPort, n *node) (loser *node) {
	if d.one == nil {
		d.one, d.several = map[netip.AddrPort]*node{}, map[netip.AddrPort]map[*node]struct{}{}
	}
	if all := d.several[a]; all != nil {
		all[n] = struct{}{}
		return nil
	}
	if loser = d.one[a]; loser == nil {
		d.one[a] = n
		return nil
	}
	delete(d.one, a)
	d.several[a] = map[*node]struct{}{loser: {}, n: {}}
	return loser
}

// remove notes that an app is named at an address no more. It returns the app that has it by
// that.
func (d *direct) remove(a netip.AddrPort, n *node) (heir *node) {
	all := d.several[a]
	if all == nil {
		if d.one[a] == n { // or it was refused
			delete(d.one, a)
		}
		return nil
	}
	delete(all, n)
	if len(all) > 1 {
		return nil
	}
	delete(d.several, a)
	for heir = range all {
		d.one[a] = heir
	}
	return heir
}

// named tells whether the peer names an address that may be called.
func (d *direct) named(a netip.AddrPort) bool { return d.one[a] != nil || d.several[a] != nil }

// addressChanges are what a change has reached of the addresses of one peer.
type addressChanges struct {
	// served has the app that callers see at an address. Until the change is published, no
	// other app of the peer may be seen there.
	served  map[netip.AddrPort]*node
	reached map[*node]struct{} // their addresses may be others than before
}

func (im *imports) addressChangesOf(c *cluster) *addressChanges {
	m := im.changed[c]
	if m == nil {
		m = &addressChanges{map[netip.AddrPort]*node{}, map[*node]struct{}{}}
		im.changed[c] = m
	}
	return m
}

func (m *addressChanges) touch(n *node) {
	if n != nil {
		m.reached[n] = struct{}{}
	}
}

func (m *addressChanges) note(a netip.AddrPort, owner *node) {
	if owner != nil && m.served[a] == nil {
		m.served[a] = owner
	}
}

// withheld tells whether an app must not have an address yet, since callers still see another
// app there.
func (m *addressChanges) withheld(a netip.AddrPort, n *node) bool {
	return m != nil && m.served[a] != nil && m.served[a] != n
}

// name notes the addresses that a peer names an app at, and those that it named before.
func (im *imports) name(c *cluster, n *node, had, has []string) {
	lost, gained := difference(had, has)
	if len(lost) == 0 && len(gained) == 0 {
		return
	}
	m, d := im.addressChangesOf(c), &c.direct
	for _, text := range lost {
		if a, ok := canonical(text); ok {
			m.note(a, d.one[a])
			m.touch(d.remove(a, n))
		}
	}
	for _, text := range gained {
		a, ok := canonical(text)
		if !ok || im.refusesDirect(c, a) != nil {
			m.touch(n)
			continue
		}
		m.note(a, d.one[a])
		if m.withheld(a, n) || d.named(a) {
			m.touch(n)
		}
		m.touch(d.put(a, n))
	}
}

// difference is what the second of two lists lacks, and has, beside the first; each once.
func difference(had, has []string) (lost, gained []string) {
	had, has = ascending(had), ascending(has)
	for len(had) > 0 && len(has) > 0 {
		switch order := strings.Compare(had[0], has[0]); {
		case order < 0:
			lost, had = append(lost, had[0]), had[1:]
		case order > 0:
			gained, has = append(gained, has[0]), has[1:]
		default:
			had, has = had[1:], has[1:]
		}
	}
	return append(lost, had...), append(gained, has...)
}

// ascending is a list as it is, or sorted and with each text once.
func ascending(all []string) []string {
	for i := 1; i < len(all); i++ {
		if all[i-1] >= all[i] {
			return slices.Compact(slices.Sorted(slices.Values(all)))
		}
	}
	return all
}

// canonical reads an address in the one form that can be compared, which resolver services use.
func canonical(text string) (a netip.AddrPort, ok bool) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Addr().Is4In6() {
		return netip.AddrPort{}, false
	}
	var room [64]byte
	return a, string(a.AppendTo(room[:0])) == text
}

// networkChanged notes that a cluster has come to this cluster's network or left it, or may
// name other addresses there.
func (im *imports) networkChanged(c *cluster, near bool) {
	c.direct = direct{}
	for n := range c.exports {
		if near {
			im.name(c, n, nil, n.remote.of(c.name).Addresses)
		}
		im.addressChangesOf(c).touch(n)
	}
}

// pair is an app of a peer.
type pair struct {
	*cluster
	*node
}

// settleDirect brings the addresses of the peers' apps that a change has reached up to date. It
// returns those with an address where callers still see another app: they come second.
func (im *imports) settleDirect() (second []pair) {
	for c, m := range im.changed {
		for n := range m.reached {
			if p := (pair{c, n}); im.directChanged(p) {
				second = append(second, p)
			}
		}
	}
	clear(im.changed)
	return second
}

// directChanged reaches the callers of a peer's app if its addresses are others than before. It
// leaves out those where callers still see another app, and tells whether there are any.
func (im *imports) directChanged(p pair) (withheld bool) {
	export := p.remote.of(p.name)
	if export == nil {
		return false
	}
	before := export.direct()
	export.left, export.zones, export.versions, export.refused = nil, export.Zones, export.Versions, 0
	if im.onNetwork(p.cluster) {
		var left []string
		left, export.refused, withheld = im.leftOf(p, export.Addresses)
		if len(left) < len(export.Addresses) {
			left = slices.Clip(left)
			export.left = &left
			export.zones, export.versions = labelsLeft(export.Zones, export.Addresses, left), labelsLeft(export.Versions, export.Addresses, left)
		}
	}
	if !slices.Equal(before, export.direct()) {
		for caller := range p.callers {
			im.dirty.entry(caller, p.node)
		}
	}
	return withheld
}

// leftOf are the addresses of a peer's app that may be called, without those that the peer also
// names another app at.
func (im *imports) leftOf(p pair, all []string) (left []string, refused uint32, withheld bool) {
	m := im.changed[p.cluster]
	for _, text := range all {
		a, ok := canonical(text)
		switch {
		case ok && !p.direct.named(a):
			refused++
		case !ok || p.direct.one[a] != p.node:
		case im.synced && im.saved == nil && m.withheld(a, p.node):
			withheld = true
		default:
			left = append(left, text)
		}
	}
	return left, refused, withheld
}
