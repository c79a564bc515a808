package topology

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// defaultSelections are those of apps that have none of their own.
type defaultSelections struct {
	of   map[string]*catalog.AppEndpoints // by namespace
	held map[catalog.App]int              // apps that they hold, and in how many of them
}

// hold tells whether a default holds an app.
func (d *defaultSelections) hold(app catalog.App) bool {
	return d.held[app] > 0 || d.held[catalog.App{Namespace: catalog.DefaultName, ID: app.ID}] > 0
}

// follow returns the default that an app without a selection of its own follows; nil for none.
func (d *defaultSelections) follow(app catalog.App) *catalog.AppEndpoints {
	if len(d.of) == 0 {
		return nil
	}
	if s := d.of[app.Namespace]; s != nil {
		return s
	}
	return d.of[catalog.DefaultName]
}

// setOwn replaces an app's own selection.
func (ss *selections) setOwn(n *node, next *catalog.AppEndpoints) {
	n.own = next
	ss.unown(n, next == nil)
	ss.dirty.present(n)
	ss.reselect(n)
}

// setDefault replaces the default of a namespace, or of all.
func (ss *selections) setDefault(namespace string, next *catalog.AppEndpoints) {
	ss.countDefault(ss.defaults.of[namespace], -1)
	ss.countDefault(next, 1)
	if next == nil {
		delete(ss.defaults.of, namespace)
	} else {
		ss.defaults.of[namespace] = next
	}
	var followers []*node
	if namespace != catalog.DefaultName {
		followers = slices.Collect(maps.Keys(ss.unowned[namespace]))
	} else {
		for _, all := range ss.unowned {
			followers = slices.AppendSeq(followers, maps.Keys(all))
		}
	}
	for _, n := range followers {
		ss.reselect(n)
		if n.selection != nil && n.selection.Declared { // whom the guard lets in goes by the default as well
			ss.dirty.present(n)
			for i := range n.selection.Endpoints {
				ss.accesses.callerChanged(n.selection.Endpoints[i].App, n)
			}
			if len(n.guests) > 0 {
				ss.reachGuests(n)
			}
		}
	}
}

// countDefault notes which apps a default holds: in any namespace, those of a default for all that are
// in the namespace of whoever follows it.
func (ss *selections) countDefault(s *catalog.AppEndpoints, by int) {
	if s == nil {
		return
	}
	for i := range s.Endpoints {
		app := s.Endpoints[i].App
		if app.Namespace == catalog.DefaultName {
			app.Namespace = s.App.Namespace
		}
		if ss.defaults.held[app] += by; ss.defaults.held[app] == 0 {
			delete(ss.defaults.held, app)
		}
		ss.defaultChanged(app)
		if app.Namespace == catalog.DefaultName {
			for other := range ss.offeredApps("") {
				if other.ID == app.ID {
					ss.defaultChanged(other)
				}
			}
			for other := range ss.apps {
				if other.ID == app.ID {
					ss.defaultChanged(other)
				}
			}
		}
	}
}

// defaultChanged has an app have a node while a default holds it and somebody offers it.
func (ss *selections) defaultChanged(app catalog.App) {
	if len(ss.remotesOf(app)) > 0 {
		n := ss.node(app)
		ss.interestChanged(n)
		ss.release(n)
	}
}

// follow notes whether somebody follows an app's view.
func (ss *selections) follow(app catalog.App, followed bool) {
	n := ss.node(app)
	n.followed = followed
	ss.reselect(n)
	ss.release(n)
}

// reselect brings an app's selection up to date: its own object, or what its instances declare, or
// the default that it follows.
// An app that is neither here nor with a guest, nor followed by anybody, follows none.
func (ss *selections) reselect(n *node) {
	next := n.own
	if next == nil {
		next = ss.actors.bridgeSelection(n)
	}
	if next == nil {
		next = ss.declared(n)
	}
	if next == nil && (n.present() || n.followed || len(n.guests) > 0) {
		if d := ss.defaults.follow(n.app); d != nil {
			if n.selection != nil && n.selection.Default == d {
				return
			}
			next = d.For(n.app)
		}
	}
	if next != n.selection {
		ss.setSelection(n, next)
	}
}
