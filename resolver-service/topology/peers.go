package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func (g *Graph) takePeer(p *PeerChange) {
	c := g.cluster(p.Cluster)
	switch p.Lease {
	case Fresh, Damped, Expired:
		g.setLease(c, p.Lease)
	case Forgotten:
		g.forget(c)
	}
	if p.Full {
		stands := make(map[catalog.App]bool, len(p.Put))
		for i := range p.Put {
			stands[p.Put[i].App] = true
		}
		for n := range c.exports {
			if !stands[n.app] {
				g.setRemote(c, n, nil)
			}
		}
	}
	for _, app := range p.Delete {
		if n := g.apps[app]; n != nil {
			g.setRemote(c, n, nil)
		}
	}
	for i := range p.Put {
		g.setRemote(c, g.node(p.Put[i].App), &p.Put[i])
	}
	g.releaseCluster(c)
}

func (g *Graph) setLease(c *cluster, lease Lease) {
	lapsed, damped := lease != Fresh, lease == Damped
	if c.heard && c.lapsed == lapsed && c.damped == damped {
		return
	}
	// A lease that runs out before the first word has nothing to withdraw.
	if !c.heard && lease == Expired {
		return
	}
	if lapsed {
		g.breakOff(c)
	} else if c.heard && c.object != nil {
		g.begin(rampKey{cluster: c.name}, c.object.RampUp)
	}
	g.dirty.clusters = g.dirty.clusters || !c.heard
	c.heard, c.lapsed, c.damped = true, lapsed, damped
	g.dirtyCluster(c)
}

func (g *Graph) forget(c *cluster) {
	if c.heard {
		g.breakOff(c)
		c.heard, c.lapsed, c.damped = false, false, false
		g.dirty.clusters = true
		g.dirtyCluster(c)
	}
}

// setRemote takes in what a peer says of an app; nil: it exports the app no more.
func (g *Graph) setRemote(c *cluster, n *node, export *PeerExport) {
	var old *PeerExport
	if had := n.remote.of(c.name); had != nil {
		if old = had.PeerExport; had.left != nil {
			g.movesOf(c).touch(n)
		}
	}
	if old == export || old != nil && export != nil && old.same(export) {
		return
	}
	g.remoteRamp(c, n, old, export)
	if g.onNetwork(c) {
		g.name(c, n, old.addresses(), export.addresses())
	}
	if export == nil {
		n.remote.remove(c.name)
		delete(c.exports, n)
	} else {
		n.remote.put(c.name, export)
		c.exports[n] = struct{}{}
	}
	for caller := range n.callers {
		g.dirty.entry(caller, n)
	}
	g.release(n)
}

func (e *PeerExport) addresses() []string {
	if e == nil {
		return nil
	}
	return e.Addresses
}

// same tells whether two exports say the same.
func (e *PeerExport) same(o *PeerExport) bool {
	return e.App == o.App && e.Ready == o.Ready && e.Draining == o.Draining && e.Shards == o.Shards &&
		slices.Equal(e.Allow, o.Allow) && slices.Equal(e.Addresses, o.Addresses) && slices.Equal(e.Instances, o.Instances) && e.Zones.Equal(o.Zones)
}
