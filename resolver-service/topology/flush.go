package topology

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// dirty is what a change has reached and flush has to compute again.
type dirty struct {
	all        bool // everything: the store's full set came in for the first time
	entries    map[*node]map[*node]struct{}
	selections map[*node]struct{} // whole views
	presents   map[*node]struct{} // in the view of apps without a selection
	exports    map[*node]struct{} // in the gateway's table and for peers
	peers      map[string]struct{}
	callers    map[netip.Addr]struct{}         // who has the IP address
	clusters   bool                            // Cluster objects
	guests     bool                            // which of them are guests, or what these may do
	actorTypes map[catalog.Actors]struct{}     // for peers
	actors     map[string]struct{}             // namespaces, for their bridges
	tunnels    map[*cluster]map[*node]struct{} // apps that are reached by a tunnel, or were
	interests  map[string]map[*node]struct{}   // by cluster, apps of which more may be wanted than before, or less
	offers     map[string]struct{}             // clusters that are allowed more than before, or less; empty for all
}

func (d *dirty) reset() {
	*d = dirty{
		entries: map[*node]map[*node]struct{}{}, selections: map[*node]struct{}{}, presents: map[*node]struct{}{},
		exports: map[*node]struct{}{}, peers: map[string]struct{}{},
		callers: map[netip.Addr]struct{}{}, actorTypes: map[catalog.Actors]struct{}{}, actors: map[string]struct{}{},
		tunnels: map[*cluster]map[*node]struct{}{}, interests: map[string]map[*node]struct{}{}, offers: map[string]struct{}{},
	}
}

func (d *dirty) entry(caller, callee *node) {
	callees := d.entries[caller]
	if callees == nil {
		callees = map[*node]struct{}{}
		d.entries[caller] = callees
	}
	callees[callee] = struct{}{}
}

// tunnel marks apps of a cluster in the gateway's table. Of a cluster that is new there, all are.
func (d *dirty) tunnel(c *cluster, apps ...*node) {
	if d.tunnels[c] == nil {
		d.tunnels[c] = map[*node]struct{}{}
	}
	for _, n := range apps {
		d.tunnels[c][n] = struct{}{}
	}
}

func (d *dirty) selection(n *node) { d.selections[n] = struct{}{} }
func (d *dirty) present(n *node)   { d.presents[n] = struct{}{} }
func (d *dirty) exported(n *node)  { d.exports[n] = struct{}{} }
func (d *dirty) peer(name string)  { d.peers[name] = struct{}{} }

// Update is what a change altered, ready to be published.
type Update struct {
	Revision  uint64
	Views     []ViewUpdate
	Open      *catalog.View                   // nil if it stays
	Gateway   *catalog.GatewayTable           // nil if it stays
	Peers     map[PeerKey]*PeerView           // those that changed
	Callers   *catalog.Callers                // nil if they stay
	Clusters  *catalog.Gateways               // nil if they stay
	Access    map[catalog.App]*catalog.Access // of those followed, those that changed
	Actors    map[string]*catalog.ActorView   // by namespace; of those followed, those that changed
	Interests map[string]*Need                // by cluster; of those followed, those that changed: see [Topology.Need]
}

// ViewUpdate is an app's new view; nil once the app has no selection.
type ViewUpdate struct {
	App  catalog.App
	View *catalog.View
}

// flush computes what is dirty. Before the store's full set is in, nothing is served,
// and nothing need be noted: with that set, everything is dirty.
func (g *Graph) flush() Update {
	if !g.synced {
		g.dirty.reset()
		g.accesses.dirty.reset()
		return Update{Revision: g.revision}
	}
	d := g.dirty
	g.dirty.reset()
	if d.all {
		g.markAll(&d)
	}
	g.countApps(d.presents)
	u := Update{Revision: g.revision + 1}
	for n := range d.selections {
		if now := g.apps[n.app]; now != nil && now != n && now.selection != nil {
			continue // released and back with a selection: the new node is dirty too
		}
		u.Views = append(u.Views, g.views.rebuild(n, u.Revision))
	}
	for n, callees := range d.entries {
		if _, whole := d.selections[n]; !whole && n.selection != nil {
			g.views.refresh(n, callees, &u)
		}
	}
	g.views.flushOpen(&d, &u)
	g.exports.flushExports(&d, &u)
	g.owners.flushCallers(&d, &u)
	g.imports.flushClusters(&d, &u)
	if len(g.guests) > 0 || d.guests {
		for n := range d.exports {
			g.accesses.exportChanged(n.app)
		}
	}
	g.accesses.flush(d.all, d.presents, &u)
	g.actors.flush(&d, &u)
	g.interests.flush(&d, &u)
	g.views.renumberOpen(&u)
	if u.empty() {
		u.Revision = g.revision
	}
	g.revision = u.Revision
	return u
}

func (u *Update) empty() bool {
	return len(u.Views) == 0 && u.Open == nil && u.Gateway == nil && len(u.Peers) == 0 && u.Callers == nil && u.Clusters == nil && len(u.Access) == 0 && len(u.Actors) == 0 && len(u.Interests) == 0
}

// Raise numbers the view that an app follows from above a revision.
func (g *Graph) Raise(app catalog.App, revision uint64) Update {
	if !g.synced {
		g.revision = max(g.revision, revision)
		return Update{Revision: g.revision}
	}
	n := g.apps[app]
	own := n != nil && n.view != nil
	if own && n.view.Revision >= revision || !own && g.views.open.Revision >= revision {
		return Update{Revision: g.revision}
	}
	g.revision = max(g.revision, revision) + 1
	u := Update{Revision: g.revision}
	if own {
		n.view = n.view.Renumbered(g.revision)
		u.Views = []ViewUpdate{{app, n.view}}
	} else {
		g.views.open = g.views.open.Renumbered(g.revision)
		u.Open = g.views.open
	}
	return u
}

// markAll makes dirty what was known before the store's full set came in.
func (g *Graph) markAll(d *dirty) {
	for _, n := range g.apps {
		d.presents[n] = struct{}{}
		if n.selection != nil {
			d.selections[n] = struct{}{}
		}
		if n.export != nil || len(g.guests) > 0 {
			d.exports[n] = struct{}{}
		}
	}
	for _, c := range g.clusters {
		if c.tunnelled() {
			d.tunnel(c)
		}
	}
}
