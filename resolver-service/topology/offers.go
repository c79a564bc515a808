package topology

import (
	"iter"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// offer is an export of which only the name is told, of an app that this cluster has nothing to do
// with. There may be hundreds of thousands, so it is as small as it gets: no node, and one list of
// callers for all offers of a cluster that have the same.
type offer struct {
	allow *[]catalog.Allow
	ready bool
}

// export is the offer as what was told.
func (o offer) export(app catalog.App) *PeerExport {
	e := &PeerExport{App: app, Allow: *o.allow, Named: true}
	if o.ready {
		e.Ready = 1
	}
	return e
}

// fewLists is how many lists of callers are compared with a new one.
const fewLists = 16

func (c *cluster) putOffer(e *PeerExport) {
	at := slices.IndexFunc(c.lists, func(l *[]catalog.Allow) bool { return slices.Equal(*l, e.Allow) })
	if at < 0 {
		if len(c.lists) == fewLists {
			c.lists = c.lists[1:]
		}
		allow := slices.Clone(e.Allow) // so that it holds nothing else of what was told
		c.lists = append(c.lists, &allow)
		at = len(c.lists) - 1
	}
	if c.offers == nil {
		c.offers = map[catalog.App]offer{}
	}
	c.offers[e.App] = offer{c.lists[at], e.Ready > 0}
}

func (c *cluster) removeOffer(app catalog.App) {
	if delete(c.offers, app); len(c.offers) == 0 {
		c.offers, c.lists = nil, nil // a map that was large stays large
	}
}

// isOffer tells whether an export is kept as an offer.
func (ns *nodes) isOffer(c *cluster, e *PeerExport) bool {
	return e.Named && ns.apps[e.App] == nil && c.guest() == nil && !ns.defaults.hold(e.App)
}

// adopt makes an app's offers exports of its node, which is new.
func (ns *nodes) adopt(n *node) {
	for _, c := range ns.clusters {
		if o, there := c.offers[n.app]; there {
			c.removeOffer(n.app)
			n.remote.put(c.name, o.export(n.app))
			ns.exportedBy(c, n, true)
		}
	}
}

// exportedBy notes that a cluster exports an app that has a node, or no more.
func (ns *nodes) exportedBy(c *cluster, n *node, exported bool) {
	if exported {
		c.exports[n] = struct{}{}
	} else {
		delete(c.exports, n)
	}
	ns.dirty.interest(c, n)
	if c.tunnelled() {
		ns.dirty.tunnel(c, n)
	}
}

// offered makes the exports of a node that goes offers again. All of them are named only.
func (ns *nodes) offered(n *node) {
	for i := range n.remote {
		c := ns.cluster(n.remote[i].cluster)
		ns.exportedBy(c, n, false)
		c.putOffer(n.remote[i].PeerExport)
	}
}

// namedOnly tells whether other clusters say no more of an app than its name.
func (r remotes) namedOnly() bool {
	return !slices.ContainsFunc(r, func(i imported) bool { return !i.Named })
}

// remotesOf are the exports of an app, whether or not it has a node.
func (ns *nodes) remotesOf(app catalog.App) (all remotes) {
	if n := ns.apps[app]; n != nil {
		return n.remote
	}
	return ns.offersOf([]catalog.App{app})[app]
}

// offersOf are the exports of those apps that have no node. It looks at each offer or each app once
// for a cluster, whichever are fewer.
func (ns *nodes) offersOf(apps []catalog.App) map[catalog.App]remotes {
	all := map[catalog.App]remotes{}
	for _, app := range apps {
		if ns.apps[app] == nil {
			all[app] = nil
		}
	}
	for name, c := range ns.clusters {
		take := func(app catalog.App, o offer) {
			if exports, asked := all[app]; asked {
				exports.put(name, o.export(app))
				all[app] = exports
			}
		}
		if len(c.offers) < len(all) {
			for app, o := range c.offers {
				take(app, o)
			}
			continue
		}
		for app := range all {
			if o, there := c.offers[app]; there {
				take(app, o)
			}
		}
	}
	return all
}

// offeredApps are the apps without a node that a cluster offers, or any if it is empty; each once.
func (ns *nodes) offeredApps(cluster string) iter.Seq[catalog.App] {
	if cluster != "" {
		c := ns.clusters[cluster]
		if c == nil {
			return maps.Keys(map[catalog.App]offer(nil))
		}
		return maps.Keys(c.offers)
	}
	all := map[catalog.App]struct{}{}
	for _, c := range ns.clusters {
		for app := range c.offers {
			all[app] = struct{}{}
		}
	}
	return maps.Keys(all)
}
