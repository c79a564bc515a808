package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func (g *Graph) takeInstances(c *InstanceChange) {
	if c.Full {
		for _, key := range g.departed(c) {
			g.deleteInstance(c.Source, key)
		}
	}
	for _, key := range c.Delete {
		g.deleteInstance(c.Source, key)
	}
	for i := range c.Put {
		g.putInstance(c, &c.Put[i])
	}
}

// touch notes that the instances of an app may have changed.
func (g *Graph) touch(n *node) {
	if n != nil && !n.changed {
		n.changed = true
		g.touched = append(g.touched, n)
	}
}

// departed are a source's instances that its full set does not name.
func (g *Graph) departed(c *InstanceChange) []InstanceKey {
	stands := make(map[InstanceKey]bool, len(c.Put))
	for i := range c.Put {
		stands[KeyOf(&c.Put[i])] = true
	}
	var gone []InstanceKey
	for _, n := range g.apps {
		for _, i := range n.instances {
			if key := (InstanceKey{n.app, i.id}); i.source == c.Source && !stands[key] {
				gone = append(gone, key)
			}
		}
	}
	return gone
}

func (n *node) find(source, id string) (int, bool) {
	return slices.BinarySearchFunc(n.instances, instance{source: source, id: id}, func(a, b instance) int {
		return cmp.Or(strings.Compare(a.source, b.source), strings.Compare(a.id, b.id))
	})
}

func (g *Graph) putInstance(c *InstanceChange, i *catalog.Instance) {
	n := g.node(i.App)
	at, found := n.find(c.Source, i.ID)
	now := instance{
		source: c.Source, id: i.ID, address: netip.AddrPortFrom(i.Address.Addr().Unmap(), i.Address.Port()), draining: i.Draining,
		rank: rankOf(c.Rank, i), since: i.Since, zone: zoneNamed(i.Zone),
	}
	if !found {
		n.instances = inserted(n.instances, at, now)
		g.sources[c.Source]++
		g.arrive(n, &now)
		g.touch(n)
		return
	}
	old := n.instances[at]
	n.instances[at] = now
	switch {
	case old.address != now.address:
		g.decide(n, old.address)
		g.arrive(n, &now)
		g.touch(n)
	case old != now:
		if old.rank != now.rank || g.owners.contested[now.address] != nil {
			g.decide(n, now.address)
		}
		old.since = now.since // views don't show it
		if old != now {
			g.touch(n)
		}
	}
}

// arrive decides whose the address of an instance is that has come to it.
func (g *Graph) arrive(n *node, i *instance) {
	loser, heir := g.owners.arrive(n.claim(i), i.address)
	g.changesHands(n, i.address, loser, heir)
}

// decide decides whose an address is after one app's claims to it have changed.
func (g *Graph) decide(n *node, a netip.AddrPort) {
	loser, heir := g.owners.decide(n, a)
	g.changesHands(n, a, loser, heir)
}

// changesHands reaches the apps that an address goes from and to. An operator is told if the
// app whose claims have changed takes it from another.
func (g *Graph) changesHands(n *node, a netip.AddrPort, loser, heir *node) {
	g.touch(loser)
	g.touch(heir)
	g.callerChanged(a.Addr())
	if heir == n && len(g.takeovers) < maxTakeovers {
		by, _ := heir.claimTo(a)
		g.takeovers = append(g.takeovers, takeover{a, loser.app, heir.app, by.source})
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

func (g *Graph) deleteInstance(source string, key InstanceKey) {
	n := g.apps[key.App]
	if n == nil {
		return
	}
	at, found := n.find(source, key.ID)
	if !found {
		return
	}
	if g.sources[source]--; g.sources[source] == 0 {
		delete(g.sources, source)
	}
	old := n.instances[at]
	n.instances = slices.Delete(n.instances, at, at+1)
	g.decide(n, old.address)
	g.touch(n)
}

// settle brings the instances of the touched apps up to date, and returns those with an
// address that another app is still served with: they come second.
func (g *Graph) settle() (second []waiting) {
	for _, n := range g.touched {
		n.changed = false
		before := len(n.ready) > 0
		if g.instancesChanged(n, before) {
			second = append(second, waiting{n, before})
		}
	}
	for _, n := range g.touched {
		g.release(n)
	}
	g.touched = nil
	g.counts.Instances = g.owners.count
	return second
}

// waiting is an app that gets an address in the second part of a change.
type waiting struct {
	*node
	before bool // it had ready instances before the first
}

// instancesChanged reaches whoever may call the app, the gateway and the peers that
// it is exported to - if those ready are others than before. It leaves out addresses
// that others are still served with, and tells whether there are any.
func (g *Graph) instancesChanged(n *node, before bool) (withheld bool) {
	g.dirty.present(n)
	ready, draining, withheld := g.readyAddresses(n)
	zones := n.zonesOf(ready)
	if slices.Equal(ready, n.ready) && draining == n.draining && zones.Equal(n.zones) {
		return withheld
	}
	g.counts.Draining += int(draining) - int(n.draining)
	n.ready, n.draining, n.zones, n.local, n.plans, n.outward = ready, draining, zones, nil, nil, nil
	if g.saved == nil {
		g.localRamp(n, before)
	}
	for caller := range n.callers {
		g.dirty.entry(caller, n)
	}
	if n.export != nil {
		g.dirty.exported(n)
	}
	return withheld
}

// readyAddresses are sorted; an address that two sources know is there once, if none of
// them says that it takes no new calls. draining counts those of which one does.
func (g *Graph) readyAddresses(n *node) (ready []string, draining uint32, withheld bool) {
	ready = make([]string, 0, len(n.instances))
	var not []string
	for i := range n.instances {
		at := &n.instances[i]
		switch {
		case !g.owners.owns(n, at.address):
		case at.draining && at.rank == unverified && !n.onlyUnverified(at.address): // its own sidecar knows better
		case at.draining:
			not = append(not, at.address.String())
		case g.synced && g.owners.withheld(n, at.address):
			withheld = true
		default:
			ready = append(ready, at.address.String())
		}
	}
	slices.Sort(ready)
	ready = slices.Compact(ready)
	if len(not) > 0 {
		slices.Sort(not)
		not = slices.Compact(not)
		ready = slices.DeleteFunc(ready, func(a string) bool {
			_, found := slices.BinarySearch(not, a)
			return found
		})
	}
	return slices.Clip(ready), uint32(len(not)), withheld
}

// inserted is a copy with one more and no room to spare: there are many apps, and few
// changes of each.
func inserted(old []instance, at int, i instance) []instance {
	next := make([]instance, len(old)+1)
	copy(next, old[:at])
	next[at] = i
	copy(next[at+1:], old[at:])
	return next
}
