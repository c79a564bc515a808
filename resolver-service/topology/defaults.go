package topology

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// setOwn replaces an app's own selection.
func (ss *selections) setOwn(n *node, next *catalog.AppEndpoints) {
	n.own = next
	ss.unown(n, next == nil)
	ss.dirty.present(n)
	ss.reselect(n)
}

// setDefault replaces the default of a namespace, or of all.
func (ss *selections) setDefault(namespace string, next *catalog.AppEndpoints) {
	if next == nil {
		delete(ss.defaults, namespace)
	} else {
		ss.defaults[namespace] = next
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
		}
	}
}

// defaultOf is the default that an app without a selection of its own follows; nil for none.
func (ns *nodes) defaultOf(app catalog.App) *catalog.AppEndpoints {
	if len(ns.defaults) == 0 {
		return nil
	}
	if s := ns.defaults[app.Namespace]; s != nil {
		return s
	}
	return ns.defaults[catalog.DefaultName]
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
		if d := ss.defaultOf(n.app); d != nil {
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
