package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// imports are what other clusters export to this one.
type imports struct {
	*nodes
	ramps    *ramps
	actors   *actors
	changed  map[*cluster]*addressChanges // of the change that is being taken in
	gateways *catalog.Gateways            // of every cluster with an object
}

func newImports(ns *nodes, rs *ramps, as *actors) *imports {
	return &imports{nodes: ns, ramps: rs, actors: as, changed: map[*cluster]*addressChanges{}, gateways: &catalog.Gateways{Domain: ns.cfg.Domain}}
}

func (im *imports) takePeer(p *PeerChange) {
	c := im.cluster(p.Cluster)
	switch p.Lease {
	case Fresh, Damped, Expired, Resting:
		im.setSilent(c, false)
		im.setLease(c, p.Lease)
	case Silent:
		im.setSilent(c, true)
	case Forgotten:
		im.setSilent(c, false)
		im.forget(c)
	}
	if p.Full {
		stands := make(map[catalog.App]bool, len(p.Put))
		for i := range p.Put {
			stands[p.Put[i].App] = true
		}
		for n := range c.exports {
			if !stands[n.app] {
				im.setRemote(c, n, nil)
			}
		}
		for app := range c.offers {
			if !stands[app] {
				c.removeOffer(app)
			}
		}
		im.actors.keep(c.name, stands)
	}
	for _, app := range p.Delete {
		if a, ok := app.Actors(); ok {
			im.actors.setRemote(a, c.name, nil)
		} else if n := im.apps[app]; n != nil {
			im.setRemote(c, n, nil)
		} else {
			c.removeOffer(app)
		}
	}
	for i := range p.Put {
		if a, ok := p.Put[i].App.Actors(); ok {
			im.actors.setRemote(a, c.name, &p.Put[i])
		} else if im.isOffer(c, &p.Put[i]) {
			c.putOffer(&p.Put[i])
		} else {
			export := p.Put[i] // apart, so that it holds no others of the change
			im.setRemote(c, im.node(export.App), &export)
		}
	}
	im.releaseCluster(c)
}

func (im *imports) setLease(c *cluster, lease Lease) {
	resting, damped := lease == Resting, lease == Damped
	lapsed := lease != Fresh && !resting
	if c.heard && c.lapsed == lapsed && c.damped == damped && c.resting == resting {
		return
	}
	// A lease that runs out before the first word has nothing to withdraw.
	if !c.heard && lease == Expired {
		return
	}
	if lapsed {
		im.ramps.breakOff(c)
	} else if c.heard && !c.resting && !resting && c.object != nil {
		im.ramps.begin(rampKey{cluster: c.name}, c.object.RampUp)
	}
	im.dirty.clusters = im.dirty.clusters || !c.heard
	if c.tunnelled() && !c.heard {
		im.dirty.tunnel(c)
	}
	c.heard, c.lapsed, c.damped, c.resting = true, lapsed, damped, resting
	im.actors.clusterChanged()
	im.dirtyCluster(c)
}

// setSilent notes whether a cluster that is asked does not answer.
func (im *imports) setSilent(c *cluster, silent bool) {
	if c.silent != silent {
		c.silent = silent
		if c.unheard() {
			im.dirtyCluster(c)
		}
	}
}

func (im *imports) forget(c *cluster) {
	if c.heard {
		im.ramps.breakOff(c)
		c.heard, c.lapsed, c.damped, c.resting = false, false, false, false
		if c.tunnelled() {
			im.dirty.tunnel(c)
		}
		im.dirty.clusters = true
		im.actors.clusterChanged()
		im.dirtyCluster(c)
	}
}

// setRemote takes in what a peer says of an app; nil: it exports the app no more.
func (im *imports) setRemote(c *cluster, n *node, export *PeerExport) {
	var old *PeerExport
	if had := n.remote.of(c.name); had != nil {
		if old = had.PeerExport; had.left != nil {
			im.addressChangesOf(c).touch(n)
		}
	}
	if old == export || old != nil && export != nil && old.same(export) {
		return
	}
	im.ramps.remoteRamp(c, n, old, export)
	if im.onNetwork(c) {
		im.name(c, n, old.addresses(), export.addresses())
	}
	if export == nil {
		n.remote.remove(c.name)
	} else {
		n.remote.put(c.name, export)
	}
	if (old == nil) != (export == nil) {
		im.exportedBy(c, n, export != nil)
	}
	for caller := range n.callers {
		im.dirty.entry(caller, n)
	}
	if len(n.takes) > 0 {
		im.dirty.present(n)
	}
	im.release(n)
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
		slices.Equal(e.Allow, o.Allow) && slices.Equal(e.Addresses, o.Addresses) && slices.Equal(e.Instances, o.Instances) && e.Named == o.Named && e.Zones.Equal(o.Zones) && e.Versions.Equal(o.Versions) &&
		(e.Actor == nil) == (o.Actor == nil) && (e.Actor == nil || *e.Actor == *o.Actor)
}

// flushClusters brings the gateways of every cluster with an object up to date, and which of
// them have not been heard. Guests are none of them: nobody is led there by a name.
func (im *imports) flushClusters(d *dirty, u *Update) {
	if !d.clusters && !d.all {
		return
	}
	next := &catalog.Gateways{Domain: im.cfg.Domain, Addresses: map[string][]string{}, Apps: map[string][]catalog.AppGateway{}}
	for name, c := range im.clusters {
		if c.object == nil || c.guest() != nil {
			continue
		}
		next.Addresses[name] = c.object.Gateways
		if len(c.object.AppGateways) > 0 {
			next.Apps[name] = c.object.AppGateways
		}
		if !c.heard && name != im.cfg.Cluster {
			next.Unheard = append(next.Unheard, name)
		}
	}
	slices.Sort(next.Unheard)
	if d.all || !next.Equal(im.gateways) {
		im.gateways = next
		u.Clusters = next
	}
}
