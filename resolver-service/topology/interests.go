package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// interests are the exports of other clusters of which this one wants to know all, by cluster, of those
// followed. Of others the name is enough: see [PeerExport.Named].
type interests struct {
	*nodes
	kept map[string]*catalog.AppSet
}

func newInterests(ns *nodes) *interests { return &interests{ns, map[string]*catalog.AppSet{}} }

// interest marks an app that may be wanted of a cluster from now on, or no more.
func (d *dirty) interest(c *cluster, n *node) {
	if d.interests[c.name] == nil {
		d.interests[c.name] = map[*node]struct{}{}
	}
	d.interests[c.name][n] = struct{}{}
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
	case c.guest() != nil || in.inDefault(n.app):
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

// keep starts to keep what is wanted of a cluster, and returns it.
func (in *interests) keep(cluster string) *catalog.AppSet {
	if c := in.clusters[cluster]; c != nil {
		in.kept[cluster] = in.all(c)
	} else {
		in.kept[cluster] = nil
	}
	return in.kept[cluster]
}

func (in *interests) all(c *cluster) *catalog.AppSet {
	var apps []catalog.App
	for n := range c.exports {
		if in.has(c, n) {
			apps = append(apps, n.app)
		}
	}
	var none *catalog.AppSet
	return none.With(apps, nil)
}

func (in *interests) flush(d *dirty, u *Update) {
	tell := func(cluster string, now *catalog.AppSet) {
		if before := in.kept[cluster]; now != before || d.all {
			if u.Interests == nil {
				u.Interests = map[string]*catalog.AppSet{}
			}
			in.kept[cluster], u.Interests[cluster] = now, now
		}
	}
	if d.all {
		for cluster := range in.kept {
			tell(cluster, in.keep(cluster))
		}
		return
	}
	for cluster, touched := range d.interests {
		kept, followed := in.kept[cluster]
		if !followed {
			continue
		}
		var put, removed []catalog.App
		for n := range touched {
			c, now := in.clusters[cluster], in.apps[n.app]
			if c != nil && now != nil && in.has(c, now) {
				put = append(put, n.app)
			} else {
				removed = append(removed, n.app)
			}
		}
		tell(cluster, kept.With(put, removed))
	}
}
