package topology

import (
	"maps"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// selections are the objects of the store, and what each app may call by them.
type selections struct {
	*nodes
	objects  map[catalog.Key]catalog.Object
	owners   *ownership
	imports  *imports
	views    *views
	accesses *accesses
	actors   *actors
	remarks  []remark // that nobody was told of yet
}

func (ss *selections) takeObjects(c *ObjectChange) {
	if c.Full {
		for _, key := range ss.missing(c) {
			ss.deleteObject(key)
		}
		if !ss.synced {
			ss.synced = true
			ss.dirty.all = true
		}
	}
	for _, key := range c.Delete {
		ss.deleteObject(key)
	}
	for _, object := range c.Put {
		ss.putObject(object)
	}
}

// missing are the objects that a full set does not name.
func (ss *selections) missing(c *ObjectChange) []catalog.Key {
	stands := make(map[catalog.Key]bool, len(c.Put)+len(c.Keep))
	for _, object := range c.Put {
		stands[object.Key()] = true
	}
	for _, key := range c.Keep {
		stands[key] = true
	}
	var gone []catalog.Key
	for key := range ss.objects {
		if !stands[key] {
			gone = append(gone, key)
		}
	}
	return gone
}

func (ss *selections) putObject(object catalog.Object) {
	key := object.Key()
	if old := ss.objects[key]; old != nil && reflect.DeepEqual(old, object) {
		return
	}
	if ss.objects[key] == nil {
		ss.counts.object(key.Kind, 1)
	}
	ss.objects[key] = object
	switch o := object.(type) {
	case *catalog.ActorType:
		ss.setActorType(o.Key(), o)
	case *catalog.AppEndpoints:
		if o.IsDefault() {
			ss.setDefault(o.App.Namespace, o)
		} else {
			ss.setOwn(ss.node(o.App), o)
		}
	case *catalog.AppExport:
		ss.setExport(ss.node(o.App), o)
	case *catalog.Cluster:
		ss.setCluster(ss.cluster(o.Name), o)
	}
}

func (ss *selections) deleteObject(key catalog.Key) {
	if ss.objects[key] == nil {
		return
	}
	delete(ss.objects, key)
	ss.counts.object(key.Kind, -1)
	app := catalog.App{Namespace: key.Namespace, ID: key.Name}
	switch key.Kind {
	case catalog.KindActorType:
		ss.setActorType(key, nil)
	case catalog.KindAppEndpoints:
		if app.ID == catalog.DefaultName {
			ss.setDefault(app.Namespace, nil)
		} else {
			ss.setOwn(ss.node(app), nil)
		}
	case catalog.KindAppExport:
		ss.setExport(ss.node(app), nil)
		if app == catalog.BridgeApp(app.Namespace, ss.cfg.Cluster) {
			ss.exportBridge(app.Namespace)
		}
	case catalog.KindCluster:
		ss.setCluster(ss.cluster(key.Name), nil)
	}
}

// setSelection replaces an app's selection. Endpoints that stay as they were, in
// the same place, are not computed again.
func (ss *selections) setSelection(n *node, next *catalog.AppEndpoints) {
	old := n.selection
	if len(n.guests) > 0 {
		ss.reachGuests(n)
		defer ss.reachGuests(n)
	}
	if old != nil {
		ss.disconnect(n, old)
	}
	ss.views.remember(n)
	n.selection = next
	if next == nil {
		n.view, n.uses = nil, nil
		delete(n.callers, n)
	} else {
		ss.connect(n, next)
	}
	ss.dirty.selection(n)
	ss.dirty.present(n)
	if old != nil {
		ss.releaseEndpoints(old)
	}
	ss.release(n)
	if old != nil && len(old.Actors) > 0 || next != nil && len(next.Actors) > 0 {
		ss.reselectBridge(n.app.Namespace)
	}
}

func (ss *selections) connect(n *node, s *catalog.AppEndpoints) {
	n.connect(n, selfIndex)
	ss.actors.setSelection(n, s, true)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		callee := ss.node(e.App)
		if _, there := callee.callers[n]; there {
			continue // the app itself, or a second time, as it may be in a default
		}
		n.connect(callee, int32(i))
		ss.interestChanged(callee)
		ss.accesses.callerChanged(e.App, n)
		for _, route := range e.Routes {
			if ss.isHere(route.Cluster) {
				continue
			}
			c := ss.cluster(route.Cluster)
			if c.named[n] == nil {
				c.named[n] = map[*node]struct{}{}
			}
			c.named[n][callee] = struct{}{}
			ss.dirty.need(c)
		}
	}
}

func (ss *selections) disconnect(n *node, s *catalog.AppEndpoints) {
	ss.actors.setSelection(n, s, false)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if callee := ss.apps[e.App]; callee != nil {
			delete(callee.callers, n)
			ss.interestChanged(callee)
		}
		ss.accesses.callerChanged(e.App, n)
		for _, route := range e.Routes {
			if c := ss.clusters[route.Cluster]; c != nil {
				delete(c.named, n)
				ss.dirty.need(c)
			}
		}
	}
}

func (ss *selections) releaseEndpoints(s *catalog.AppEndpoints) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if callee := ss.apps[e.App]; callee != nil {
			ss.release(callee)
		}
		for _, route := range e.Routes {
			if c := ss.clusters[route.Cluster]; c != nil {
				ss.releaseCluster(c)
			}
		}
	}
}

func (ss *selections) setExport(n *node, next *catalog.AppExport) {
	ss.dirty.offer(n.export, next)
	n.export, n.consent = next, nil
	if next != nil {
		n.consent = allowedIn(next.Allow, func(a catalog.Allow) bool { return a.ForOwn(ss.cfg.Cluster) })
	}
	ss.reselect(n)
	ss.dirty.exported(n)
	ss.accesses.exportChanged(n.app)
	ss.dirty.present(n)
	ss.release(n)
}

// setCluster reaches the routes that name the cluster, the apps that it exports, and
// what is told to it as a peer.
func (ss *selections) setCluster(c *cluster, next *catalog.Cluster) {
	old, near, tunnelled := c.object, ss.onNetwork(c), c.tunnelled()
	if next != nil && next.Tunnel == catalog.TunnelAccept {
		by := *next
		by.Gateways = ss.cfg.Tunnels
		next = &by
	}
	was := c.guest()
	c.object = next
	if c.tunnelled() != tunnelled {
		ss.dirty.tunnel(c)
	}
	ss.setGuest(c, was, c.guest())
	if (was == nil) != (c.guest() == nil) {
		ss.dirty.need(c)
		for _, app := range slices.Collect(maps.Keys(c.offers)) {
			ss.node(app)
		}
		for n := range c.exports {
			ss.dirty.interest(c, n)
		}
	}
	now := ss.onNetwork(c)
	if now != near || now && !slices.Equal(old.NetworkRanges, next.NetworkRanges) {
		ss.imports.networkChanged(c, now)
	}
	clear(ss.views.shared)
	ss.dirty.clusters = true
	ss.dirtyCluster(c)
	ss.accesses.clusterChanged(old, next)
	ss.actors.clusterChanged()
	if (old == nil) != (next == nil) {
		ss.reselectBridges()
	}
	if (old == nil) != (next == nil) || next != nil && old.Network != next.Network {
		ss.dirty.peer(c.name)
	}
	ss.releaseCluster(c)
}

// tunnelled tells whether the cluster dials this one, and is called by its tunnels.
func (c *cluster) tunnelled() bool { return c.object != nil && c.object.Tunnel == catalog.TunnelAccept }

// dirtyCluster marks every entry with a route through the cluster.
func (ns *nodes) dirtyCluster(c *cluster) {
	c.eachCall(ns.dirty.entry)
	ns.guestChanged(c)
}
