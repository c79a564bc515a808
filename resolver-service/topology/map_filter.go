package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// mapQuery answers a [MapFilter].
type mapQuery struct {
	*nodes
	*MapFilter
}

// narrowed gathers the calls that a filter keeps, and the apps and clusters of these. It looks at
// no other calls, and at the names of all apps only for a namespace without a focus.
func (q mapQuery) narrowed(m *Map) {
	apps, clusters := map[*node]struct{}{}, map[string]struct{}{q.Via: {}}
	entries, seen := map[*node][]catalog.Edit[*catalog.Entry]{}, map[[2]*node]bool{}
	q.find(func(caller, callee *node) {
		call := [2]*node{caller, callee}
		if seen[call] {
			return
		}
		seen[call] = true
		e := q.kept(caller, callee)
		if e == nil {
			return
		}
		apps[caller], apps[callee] = struct{}{}, struct{}{}
		entries[caller] = append(entries[caller], catalog.Edit[*catalog.Entry]{App: callee.app, Value: e})
		for i := range e.Routes {
			clusters[e.Routes[i].Cluster] = struct{}{}
		}
	}, func(n *node) { apps[n] = struct{}{} })
	for n := range apps {
		m.Apps = append(m.Apps, n.onMap(q.exportedTo(n)))
	}
	for name := range clusters {
		if c := q.clusters[name]; c != nil {
			m.Clusters = append(m.Clusters, c.onMap())
		}
	}
	for n, edits := range entries {
		m.Views = append(m.Views, ViewUpdate{n.app, &catalog.View{Revision: n.view.Revision, Entries: catalog.NewTable(edits), Rule: n.view.Rule}})
	}
}

// kept is the entry of a call, if the filter keeps it; nil if not.
func (q mapQuery) kept(caller, callee *node) *catalog.Entry {
	if caller == callee || caller.view == nil || q.Namespace != "" && caller.app.Namespace != q.Namespace && callee.app.Namespace != q.Namespace {
		return nil
	}
	e, _ := caller.view.Entries.Get(callee.nameTo(caller))
	if e != nil && q.Via != "" && !slices.ContainsFunc(e.Routes, func(r catalog.Route) bool { return r.Cluster == q.Via }) {
		return nil
	}
	return e
}

// find calls call for all that may be among the calls of a filter, some of them more than once, and
// app for apps that are among its apps also without a call. It goes by what leads to the fewest.
func (q mapQuery) find(call func(caller, callee *node), app func(*node)) {
	switch {
	case q.Focus != catalog.App{}:
		if n := q.apps[q.Focus]; n != nil {
			app(n)
			q.findAround(n, max(q.Steps, 1), call)
		}
	case q.Via != "":
		if c := q.clusters[q.Via]; c != nil {
			c.eachCall(call)
		}
	default:
		for _, n := range q.apps {
			if n.app.Namespace == q.Namespace {
				app(n)
				q.findAround(n, 1, call)
			}
		}
	}
}

// findAround goes from an app to its callers, and to theirs, and so on; and to its callees likewise.
func (q mapQuery) findAround(n *node, steps int, call func(caller, callee *node)) {
	callees, callers := map[*node]struct{}{n: {}}, map[*node]struct{}{n: {}}
	for range steps {
		above, below := map[*node]struct{}{}, map[*node]struct{}{}
		for callee := range callees {
			for caller := range callee.callers {
				call(caller, callee)
				above[caller] = struct{}{}
			}
		}
		for caller := range callers {
			if caller.selection == nil {
				continue
			}
			for i := range caller.selection.Endpoints {
				callee := q.apps[caller.selection.Endpoints[i].App]
				call(caller, callee)
				below[callee] = struct{}{}
			}
		}
		callees, callers = above, below
	}
}

// eachCall calls f for each call with a route that may lead to the cluster, for some twice.
func (c *cluster) eachCall(f func(caller, callee *node)) {
	for caller, callees := range c.named {
		for callee := range callees {
			f(caller, callee)
		}
	}
	for callee := range c.exports {
		for caller := range callee.callers {
			f(caller, callee)
		}
	}
}
