package topology

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// setOwn replaces an app's own selection.
func (g *Graph) setOwn(n *node, next *catalog.AppEndpoints) {
	n.own = next
	g.unown(n, next == nil)
	g.dirty.present(n)
	g.reselect(n)
}

// setDefault replaces the default of a namespace, or of all.
func (g *Graph) setDefault(namespace string, next *catalog.AppEndpoints) {
	if next == nil {
		delete(g.defaults, namespace)
	} else {
		g.defaults[namespace] = next
	}
	var followers []*node
	if namespace != catalog.DefaultName {
		followers = slices.Collect(maps.Keys(g.unowned[namespace]))
	} else {
		for _, all := range g.unowned {
			followers = slices.AppendSeq(followers, maps.Keys(all))
		}
	}
	for _, n := range followers {
		g.reselect(n)
		if n.selection != nil && n.selection.Declared { // whom the guard lets in goes by the default as well
			g.dirty.present(n)
			for i := range n.selection.Endpoints {
				g.accesses.callerChanged(n.selection.Endpoints[i].App, n)
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
func (g *Graph) follow(app catalog.App, followed bool) {
	n := g.node(app)
	n.followed = followed
	g.reselect(n)
	g.release(n)
}

// reselect brings an app's selection up to date: its own object, or what its instances declare, or
// the default that it follows.
// An app that is neither here nor followed by anybody follows none.
func (g *Graph) reselect(n *node) {
	next := n.own
	if next == nil {
		next = g.actors.bridgeSelection(n)
	}
	if next == nil {
		next = g.declared(n)
	}
	if next == nil && (n.present() || n.followed) {
		if d := g.defaultOf(n.app); d != nil {
			if n.selection != nil && n.selection.Default == d {
				return
			}
			next = d.For(n.app)
		}
	}
	if next != n.selection {
		g.setSelection(n, next)
	}
}
