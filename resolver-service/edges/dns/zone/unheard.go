package zone

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// An endpoint without routes leads to every cluster that exports its app. Which those are is not
// known of a cluster that has not been heard yet: its entry has no route there, and yet the app's
// name there is not one that is missing. It is answered, and explained, as that of a route that
// is not ready, which it would be if the endpoint named the cluster.

// everywhere tells whether an entry leads to every cluster that exports the app.
func everywhere(e *catalog.Entry) bool {
	s, at := e.Rule.Selection, int(e.Rule.Index)
	return s != nil && at < len(s.Endpoints) && len(s.Endpoints[at].Routes) == 0
}

// mayExport answers an app's name in a cluster to which an entry for everywhere has no route, if
// it is not known that the cluster does not export the app. It tells whether it has answered.
func mayExport(x *exchange, n *name, entry *catalog.Entry) bool {
	unheard := x.zone.gateways.load().unheard
	if at, found := slices.BinarySearch(unheard, n.cluster); found {
		entry = withRoutes(entry, unheard[at:at+1])
		(&lookup{exchange: x, entry: entry, only: routeTo(entry, unheard[at])}).answer(n)
		return true
	}
	// Views are published before it is said that a cluster has been heard, and ours may be older.
	view, ok := x.zone.view(x.who.app)
	if !ok || x.anew || view == x.view {
		return false
	}
	x.view, x.anew = view, true
	x.app(n)
	return true
}

// withUnheard is an entry for people to read: with a route to every cluster that may export the
// app.
func (z *Zone) withUnheard(entry *catalog.Entry) *catalog.Entry {
	if !everywhere(entry) {
		return entry
	}
	return withRoutes(entry, z.gateways.load().unheard)
}

// withRoutes is an entry with a route to each of some clusters that have not been heard, as one
// without routes of its own has them.
func withRoutes(entry *catalog.Entry, unheard []string) *catalog.Entry {
	routes := append(make([]catalog.Route, 0, len(entry.Routes)+len(unheard)), entry.Routes...)
	for _, cluster := range unheard {
		if routeTo(entry, cluster) == nil {
			routes = append(routes, catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: cluster, Priority: 1, Weight: catalog.DefaultWeight}, State: catalog.Unheard})
		}
	}
	if len(routes) == len(entry.Routes) {
		return entry
	}
	return &catalog.Entry{Plan: catalog.NewPlan(entry.App, routes), Rule: entry.Rule, Own: entry.Own}
}
