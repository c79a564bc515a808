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
	hearsay := c.Hearsay || i.Unverified
	present := c.Present && !hearsay
	now := instance{
		source: c.Source, id: i.ID, address: netip.AddrPortFrom(i.Address.Addr().Unmap(), i.Address.Port()), draining: i.Draining,
		standing: c.Source == static || c.Standing && !present, hearsay: hearsay, zone: zoneNamed(i.Zone),
	}
	switch {
	case !found:
		n.instances = inserted(n.instances, at, now)
		g.sources[c.Source]++
		g.claim(n.claimant(&now), now.address)
	case n.instances[at].address != now.address:
		old := n.instances[at]
		n.instances[at] = now
		g.vacate(n.claimant(&old), old.address)
		g.claim(n.claimant(&now), now.address)
	default:
		g.restate(n, at, now, present && !now.standing)
		return
	}
	g.touch(n)
}

// restate notes what a source says of an instance that is where it was. present says that the
// instance tells of itself: it has come up there now. What somebody elsewhere says of it does
// not make less of what is known better.
func (g *Graph) restate(n *node, at int, now instance, present bool) {
	old := n.instances[at]
	now.hearsay = now.hearsay && old.hearsay
	now.standing = old.standing && !present
	if now == old && !present {
		return
	}
	n.instances[at] = now
	if now.draining != old.draining || now.hearsay != old.hearsay || now.zone != old.zone {
		g.touch(n)
	}
	if now.hearsay == old.hearsay && g.addresses.contested[now.address] == nil {
		return
	}
	c := n.claimant(&now)
	loser, heir := g.addresses.restate(c, now.address, present)
	g.changesHands(now.address, loser, heir)
	if loser != nil && present {
		g.tell(c, now.address, loser)
	}
}

// claim notes that an instance has come up at an address, and who had it before.
func (g *Graph) claim(c claimant, a netip.AddrPort) {
	loser := g.addresses.claim(c, a)
	g.changesHands(a, loser, c.node)
	if loser != nil {
		g.tell(c, a, loser)
	}
}

// changesHands reaches those whose an address is or was.
func (g *Graph) changesHands(a netip.AddrPort, loser, heir *node) {
	g.touch(loser)
	g.touch(heir)
	g.callerChanged(a.Addr())
}

// tell has somebody told that an app has lost an address.
func (g *Graph) tell(c claimant, a netip.AddrPort, loser *node) {
	if len(g.takeovers) < maxTakeovers {
		g.takeovers = append(g.takeovers, takeover{a, loser.app, c.app, c.source})
	}
}

// vacate notes that an instance is at an address no longer, and who has it by that.
func (g *Graph) vacate(c claimant, a netip.AddrPort) {
	g.changesHands(a, nil, g.addresses.release(c, a))
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
	g.vacate(n.claimant(&old), old.address)
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
	g.counts.Instances = g.addresses.count
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
// them says that it takes no new calls. draining counts those of which one does. Hearsay that
// an instance drains does not count where the instance is known better.
func (g *Graph) readyAddresses(n *node) (ready []string, draining uint32, withheld bool) {
	ready = make([]string, 0, len(n.instances))
	var not []string
	for i := range n.instances {
		at := &n.instances[i]
		switch {
		case !g.addresses.owns(n, at.address):
		case at.draining && at.hearsay && !n.onlyHearsay(at.address):
		case at.draining:
			not = append(not, at.address.String())
		case g.synced && g.addresses.withheld(n, at.address):
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
