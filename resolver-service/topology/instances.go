package topology

import (
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
	for _, i := range c.Put {
		g.putInstance(instance{c.Source, i})
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
			if key := (InstanceKey{n.app, i.ID}); i.source == c.Source && !stands[key] {
				gone = append(gone, key)
			}
		}
	}
	return gone
}

func (n *node) find(source, id string) (int, bool) {
	return slices.BinarySearchFunc(n.instances, instance{source, catalog.Instance{ID: id}}, func(a, b instance) int {
		if c := strings.Compare(a.source, b.source); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
}

func (g *Graph) putInstance(i instance) {
	n := g.node(i.App)
	at, found := n.find(i.source, i.ID)
	switch {
	case !found:
		n.instances = slices.Insert(n.instances, at, i)
		g.counts.Instances++
		g.counts.drain(i.Draining, 1)
	case n.instances[at] == i:
		return
	default:
		g.counts.drain(n.instances[at].Draining, -1)
		g.counts.drain(i.Draining, 1)
		n.instances[at] = i
	}
	g.instancesChanged(n)
}

func (g *Graph) deleteInstance(source string, key InstanceKey) {
	n := g.apps[key.App]
	if n == nil {
		return
	}
	at, found := n.find(source, key.ID)
	if !found {
		return
	}
	g.counts.Instances--
	g.counts.drain(n.instances[at].Draining, -1)
	n.instances = slices.Delete(n.instances, at, at+1)
	g.instancesChanged(n)
	g.release(n)
}

// instancesChanged reaches whoever may call the app, the gateway and the peers that
// it is exported to - if those ready are others than before.
func (g *Graph) instancesChanged(n *node) {
	g.dirty.present(n)
	ready := n.readyAddresses()
	if slices.Equal(ready, n.ready) {
		return
	}
	n.ready = ready
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
		if !n.instances[i].Draining {
			ready = append(ready, n.instances[i].Address.String())
		}
	}
	slices.Sort(ready)
	return slices.Clip(slices.Compact(ready))
}
