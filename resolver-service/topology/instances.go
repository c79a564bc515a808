package topology

import (
	"cmp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func (g *Graph) takeInstances(c *InstanceChange) {
	var changed []*node // each once
	note := func(n *node) {
		if n != nil && !n.changed {
			n.changed = true
			changed = append(changed, n)
		}
	}
	if c.Full {
		for _, key := range g.departed(c) {
			note(g.deleteInstance(c.Source, key))
		}
	}
	for _, key := range c.Delete {
		note(g.deleteInstance(c.Source, key))
	}
	for i := range c.Put {
		note(g.putInstance(c.Source, &c.Put[i]))
	}
	for _, n := range changed {
		n.changed = false
		g.instancesChanged(n)
		g.release(n)
	}
}

// departed are a source's instances that its full set does not name.
func (g *Graph) departed(c *InstanceChange) []InstanceKey {
	stands := make(map[InstanceKey]bool, len(c.Put))
	for _, i := range c.Put {
		stands[InstanceKey{i.App, i.ID}] = true
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

// putInstance returns the app's node, or nil if nothing has changed.
func (g *Graph) putInstance(source string, i *catalog.Instance) *node {
	n := g.node(i.App)
	at, found := n.find(source, i.ID)
	now := instance{source, i.ID, i.Address, i.Draining}
	switch {
	case !found:
		n.instances = inserted(n.instances, at, now)
		g.counts.Instances++
		g.counts.drain(i.Draining, 1)
	case n.instances[at] == now:
		return nil
	default:
		g.counts.drain(n.instances[at].draining, -1)
		g.counts.drain(i.Draining, 1)
		n.instances[at] = now
	}
	return n
}

// deleteInstance returns the app's node, or nil if nothing has changed.
func (g *Graph) deleteInstance(source string, key InstanceKey) *node {
	n := g.apps[key.App]
	if n == nil {
		return nil
	}
	at, found := n.find(source, key.ID)
	if !found {
		return nil
	}
	g.counts.Instances--
	g.counts.drain(n.instances[at].draining, -1)
	n.instances = slices.Delete(n.instances, at, at+1)
	return n
}

// instancesChanged reaches whoever may call the app, the gateway and the peers that
// it is exported to - if those ready are others than before.
func (g *Graph) instancesChanged(n *node) {
	g.dirty.present(n)
	ready := n.readyAddresses()
	if slices.Equal(ready, n.ready) {
		return
	}
	n.ready, n.local, n.plans = ready, nil, nil
	for caller := range n.callers {
		g.dirty.entry(caller, n)
	}
	if n.export != nil {
		g.dirty.exported(n)
	}
}

// readyAddresses are sorted; an address that two sources know is there once.
func (n *node) readyAddresses() []string {
	ready := make([]string, 0, len(n.instances))
	for i := range n.instances {
		if !n.instances[i].draining {
			ready = append(ready, n.instances[i].address.String())
		}
	}
	slices.Sort(ready)
	return slices.Clip(slices.Compact(ready))
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
