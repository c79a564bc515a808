package topology

import (
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func (g *Graph) takeObjects(c *ObjectChange) {
	if c.Full {
		for _, key := range g.missing(c) {
			g.deleteObject(key)
		}
		if !g.synced {
			g.synced = true
			g.dirty.all = true
		}
	}
	for _, key := range c.Delete {
		g.deleteObject(key)
	}
	for _, object := range c.Put {
		g.putObject(object)
	}
}

// missing are the objects that a full set does not name.
func (g *Graph) missing(c *ObjectChange) []catalog.Key {
	stands := make(map[catalog.Key]bool, len(c.Put)+len(c.Keep))
	for _, object := range c.Put {
		stands[object.Key()] = true
	}
	for _, key := range c.Keep {
		stands[key] = true
	}
	var gone []catalog.Key
	for key := range g.objects {
		if !stands[key] {
			gone = append(gone, key)
		}
	}
	return gone
}

func (g *Graph) putObject(object catalog.Object) {
	key := object.Key()
	if old := g.objects[key]; old != nil && reflect.DeepEqual(old, object) {
		return
	}
	if g.objects[key] == nil {
		g.counts.object(key.Kind, 1)
	}
	g.objects[key] = object
	switch o := object.(type) {
	case *catalog.ActorType:
		g.setActorType(o.Key(), o)
	case *catalog.AppEndpoints:
		if o.IsDefault() {
			g.setDefault(o.App.Namespace, o)
		} else {
			g.setOwn(g.node(o.App), o)
		}
	case *catalog.AppExport:
		g.setExport(g.node(o.App), o)
	case *catalog.Cluster:
		g.setCluster(g.cluster(o.Name), o)
	}
}

func (g *Graph) deleteObject(key catalog.Key) {
	if g.objects[key] == nil {
		return
	}
	delete(g.objects, key)
	g.counts.object(key.Kind, -1)
	app := catalog.App{Namespace: key.Namespace, ID: key.Name}
	switch key.Kind {
	case catalog.KindActorType:
		g.setActorType(key, nil)
	case catalog.KindAppEndpoints:
		if app.ID == catalog.DefaultName {
			g.setDefault(app.Namespace, nil)
		} else {
			g.setOwn(g.node(app), nil)
		}
	case catalog.KindAppExport:
		g.setExport(g.node(app), nil)
		if app == catalog.BridgeApp(app.Namespace, g.cfg.Cluster) {
			g.exportBridge(app.Namespace)
		}
	case catalog.KindCluster:
		g.setCluster(g.cluster(key.Name), nil)
	}
}

// setSelection replaces an app's selection. Endpoints that stay as they were, in
// the same place, are not computed again.
func (g *Graph) setSelection(n *node, next *catalog.AppEndpoints) {
	old := n.selection
	if old != nil {
		g.disconnect(n, old)
	}
	g.views.remember(n)
	n.selection = next
	if next == nil {
		n.view, n.uses = nil, nil
		delete(n.callers, n)
	} else {
		g.connect(n, next)
	}
	g.dirty.selection(n)
	g.dirty.present(n)
	if old != nil {
		g.releaseEndpoints(old)
	}
	g.release(n)
	if old != nil && len(old.Actors) > 0 || next != nil && len(next.Actors) > 0 {
		g.reselectBridge(n.app.Namespace)
	}
}

func (g *Graph) connect(n *node, s *catalog.AppEndpoints) {
	n.connect(n, selfIndex)
	g.actors.setSelection(n, s, true)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		callee := g.node(e.App)
		if _, there := callee.callers[n]; there {
			continue // the app itself, or a second time, as it may be in a default
		}
		n.connect(callee, int32(i))
		g.accesses.callerChanged(e.App, n)
		for _, route := range e.Routes {
			if g.isHere(route.Cluster) {
				continue
			}
			c := g.cluster(route.Cluster)
			if c.named[n] == nil {
				c.named[n] = map[*node]struct{}{}
			}
			c.named[n][callee] = struct{}{}
		}
	}
}

func (g *Graph) disconnect(n *node, s *catalog.AppEndpoints) {
	g.actors.setSelection(n, s, false)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if callee := g.apps[e.App]; callee != nil {
			delete(callee.callers, n)
		}
		g.accesses.callerChanged(e.App, n)
		for _, route := range e.Routes {
			if c := g.clusters[route.Cluster]; c != nil {
				delete(c.named, n)
			}
		}
	}
}

func (g *Graph) releaseEndpoints(s *catalog.AppEndpoints) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if callee := g.apps[e.App]; callee != nil {
			g.release(callee)
		}
		for _, route := range e.Routes {
			if c := g.clusters[route.Cluster]; c != nil {
				g.releaseCluster(c)
			}
		}
	}
}

func (g *Graph) setExport(n *node, next *catalog.AppExport) {
	n.export, n.consent = next, nil
	if next != nil {
		n.consent = allowedIn(next.Allow, func(a catalog.Allow) bool { return a.ForOwn(g.cfg.Cluster) })
	}
	g.reselect(n)
	g.dirty.exported(n)
	g.accesses.exportChanged(n.app)
	g.dirty.present(n)
	g.release(n)
}

// setCluster reaches the routes that name the cluster, the apps that it exports, and
// what is told to it as a peer.
func (g *Graph) setCluster(c *cluster, next *catalog.Cluster) {
	old, near := c.object, g.onNetwork(c)
	c.object = next
	now := g.onNetwork(c)
	if now != near || now && !slices.Equal(old.NetworkRanges, next.NetworkRanges) {
		g.imports.networkChanged(c, now)
	}
	clear(g.views.shared)
	g.dirty.clusters = true
	g.dirtyCluster(c)
	g.accesses.clusterChanged(old, next)
	g.actors.clusterChanged()
	if (old == nil) != (next == nil) {
		g.reselectBridges()
	}
	if (old == nil) != (next == nil) || next != nil && old.Network != next.Network {
		g.dirty.peer(c.name)
	}
	g.releaseCluster(c)
}

// dirtyCluster marks every entry with a route through the cluster.
func (ns *nodes) dirtyCluster(c *cluster) { c.eachCall(ns.dirty.entry) }
