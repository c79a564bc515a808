package topology

import (
	"maps"
	"net/netip"
	"slices"

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
	callers    map[netip.Addr]struct{} // who has the IP address
	clusters   bool                    // Cluster objects
}

func (d *dirty) reset() {
	*d = dirty{
		entries: map[*node]map[*node]struct{}{}, selections: map[*node]struct{}{}, presents: map[*node]struct{}{},
		exports: map[*node]struct{}{}, peers: map[string]struct{}{},
		callers: map[netip.Addr]struct{}{},
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

func (d *dirty) selection(n *node) { d.selections[n] = struct{}{} }
func (d *dirty) present(n *node)   { d.presents[n] = struct{}{} }
func (d *dirty) exported(n *node)  { d.exports[n] = struct{}{} }
func (d *dirty) peer(name string)  { d.peers[name] = struct{}{} }

// Update is what a change altered, ready to be published.
type Update struct {
	Revision uint64
	Views    []ViewUpdate
	Open     *catalog.View         // nil if it stays
	Gateway  *catalog.GatewayTable // nil if it stays
	Peers    map[string]*PeerView  // those that changed
	Callers  *catalog.Callers      // nil if they stay
	Clusters *catalog.Gateways     // nil if they stay
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
		u.Views = append(u.Views, g.rebuild(n, u.Revision))
	}
	for n, callees := range d.entries {
		if _, whole := d.selections[n]; !whole && n.selection != nil {
			g.refresh(n, callees, &u)
		}
	}
	g.flushOpen(&d, &u)
	g.flushExports(&d, &u)
	g.flushCallers(&d, &u)
	g.flushClusters(&d, &u)
	g.renumberOpen(&u)
	if u.empty() {
		u.Revision = g.revision
	}
	g.revision = u.Revision
	return u
}

func (u *Update) empty() bool {
	return len(u.Views) == 0 && u.Open == nil && u.Gateway == nil && len(u.Peers) == 0 && u.Callers == nil && u.Clusters == nil
}

// renumberOpen gives the view of apps without a selection the update's revision when
// an app has just lost its own, so that this app sees no revision go backwards.
func (g *Graph) renumberOpen(u *Update) {
	lost := slices.ContainsFunc(u.Views, func(v ViewUpdate) bool { return v.View == nil })
	if lost && u.Open == nil {
		g.open = g.open.Renumbered(u.Revision)
		u.Open = g.open
	}
}

// Raise numbers the view that an app follows from above a revision.
func (g *Graph) Raise(app catalog.App, revision uint64) Update {
	if !g.synced {
		g.revision = max(g.revision, revision)
		return Update{Revision: g.revision}
	}
	n := g.apps[app]
	own := n != nil && n.view != nil
	if own && n.view.Revision >= revision || !own && g.open.Revision >= revision {
		return Update{Revision: g.revision}
	}
	g.revision = max(g.revision, revision) + 1
	u := Update{Revision: g.revision}
	if own {
		n.view = n.view.Renumbered(g.revision)
		u.Views = []ViewUpdate{{app, n.view}}
	} else {
		g.open = g.open.Renumbered(g.revision)
		u.Open = g.open
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
		if n.export != nil {
			d.exports[n] = struct{}{}
		}
	}
}

// rebuild computes an app's whole view; entries that come out as they were are kept.
func (g *Graph) rebuild(n *node, revision uint64) ViewUpdate {
	if n.selection == nil {
		return ViewUpdate{App: n.app}
	}
	g.remember(n)
	n.uses = nil
	entries := make([]catalog.Edit[*catalog.Entry], 0, len(n.selection.Endpoints)+1)
	keep := func(callee *node, index int32) {
		e := g.entry(n, callee, index)
		if n.view != nil {
			if old, ok := n.view.Entries.Get(e.App); ok && old.Same(e) {
				e = old
			}
		}
		n.count(e, 1)
		entries = append(entries, catalog.Edit[*catalog.Entry]{App: e.App, Value: e})
	}
	keep(n, selfIndex)
	for i := range n.selection.Endpoints {
		keep(g.apps[n.selection.Endpoints[i].App], int32(i))
	}
	n.view = &catalog.View{Revision: revision, Entries: catalog.NewTable(entries), Gateways: g.gatewaysFor(n), Rule: n.selection.Rule()}
	return ViewUpdate{n.app, n.view}
}

// refresh computes single entries of an app's view.
func (g *Graph) refresh(n *node, callees map[*node]struct{}, u *Update) {
	edits := make([]catalog.Edit[*catalog.Entry], 0, len(callees))
	for callee := range callees {
		index, ok := callee.callers[n]
		if !ok {
			continue
		}
		next := g.entry(n, callee, index)
		old, had := n.view.Entries.Get(callee.app)
		if had && old.Same(next) {
			continue
		}
		if had {
			n.count(old, -1)
		}
		n.count(next, 1)
		edits = append(edits, catalog.Edit[*catalog.Entry]{App: callee.app, Value: next})
	}
	gateways := g.gatewaysFor(n)
	if len(edits) == 0 && gateways.Equal(n.view.Gateways) {
		return
	}
	g.remember(n)
	n.view = &catalog.View{Revision: u.Revision, Entries: n.view.Entries.With(edits...), Gateways: gateways, Rule: n.view.Rule}
	u.Views = append(u.Views, ViewUpdate{n.app, n.view})
}

// count notes which clusters' gateways an entry leads to.
func (n *node) count(e *catalog.Entry, by int) {
	for i := range e.Routes {
		r := &e.Routes[i]
		if !r.Gateway {
			continue
		}
		if n.uses == nil {
			n.uses = map[string]int{}
		}
		if n.uses[r.Cluster] += by; n.uses[r.Cluster] == 0 {
			delete(n.uses, r.Cluster)
		}
	}
}

func (g *Graph) gatewaysFor(n *node) *catalog.Gateways {
	return g.gateways(slices.Sorted(maps.Keys(n.uses)))
}

// flushOpen brings the view of apps without a selection up to date.
func (g *Graph) flushOpen(d *dirty, u *Update) {
	if !g.cfg.Open {
		if d.all {
			g.open = g.open.Renumbered(u.Revision)
			u.Open = g.open
		}
		return
	}
	edits := g.openEdits(d.presents)
	if len(edits) > 0 || d.all {
		g.open = &catalog.View{Revision: u.Revision, Open: true, Entries: g.open.Entries.With(edits...), Gateways: g.open.Gateways, Rule: g.open.Rule}
		u.Open = g.open
	}
}

func (g *Graph) openEdits(touched map[*node]struct{}) []catalog.Edit[*catalog.Entry] {
	var edits []catalog.Edit[*catalog.Entry]
	for n := range touched {
		old, had := g.open.Entries.Get(n.app)
		if !n.present() {
			if had && !g.stillPresent(n) {
				edits = append(edits, catalog.Edit[*catalog.Entry]{App: n.app, Remove: true})
			}
			continue
		}
		if next := g.localEntry(n, catalog.Rule{}); !had || !old.Same(next) {
			edits = append(edits, catalog.Edit[*catalog.Entry]{App: n.app, Value: next})
		}
	}
	return edits
}

// stillPresent tells whether an app that was released has come back as another node.
func (g *Graph) stillPresent(n *node) bool {
	now := g.apps[n.app]
	return now != nil && now.present()
}

// flushExports brings the gateway's table and the peers' views up to date.
func (g *Graph) flushExports(d *dirty, u *Update) {
	backends := g.backendEdits(d.exports)
	if len(backends) > 0 || d.all {
		next := *g.gateway
		next.Revision, next.Backends = u.Revision, next.Backends.With(backends...)
		g.gateway = &next
		u.Gateway = g.gateway
	}
	if len(d.exports) == 0 && len(d.peers) == 0 && !d.all {
		return // as when another cluster's app has changed: no peer need be looked at
	}
	for peer, view := range g.peers {
		touched := d.exports
		if _, whole := d.peers[peer]; whole || d.all {
			touched = g.everyExport(touched)
		}
		edits := g.exportEdits(peer, view, touched)
		if len(edits) == 0 && !d.all {
			continue
		}
		if u.Peers == nil {
			u.Peers = map[string]*PeerView{}
		}
		g.peers[peer] = &PeerView{Revision: u.Revision, Exports: view.Exports.With(edits...)}
		u.Peers[peer] = g.peers[peer]
	}
}

func (g *Graph) backendEdits(touched map[*node]struct{}) []catalog.Edit[*catalog.Backend] {
	var edits []catalog.Edit[*catalog.Backend]
	for n := range touched {
		old, had := g.gateway.Backends.Get(n.app)
		now := g.apps[n.app]
		g.warnKept(now)
		switch {
		case now == nil || now.export == nil:
			if had {
				edits = append(edits, catalog.Edit[*catalog.Backend]{App: n.app, Remove: true})
			}
		case !had || !slices.Equal(old.Instances, g.exportable(now)):
			ready := g.exportable(now)
			next := &catalog.Backend{App: n.app, Instances: ready, Shards: assign(old, ready, shardsOf(len(ready))), Tokens: g.tokensOf(now)}
			edits = append(edits, catalog.Edit[*catalog.Backend]{App: n.app, Value: next})
		}
	}
	return edits
}

func (g *Graph) everyExport(and map[*node]struct{}) map[*node]struct{} {
	every := maps.Clone(and)
	for key := range g.objects {
		if key.Kind == catalog.KindAppExport {
			every[g.apps[catalog.App{Namespace: key.Namespace, ID: key.Name}]] = struct{}{}
		}
	}
	return every
}

func (g *Graph) exportEdits(peer string, view *PeerView, touched map[*node]struct{}) []catalog.Edit[*PeerExport] {
	var edits []catalog.Edit[*PeerExport]
	for n := range touched {
		old, had := view.Exports.Get(n.app)
		var next *PeerExport
		if now := g.apps[n.app]; now != nil {
			next = g.toPeer(now, peer)
		}
		switch {
		case next == nil && had:
			edits = append(edits, catalog.Edit[*PeerExport]{App: n.app, Remove: true})
		case next != nil && (!had || !old.same(next)):
			edits = append(edits, catalog.Edit[*PeerExport]{App: n.app, Value: next})
		}
	}
	return edits
}

// Peer starts to keep the view of a peer, and returns it.
func (g *Graph) Peer(name string) *PeerView {
	if view := g.peers[name]; view != nil {
		return view
	}
	edits := g.exportEdits(name, &PeerView{}, g.everyExport(map[*node]struct{}{}))
	g.peers[name] = &PeerView{Revision: g.revision, Exports: catalog.NewTable(edits)}
	return g.peers[name]
}

// ForgetPeer stops keeping the view of a peer.
func (g *Graph) ForgetPeer(name string) { delete(g.peers, name) }
