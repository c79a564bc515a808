package topology

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// The bridges call each other as apps do, so they need a selection and an export. Both follow from
// what is said of actor types, unless somebody has written an object for them.

// exportBridge exports the namespace's bridge to the clusters that may call an actor here.
func (ss *selections) exportBridge(namespace string) {
	bridge := catalog.BridgeApp(namespace, ss.cfg.Cluster)
	if ss.objects[catalog.Key{Kind: catalog.KindAppExport, Namespace: namespace, Name: bridge.ID}] != nil {
		return
	}
	next := ss.actors.bridgeExport(bridge)
	n := ss.apps[bridge]
	if next == nil && (n == nil || n.export == nil) || next != nil && n != nil && reflect.DeepEqual(n.export, next) {
		return
	}
	ss.setExport(ss.node(bridge), next)
}

// bridgeExport is an export to the bridges of every cluster that some type allows; nil for none.
func (as *actors) bridgeExport(bridge catalog.App) *catalog.AppExport {
	callers := map[catalog.Allow]struct{}{}
	for a := range as.objects {
		o := as.owned(a)
		if o == nil || a.Namespace != bridge.Namespace {
			continue
		}
		for _, allow := range o.Allow {
			if allow.Cluster == "" || allow.Cluster == "*" {
				callers[catalog.Allow{Cluster: "*", Namespace: bridge.Namespace}] = struct{}{}
			} else {
				callers[catalog.Allow{Cluster: allow.Cluster, Namespace: bridge.Namespace, App: catalog.BridgeApp("", allow.Cluster).ID}] = struct{}{}
			}
		}
	}
	if len(callers) == 0 {
		return nil
	}
	e := &catalog.AppExport{App: bridge, Source: catalog.Source{From: fmt.Sprintf("the ActorType objects of namespace %s", bridge.Namespace)}}
	for allow := range callers {
		e.Allow = append(e.Allow, allow)
	}
	slices.SortFunc(e.Allow, func(a, b catalog.Allow) int {
		return catalog.App{Namespace: a.Cluster, ID: a.App}.Compare(catalog.App{Namespace: b.Cluster, ID: b.App})
	})
	return e
}

// reselectBridges brings the selections of this cluster's bridges up to date, when there is another
// cluster or one less.
func (ss *selections) reselectBridges() {
	for namespace := range ss.actors.selecting {
		ss.reselectBridge(namespace)
	}
}

func (ss *selections) reselectBridge(namespace string) {
	n := ss.node(catalog.BridgeApp(namespace, ss.cfg.Cluster))
	ss.reselect(n)
	ss.release(n)
}

// bridgeSelection has a namespace's bridge call those of all other clusters; nil for any other app.
func (as *actors) bridgeSelection(n *node) *catalog.AppEndpoints {
	if n.app != catalog.BridgeApp(n.app.Namespace, as.cfg.Cluster) || len(as.selecting[n.app.Namespace]) == 0 {
		return nil
	}
	s := &catalog.AppEndpoints{App: n.app, Source: catalog.Source{From: "spec.actors of the AppEndpoints of namespace " + n.app.Namespace}}
	for _, name := range slices.Sorted(maps.Keys(as.clusters)) {
		if c := as.clusters[name]; c.object != nil && c.guest() == nil && name != as.cfg.Cluster {
			s.Endpoints = append(s.Endpoints, catalog.Endpoint{
				App: catalog.BridgeApp(n.app.Namespace, name), Routes: []catalog.RouteSpec{{Cluster: name, Weight: catalog.DefaultWeight}},
			})
			s.From = append(s.From, s.Source.From)
		}
	}
	if len(s.Endpoints) == 0 {
		return nil
	}
	if n.selection != nil && reflect.DeepEqual(n.selection, s) {
		return n.selection
	}
	return s
}
