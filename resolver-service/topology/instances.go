package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unique"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func (o *ownership) takeInstances(c *InstanceChange) {
	if c.Full {
		for _, key := range o.departed(c) {
			o.deleteInstance(c.Source, key)
		}
	}
	for _, key := range c.Delete {
		o.deleteInstance(c.Source, key)
	}
	for i := range c.Put {
		o.putInstance(c, &c.Put[i])
	}
}

// touch notes that the instances of an app may have changed.
func (ns *nodes) touch(n *node) {
	if n != nil && !n.changed {
		n.changed = true
		ns.touched = append(ns.touched, n)
	}
}

// departed are a source's instances that its full set does not name.
func (o *ownership) departed(c *InstanceChange) []InstanceKey {
	stands := make(map[InstanceKey]bool, len(c.Put))
	for i := range c.Put {
		stands[KeyOf(&c.Put[i])] = true
	}
	var gone []InstanceKey
	for _, n := range o.apps {
		for _, i := range n.instances {
			if key := (InstanceKey{n.app, i.id}); i.origin.Value().source == c.Source && !stands[key] {
				gone = append(gone, key)
			}
		}
	}
	return gone
}

func (n *node) find(source, id string) (int, bool) {
	return slices.BinarySearchFunc(n.instances, id, func(i instance, id string) int {
		return cmp.Or(strings.Compare(i.origin.Value().source, source), strings.Compare(i.id, id))
	})
}

func (o *ownership) putInstance(c *InstanceChange, i *catalog.Instance) {
	n := o.node(i.App)
	at, found := n.find(c.Source, i.ID)
	now := instance{
		id: i.ID, ip: i.Address.Addr().Unmap(), port: i.Address.Port(), draining: i.Draining,
		rank: rankOf(c.Rank, i), since: i.Since, origin: unique.Make(origin{c.Source, checked(i.Zone, catalog.CheckZone), checked(i.Version, catalog.CheckVersion), i.Calls, i.Account}),
	}
	if !found {
		n.instances = inserted(n.instances, at, now)
		o.sources[c.Source]++
		o.enter(n, &now)
		o.touch(n)
		return
	}
	old := n.instances[at]
	n.instances[at] = now
	switch {
	case old.address() != now.address():
		o.review(n, old.address())
		o.enter(n, &now)
		o.touch(n)
	case old != now:
		if old.rank != now.rank || o.contested[now.address()] != nil {
			o.review(n, now.address())
		}
		old.since = now.since // views don't show it
		if old != now {
			o.touch(n)
		}
	}
}

func (o *ownership) deleteInstance(source string, key InstanceKey) {
	n := o.apps[key.App]
	if n == nil {
		return
	}
	at, found := n.find(source, key.ID)
	if !found {
		return
	}
	if o.sources[source]--; o.sources[source] == 0 {
		delete(o.sources, source)
	}
	old := n.instances[at]
	n.instances = slices.Delete(n.instances, at, at+1)
	o.review(n, old.address())
	o.touch(n)
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
	g.selections.reselect(n)
	ready, draining, withheld := g.owners.readyAddresses(n)
	zones := n.labelsOf(ready, func(o origin) string { return o.zone })
	versions := n.labelsOf(ready, func(o origin) string { return o.version })
	if slices.Equal(ready, n.ready) && draining == n.draining && zones.Equal(n.zones) && versions.Equal(n.versions) {
		return withheld
	}
	g.noteOutage(n, len(ready) > 0, withheld)
	g.counts.Draining += int(draining) - int(n.draining)
	n.ready, n.draining, n.zones, n.versions = ready, draining, zones, versions
	n.local, n.plans, n.exportable = nil, nil, nil
	if g.saved == nil {
		g.ramps.localRamp(n, before)
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
func (o *ownership) readyAddresses(n *node) (ready []string, draining uint32, withheld bool) {
	ready = make([]string, 0, len(n.instances))
	not := o.drainingAddresses(n)
	for i := range n.instances {
		at := &n.instances[i]
		switch a := at.address(); {
		case at.draining || not[a] || !o.owns(n, a):
		case o.synced && o.withheld(n, a):
			withheld = true
		default:
			ready = append(ready, at.text())
		}
	}
	slices.Sort(ready)
	return slices.Clip(slices.Compact(ready)), uint32(len(not)), withheld
}

// drainingAddresses are an app's addresses of which a source says that they take no new calls. A
// source's word on an address is its strongest claim there: Kubernetes, for one, may name a pod
// that ends beside the ready one that has its address by now.
func (o *ownership) drainingAddresses(n *node) map[netip.AddrPort]bool {
	type place struct {
		netip.AddrPort
		source string
	}
	var words map[place]claim
	take := func(draining bool) {
		for i := range n.instances {
			at := &n.instances[i]
			if at.draining != draining || !o.owns(n, at.address()) {
				continue
			}
			c := n.claim(at)
			key := place{at.address(), c.source}
			word, ok := words[key]
			if !ok && !draining {
				continue
			}
			if words == nil {
				words = map[place]claim{}
			}
			if !ok || word.compare(c) < 0 {
				words[key] = c
			}
		}
	}
	if take(true); words == nil {
		return nil
	}
	take(false)
	not := map[netip.AddrPort]bool{}
	for at, word := range words {
		if word.draining && (word.rank != unverified || n.onlyUnverified(at.AddrPort)) { // its own sidecar knows better
			not[at.AddrPort] = true
		}
	}
	return not
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
