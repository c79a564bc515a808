package topology

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// exportTables are what other clusters may know of this one: the gateway's table, and a view for
// each peer.
type exportTables struct {
	*nodes
	actors   *actors
	gateway  *catalog.GatewayTable
	peers    map[PeerKey]*PeerView
	telling  telling
	warnings []warning // that nobody was told of yet
}

func newExportTables(ns *nodes, as *actors) *exportTables {
	return &exportTables{
		nodes: ns, actors: as, peers: map[PeerKey]*PeerView{}, telling: telling{next: never, late: map[*node]*exportableInstances{}},
		gateway: &catalog.GatewayTable{Domain: ns.cfg.Domain, Kubernetes: ns.cfg.Kubernetes, Cluster: ns.cfg.Cluster},
	}
}

// toPeer is what a peer is told of an app, or nil.
func (x *exportTables) toPeer(n *node, peer string, by *Interest) *PeerExport {
	allow := x.allowedFrom(n, peer)
	if len(allow) == 0 {
		return nil
	}
	of, draining := x.exportableOf(n), n.draining
	c := x.clusters[peer]
	addresses := c != nil && x.onNetwork(c)
	if !addresses {
		t := x.told(n)
		of, draining = t.exportableInstances, t.draining
	}
	if !by.has(n.app) {
		return &PeerExport{App: n.app, Allow: allow, Ready: uint32(min(len(of.ready), 1)), Named: true}
	}
	export := &PeerExport{App: n.app, Allow: allow, Ready: uint32(len(of.ready)), Draining: draining, Shards: uint32(shardsOf(len(of.ready)))}
	export.Instances, _ = of.names()
	if addresses {
		export.Addresses = of.ready
	}
	if of.zones != nil || of.versions != nil {
		export.Zones, export.Versions = of.zones, of.versions
		if len(export.Addresses) > 0 {
			export.Instances = nil // a peer takes labels of one of the two
		} else {
			export.Zones, export.Versions = of.zones.First(len(export.Instances)), of.versions.First(len(export.Instances))
			if x.cfg.AnyInstance {
				export.Versions = nil
			}
		}
	}
	return export
}

// exported tells whether some other cluster may call an app. An AppExport may be for callers of this
// cluster alone, or for nobody.
func (ns *nodes) exported(n *node) bool {
	return ns.exportedToGuest(n) || n.export != nil && slices.ContainsFunc(n.export.Allow, func(a catalog.Allow) bool { return a.Outward(ns.cfg.Cluster) })
}

// allowTo are the callers in one cluster.
func allowTo(all []catalog.Allow, peer string) (allow []catalog.Allow) {
	for _, a := range all {
		if a.ForCluster(peer) {
			allow = append(allow, catalog.Allow{Cluster: peer, Namespace: a.Namespace, App: a.App})
		}
	}
	return allow
}

// flushExports brings the gateway's table and the peers' views up to date.
func (x *exportTables) flushExports(d *dirty, u *Update) {
	if len(x.guests) > 0 || d.guests { // whose apps without a selection may call all apps that are present
		maps.Copy(d.exports, d.presents)
	}
	backends := x.backendEdits(d.exports)
	if len(backends) > 0 || len(d.tunnels) > 0 || d.all {
		next := *x.gateway
		next.Revision, next.Backends, next.Tunnels = u.Revision, next.Backends.With(backends...), x.tunnels(d)
		x.gateway = &next
		u.Gateway = x.gateway
	}
	if len(d.exports) == 0 && len(d.peers) == 0 && len(d.actorTypes) == 0 && !d.all {
		return // as when another cluster's app has changed: no peer need be looked at
	}
	for key, view := range x.peers {
		touched, types := d.exports, d.actorTypes
		if _, whole := d.peers[key.Cluster]; whole || d.all {
			touched, types = x.everyExport(touched), x.actors.every(types)
		}
		edits := append(x.exportEdits(key.Cluster, view, touched), x.actors.exportEdits(key.Cluster, view, types)...)
		if len(edits) == 0 && !d.all {
			continue
		}
		if u.Peers == nil {
			u.Peers = map[PeerKey]*PeerView{}
		}
		x.peers[key] = &PeerView{u.Revision, view.Exports.With(edits...), view.interest}
		u.Peers[key] = x.peers[key]
	}
}

// tunnels are the apps that the gateway passes calls on to by tunnels.
func (x *exportTables) tunnels(d *dirty) map[string]catalog.Tunnels {
	next := maps.Clone(x.gateway.Tunnels)
	for c, touched := range d.tunnels {
		if !c.tunnelled() || x.clusters[c.name] != c {
			delete(next, c.name)
			continue
		}
		tunnels, had := next[c.name]
		if !had {
			touched = c.exports
		}
		var edits []catalog.Edit[struct{}]
		for n := range touched {
			now := x.apps[n.app] // a node may have been made anew
			_, exported := c.exports[now]
			exported = exported && (c.guest() == nil || now.takenBy(c))
			edits = append(edits, catalog.Edit[struct{}]{App: n.app, Remove: !exported})
		}
		if next == nil {
			next = map[string]catalog.Tunnels{}
		}
		next[c.name] = catalog.Tunnels{Apps: tunnels.Apps.With(edits...), Heard: c.heard}
	}
	return next
}

func (x *exportTables) backendEdits(touched map[*node]struct{}) []catalog.Edit[*catalog.Backend] {
	var edits []catalog.Edit[*catalog.Backend]
	for n := range touched {
		old, had := x.gateway.Backends.Get(n.app)
		now := x.apps[n.app]
		x.warnKept(now)
		switch {
		case now == nil || !x.exported(now):
			if had {
				edits = append(edits, catalog.Edit[*catalog.Backend]{App: n.app, Remove: true})
			}
		default:
			of := x.exportableOf(now)
			ready := of.ready
			tokens, versioned := of.names()
			if had && slices.Equal(old.Instances, ready) && slices.Equal(old.Versioned, versioned) {
				continue
			}
			next := &catalog.Backend{App: n.app, Instances: ready, Shards: assign(old, ready, shardsOf(len(ready))), Tokens: tokens, Versioned: versioned}
			edits = append(edits, catalog.Edit[*catalog.Backend]{App: n.app, Value: next})
		}
	}
	return edits
}

func (x *exportTables) everyExport(and map[*node]struct{}) map[*node]struct{} {
	every := maps.Clone(and)
	for _, n := range x.apps {
		if n.export != nil || len(x.guests) > 0 {
			every[n] = struct{}{}
		}
	}
	return every
}

func (x *exportTables) exportEdits(peer string, view *PeerView, touched map[*node]struct{}) []catalog.Edit[*PeerExport] {
	var edits []catalog.Edit[*PeerExport]
	for n := range touched {
		old, had := view.Exports.Get(n.app)
		var next *PeerExport
		if now := x.apps[n.app]; now != nil {
			next = x.toPeer(now, peer, view.interest)
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

// Peer starts to keep the view of a peer by its interest, and returns it.
func (g *Graph) Peer(name string, by *Interest) *PeerView { return g.peer(name, by, nil) }

// peer is Peer for who had another interest before: if that has a view, only what differs is looked at.
func (g *Graph) peer(name string, by, before *Interest) *PeerView {
	key, from, touched := by.Key(name), &PeerView{interest: by}, map[*node]struct{}(nil)
	if view := g.exports.peers[key]; view != nil {
		return view
	}
	if view := g.exports.peers[before.Key(name)]; view != nil && by != nil && before != nil {
		from, touched = &PeerView{Exports: view.Exports, interest: by}, map[*node]struct{}{}
		put, removed := by.Apps.Diff(before.Apps)
		for _, app := range slices.Concat(put, removed) {
			if n := g.apps[app]; n != nil {
				touched[n] = struct{}{}
			}
		}
	}
	var edits []catalog.Edit[*PeerExport]
	if touched == nil {
		touched = g.exports.everyExport(map[*node]struct{}{})
		edits = g.actors.exportEdits(name, from, g.actors.every(nil))
	}
	edits = append(edits, g.exports.exportEdits(name, from, touched)...)
	g.exports.peers[key] = &PeerView{g.revision, from.Exports.With(edits...), by}
	return g.exports.peers[key]
}
