package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// entry computes what a caller's view holds of an app.
func (g *Graph) entry(caller, callee *node, index int32) *catalog.Entry {
	if index == selfIndex {
		return g.localEntry(callee, catalog.Rule{Text: catalog.SelfRule})
	}
	rule := catalog.Rule{Selection: caller.selection, Index: index}
	endpoint := &caller.selection.Endpoints[index]
	if len(endpoint.Routes) == 0 && len(callee.remote) == 0 {
		return g.localEntry(callee, rule)
	}
	plan := endpoint.Plan(g.cfg.Cluster, &whereabouts{g, caller, callee, endpoint.WhenStale == catalog.Serve})
	return &catalog.Entry{Plan: callee.share(plan), Rule: rule}
}

// maxShared bounds how many different plans of one app are kept for sharing.
const maxShared = 4

// share is the plan, or one like it that another caller has already.
func (n *node) share(plan *catalog.Plan) *catalog.Plan {
	for _, other := range n.plans {
		if other.Same(plan) {
			return other
		}
	}
	if len(n.plans) == maxShared {
		n.plans = slices.Delete(n.plans, 0, 1)
	}
	n.plans = append(n.plans, plan)
	return plan
}

// self is what an app sees of itself.
func (g *Graph) self(app catalog.App) *catalog.Entry {
	n := g.apps[app]
	if n == nil {
		n = &node{app: app}
	}
	return g.localEntry(n, catalog.Rule{Text: catalog.SelfRule})
}

// onlyLocal are the routes of an entry that never leaves the cluster.
var onlyLocal = []catalog.RouteSpec{{Cluster: catalog.LocalCluster, Weight: catalog.DefaultWeight}}

// localEntry is an app as this cluster has it: what apps without a selection see of
// it, and what it sees of itself.
func (g *Graph) localEntry(callee *node, rule catalog.Rule) *catalog.Entry {
	if callee.local == nil {
		e := catalog.Endpoint{App: callee.app, Routes: onlyLocal}
		callee.local = e.Plan(g.cfg.Cluster, &whereabouts{g, nil, callee, false})
	}
	return &catalog.Entry{Plan: callee.local, Rule: rule}
}

// whereabouts is what one caller may know of one app.
type whereabouts struct {
	g      *Graph
	caller *node
	callee *node
	serve  bool // the caller goes on with clusters whose lease has run out
}

func (w *whereabouts) Local() catalog.Route {
	r := catalog.LocalRoute(w.callee.ready, w.callee.draining)
	r.Ramp = w.g.percent("", w.callee, w.serve)
	return r
}

func (w *whereabouts) Exporters() []string {
	if len(w.callee.remote) == 0 {
		return nil
	}
	names := make([]string, 0, len(w.callee.remote))
	for i := range w.callee.remote {
		export := &w.callee.remote[i]
		if c := w.g.clusters[export.cluster]; c.object != nil && export.allows(w.g.cfg.Cluster, w.caller.app) {
			names = append(names, export.cluster)
		}
	}
	return names
}

func (w *whereabouts) Remote(name string) catalog.Route {
	c := w.g.clusters[name]
	switch {
	case c == nil || c.object == nil:
		return catalog.Route{State: catalog.UnknownCluster}
	case !c.heard:
		return catalog.Route{State: catalog.Unheard}
	}
	export := w.callee.remote.of(name)
	if export == nil || !export.allows(w.g.cfg.Cluster, w.caller.app) {
		return catalog.Route{State: catalog.NotExported}
	}
	var direct, gateway []string
	if w.g.onNetwork(c) {
		direct = export.direct()
	}
	ready := export.ready()
	if len(direct) == 0 && ready > 0 {
		gateway = w.g.gatewayOf(w.callee, c, export)
	}
	r := catalog.RemoteRoute(ready, export.Draining, direct, gateway)
	if r.Gateway && r.State == catalog.Ready {
		r.Instances = export.Instances
	}
	r.Ramp = w.g.percent(name, w.callee, w.serve)
	switch {
	case r.State == catalog.Ready && c.damped:
		r.State = catalog.Damped
	case r.State == catalog.Ready && c.lapsed:
		r.State = catalog.Lapsed
	}
	return r
}

// onNetwork tells whether instances of a cluster are reached without a gateway.
func (g *Graph) onNetwork(c *cluster) bool {
	return g.cfg.Network != "" && c.object != nil && c.object.Network == g.cfg.Network
}

// gatewayOf are the addresses of an app behind a cluster's gateway. They are made once
// for all callers.
func (g *Graph) gatewayOf(n *node, c *cluster, e *imported) []string {
	if port := c.object.GatewayPort(); e.gateway == nil || e.port != port {
		shards := min(e.Shards, catalog.MaxShards)
		e.gateway, e.port = g.cfg.Domain.GatewayAddresses(n.app, c.name, port, int(shards)), port
	}
	return e.gateway
}

// toPeer is what a peer may know of an app, or nil.
func (g *Graph) toPeer(n *node, peer string) *PeerExport {
	if n.export == nil {
		return nil
	}
	var allow []catalog.Allow
	for _, a := range n.export.Allow {
		if a.ForCluster(peer) {
			allow = append(allow, catalog.Allow{Cluster: peer, Namespace: a.Namespace, App: a.App})
		}
	}
	if len(allow) == 0 {
		return nil
	}
	ready := g.exportable(n)
	export := &PeerExport{
		App: n.app, Allow: allow, Ready: uint32(len(ready)), Draining: n.draining, Shards: uint32(shardsOf(len(ready))),
		Instances: g.tokensOf(n),
	}
	if c := g.clusters[peer]; c != nil && g.onNetwork(c) {
		export.Addresses = ready
	}
	return export
}
