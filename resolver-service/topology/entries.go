package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// entry computes what a caller's view holds of an app.
func (vs *views) entry(caller, callee *node, index int32) *catalog.Entry {
	if index == selfIndex {
		return vs.selfEntry(callee, vs.prefers(caller))
	}
	rule := catalog.Rule{Selection: caller.selection, Index: index}
	endpoint := &caller.selection.Endpoints[index]
	prefer := endpoint.Locality.Prefers(vs.cfg.PreferZone)
	if len(endpoint.Routes) == 0 && len(callee.remote) == 0 && (prefer == vs.cfg.PreferZone || callee.zones == nil) {
		e := vs.localEntry(callee, rule)
		e.Own = vs.own(caller, callee, endpoint)
		return e
	}
	plan := endpoint.Plan(vs.cfg.Cluster, &callerReachability{vs, caller, callee, endpoint.WhenStale == catalog.Serve, prefer})
	return &catalog.Entry{Plan: callee.share(plan), Rule: rule, Own: vs.own(caller, callee, endpoint)}
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
func (vs *views) self(app catalog.App) *catalog.Entry {
	n := vs.apps[app]
	if n == nil {
		n = &node{app: app}
	}
	return vs.selfEntry(n, vs.cfg.PreferZone)
}

// selfEntry is an app as it sees itself. Its zones tell each instance where it is itself.
func (vs *views) selfEntry(n *node, prefer bool) *catalog.Entry {
	rule := selfRule
	if prefer == vs.cfg.PreferZone || n.zones == nil {
		return vs.localEntry(n, rule)
	}
	e := catalog.Endpoint{App: n.app, Routes: onlyLocal}
	return &catalog.Entry{Plan: n.share(e.Plan(vs.cfg.Cluster, &callerReachability{vs, nil, n, false, prefer})), Rule: rule}
}

var selfRule = catalog.TextRule(catalog.SelfRule)

// onlyLocal are the routes of an entry that never leaves the cluster.
var onlyLocal = []catalog.RouteSpec{{Cluster: catalog.LocalCluster, Weight: catalog.DefaultWeight}}

// localEntry is an app as this cluster has it: what apps without a selection see of
// it, and what it sees of itself.
func (vs *views) localEntry(callee *node, rule catalog.Rule) *catalog.Entry {
	if callee.local == nil {
		e := catalog.Endpoint{App: callee.app, Routes: onlyLocal}
		callee.local = e.Plan(vs.cfg.Cluster, &callerReachability{vs, nil, callee, false, vs.cfg.PreferZone})
	}
	return &catalog.Entry{Plan: callee.local, Rule: rule}
}

// callerReachability is what one caller may know of one app.
type callerReachability struct {
	*views
	caller *node
	callee *node
	serve  bool // the caller goes on with clusters whose lease has run out
	prefer bool // the caller prefers instances of its own zone
}

func (w *callerReachability) Local() catalog.Route {
	r := catalog.LocalRoute(w.callee.ready, w.callee.draining)
	if w.prefer {
		r.Zones = w.callee.zones
	}
	if r.Ready > 0 {
		r.Running = w.callee.versions
	}
	r.Ramp = w.ramps.percent("", w.callee, w.serve)
	return r
}

func (w *callerReachability) Exporters() []string {
	if len(w.callee.remote) == 0 {
		return nil
	}
	names := make([]string, 0, len(w.callee.remote))
	for i := range w.callee.remote {
		export := &w.callee.remote[i]
		if c := w.clusters[export.cluster]; c.object != nil && c.guest() == nil && export.allows(w.cfg.Cluster, w.caller.app) {
			names = append(names, export.cluster)
		}
	}
	return names
}

func (w *callerReachability) Remote(name string) catalog.Route {
	c := w.clusters[name]
	switch {
	case c == nil || c.object == nil:
		return catalog.Route{State: catalog.UnknownCluster}
	case c.guest() != nil:
		return catalog.Route{State: catalog.GuestOnly}
	}
	return w.from(c)
}

// from is the route to a cluster that has an object.
func (w *callerReachability) from(c *cluster) catalog.Route {
	if c.unheard() && !(c.resting && w.foretold(c, w.callee)) {
		return catalog.Route{State: w.interests.untold(c, w.callee, w.serve)}
	}
	var caller catalog.App // none: any without a selection
	if w.caller != nil {
		caller = w.caller.app
	}
	export := w.callee.remote.of(c.name)
	if export == nil || !export.allows(w.cfg.Cluster, caller) {
		return catalog.Route{State: catalog.NotExported}
	}
	if export.Named && !w.foretold(c, w.callee) {
		return catalog.Route{State: w.interests.untold(c, w.callee, w.serve)}
	}
	var direct, gateway []string
	if w.onNetwork(c) {
		direct = export.direct()
	}
	ready := export.ready()
	if len(direct) == 0 && ready > 0 {
		gateway = export.behind(w.cfg.Domain, w.callee, c)
	}
	r := catalog.RemoteRoute(ready, export.Draining, direct, gateway)
	if r.Gateway && r.State == catalog.Ready {
		r.Instances = export.Instances
	}
	switch {
	case r.State != catalog.Ready:
	case !r.Gateway:
		r.Zones, r.Running = export.zones, export.versions
	case len(r.Instances) > 0:
		r.Zones, r.Running = export.Zones, export.Versions
	}
	if !w.prefer {
		r.Zones = nil
	}
	r.Ramp = w.ramps.percent(c.name, w.callee, w.serve)
	switch {
	case r.State == catalog.Ready && c.damped:
		r.State = catalog.Damped
	case r.State == catalog.Ready && c.lapsed:
		r.State = catalog.Lapsed
	}
	return r
}

// onNetwork tells whether instances of a cluster are reached without a gateway.
func (ns *nodes) onNetwork(c *cluster) bool {
	return ns.cfg.Network != "" && c.object != nil && c.object.Network == ns.cfg.Network
}
