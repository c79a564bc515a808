package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// interests are the exports of other clusters of which this one wants to know all, by cluster, of those
// followed. Of others the name is enough: see [PeerExport.Named].
type interests struct {
	*nodes
	actors *actors
	kept   map[string]*Need
}

func newInterests(ns *nodes, as *actors) *interests { return &interests{ns, as, map[string]*Need{}} }

// Need is what this cluster needs of another one. It is immutable.
type Need struct {
	Apps *catalog.AppSet // all that the cluster says of these; of other apps the name
	// Used tells whether anything here may lead there: one of these apps, a route that names the
	// cluster, or actors.
	Used bool
}

// interest marks an app that may be wanted of a cluster from now on, or no more.
func (d *dirty) interest(c *cluster, n *node) {
	d.need(c)
	d.interests[c.name][n] = struct{}{}
}

// need marks a cluster that may be used from now on, or no more.
func (d *dirty) need(c *cluster) {
	if d.interests[c.name] == nil {
		d.interests[c.name] = map[*node]struct{}{}
	}
}

// interestChanged marks an app whose callers have changed.
func (ns *nodes) interestChanged(n *node) {
	for i := range n.remote {
		if c := ns.clusters[n.remote[i].cluster]; c != nil {
			ns.dirty.interest(c, n)
		}
	}
}

// has tells whether somebody here may be led to an app that the cluster exports: by a selection,
// or by a default that an app may follow at any moment. Of guests everything is wanted.
func (in *interests) has(c *cluster, n *node) bool {
	switch _, exported := c.exports[n]; {
	case !exported:
		return false
	case c.guest() != nil || in.defaults.hold(n.app):
		return true
	}
	for caller, index := range n.callers {
		if index == selfIndex {
			continue
		}
		routes := caller.selection.Endpoints[index].Routes
		if len(routes) == 0 || slices.ContainsFunc(routes, func(r catalog.RouteSpec) bool { return r.Cluster == c.name }) {
			return true
		}
	}
	return false
}

// foretold tells whether a trial is what first leads to an app of a cluster. It then has what will be
// once the cluster has told all of the app.
func (ns *nodes) foretold(c *cluster, n *node) bool {
	if ns.saved == nil {
		return false
	}
	before := ns.saved.interests[c.name]
	return before != nil && !before.Apps.Has(n.app)
}

// keep starts to keep what is wanted of a cluster, and returns it.
func (in *interests) keep(cluster string) *Need {
	var apps []catalog.App
	c := in.clusters[cluster]
	if c != nil {
		for n := range c.exports {
			if in.has(c, n) {
				apps = append(apps, n.app)
			}
		}
	}
	var none *catalog.AppSet
	in.kept[cluster] = in.need(c, none.With(apps, nil))
	return in.kept[cluster]
}

func (in *interests) need(c *cluster, apps *catalog.AppSet) *Need {
	return &Need{apps, apps.Len() > 0 || c != nil && (c.guest() != nil || len(c.named) > 0) || in.actors.used()}
}

func (in *interests) flush(d *dirty, u *Update) {
	tell := func(cluster string, now *Need) {
		if u.Interests == nil {
			u.Interests = map[string]*Need{}
		}
		in.kept[cluster], u.Interests[cluster] = now, now
	}
	if d.all {
		for cluster := range in.kept {
			tell(cluster, in.keep(cluster))
		}
		return
	}
	if len(d.actorTypes)+len(d.actors) > 0 {
		for _, c := range in.clusters {
			d.need(c)
		}
	}
	for cluster, touched := range d.interests {
		kept, followed := in.kept[cluster]
		if !followed {
			continue
		}
		var put, removed []catalog.App
		c := in.clusters[cluster]
		for n := range touched {
			now := in.apps[n.app]
			if c != nil && now != nil && in.has(c, now) {
				put = append(put, n.app)
			} else {
				removed = append(removed, n.app)
			}
		}
		if now := in.need(c, kept.Apps.With(put, removed)); *now != *kept {
			tell(cluster, now)
		}
	}
}
