package nameresolution

import (
	"fmt"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// plan makes this app's view from the objects of a store, without a service. It
// belongs to one goroutine.
//
// The routes are planned by the rules that the service has too. What differs is what
// is known: this cluster's instances are left to a resolver of Dapr's, and whether
// another cluster exports an app or has it ready can't be known, so a cluster that has
// a Cluster object counts as having both.
type plan struct {
	app     catalog.App
	cluster string
	domain  catalog.Domain

	changed   bool // since then
	selection *catalog.AppEndpoints
	clusters  map[string]*catalog.Cluster
}

// take takes a change of the store in.
func (p *plan) take(c configstore.Change) {
	if c.Full {
		p.selection, p.clusters, p.changed = nil, map[string]*catalog.Cluster{}, true
	}
	for _, key := range c.Deleted {
		switch {
		case key == p.selectionKey():
			p.selection, p.changed = nil, true
		case key.Kind == catalog.KindCluster:
			delete(p.clusters, key.Name)
			p.changed = true
		}
	}
	for _, stored := range c.Objects {
		switch o := stored.Object.(type) {
		case *catalog.AppEndpoints:
			if o.App == p.app {
				p.selection, p.changed = o, true
			}
		case *catalog.Cluster:
			p.clusters[o.Name], p.changed = o, true
		}
	}
}

// blocked is why no view can be made: the app has a selection, which can't be used.
// To go by the default instead would let the app call more than it may.
func (p *plan) blocked(refused []configstore.Refusal) error {
	if p.selection != nil {
		return nil
	}
	for _, r := range refused {
		if r.Key == p.selectionKey() {
			return fmt.Errorf("%s, in %s, can't be used: %w", r.Key, r.Where, r.Err)
		}
	}
	return nil
}

func (p *plan) selectionKey() catalog.Key {
	return catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: p.app.Namespace, Name: p.app.ID}
}

// view makes the view as it stands, without a revision. An app without a selection
// resolves what the local resolver finds.
func (p *plan) view() *catalog.View {
	p.changed = false
	v := &catalog.View{
		Open:     p.selection == nil,
		Gateways: &catalog.Gateways{Domain: p.domain, Addresses: map[string][]string{}},
	}
	if p.selection == nil {
		return v
	}
	v.Rule = p.selection.Rule()
	entries := make([]catalog.Edit[*catalog.Entry], 0, len(p.selection.Endpoints))
	for i := range p.selection.Endpoints {
		endpoint := uncounted(p.selection.Endpoints[i])
		entry := &catalog.Entry{Plan: endpoint.Plan(p.cluster, offlineReachability{p, endpoint.App}), Rule: catalog.Rule{Selection: p.selection, Index: int32(i)}, Own: endpoint.For(p.app)}
		entries = append(entries, catalog.Edit[*catalog.Entry]{App: entry.Name(), Value: entry})
		for _, route := range entry.Routes {
			if route.Gateway {
				v.Gateways.Addresses[route.Cluster] = p.clusters[route.Cluster].Gateways
			}
		}
	}
	v.Entries = catalog.NewTable(entries)
	return v
}

// uncounted is an endpoint without minReady: how many instances a name stands for, or another cluster
// has, only a service knows.
func uncounted(e catalog.Endpoint) *catalog.Endpoint {
	e.Routes = slices.Clone(e.Routes)
	for i := range e.Routes {
		e.Routes[i].MinReady = 0
	}
	return &e
}

// offlineReachability is what can be known of one app without a service.
type offlineReachability struct {
	p   *plan
	app catalog.App
}

// Local leaves the app to the local resolver.
func (w offlineReachability) Local() catalog.Route { return catalog.Route{State: catalog.Delegated} }

// Remote counts as ready wherever there is a Cluster object.
func (w offlineReachability) Remote(name string) catalog.Route {
	c := w.p.clusters[name]
	switch {
	case c == nil:
		return catalog.Route{State: catalog.UnknownCluster}
	case len(c.Gateways) == 0: // reached directly only, by addresses that a service would know
		return catalog.Route{State: catalog.Empty}
	}
	return catalog.RemoteRoute(1, 0, nil, w.p.domain.GatewayAddresses(w.app, name, c.GatewayPort(), 0))
}

// Exporters are all clusters but this one.
func (w offlineReachability) Exporters() []string {
	names := slices.Sorted(maps.Keys(w.p.clusters))
	return slices.DeleteFunc(names, func(name string) bool { return name == w.p.cluster })
}
