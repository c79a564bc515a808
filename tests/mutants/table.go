package main

// mutant is a fault in the code.
type mutant struct {
	name string
	file string // of the code
	// code stands in the file once, and fault is there instead while the fault is on. Both are a line with a
	// condition, a return, whole statements with their indent, or an expression. Of both expressions and
	// conditions the values are computed.
	code, fault string
}

const (
	catalogDir  = "catalog/"
	dialDir     = "components/dial/"
	peeringDir  = "resolver-service/edges/peering/"
	resolverDir = "nameresolution/"
	streamDir   = "resolver-service/edges/stream/"
	topologyDir = "resolver-service/topology/"
)

var mutants = []mutant{
	// Leases.
	{"a lease never runs out", peeringDir + "lease.go",
		"			l.lapse(now, \"\")\n", "			l.due = now.Add(time.Hour)\n"},
	{"a lease runs four times as long", peeringDir + "lease.go",
		"	l.last, l.due, l.lapsed, l.graceGiven, l.heldUntil = at, at.Add(l.after), false, false, time.Time{}\n",
		"	l.last, l.due, l.lapsed, l.graceGiven, l.heldUntil = at, at.Add(4*l.after), false, false, time.Time{}\n"},
	{"a lease that ended is served though the selection withdraws", catalogDir + "reachability.go",
		"case r.State == Lapsed && e.WhenStale == Withdraw:", "case r.State == Lapsed && e.WhenStale != Withdraw:"},
	{"a renewal counts though the exports are behind", peeringDir + "freshness.go",
		"case !c.partial && c.digest == digest:", "case !c.partial:"},
	{"a damped peer is never used again", peeringDir + "damping.go",
		"if d.suppressed && !now.Before(d.until()) {", "if d.suppressed && now.Before(d.since) {"},

	// Exports.
	{"an importer takes an export as one to everybody", topologyDir + "entries.go",
		"if export == nil || !export.allows(w.cfg.Cluster, caller) {", "if export == nil {"},
	{"an exporter tells a peer the callers of other clusters", topologyDir + "exports.go",
		"if a.ForCluster(peer) {", "if a.Cluster != \"\" {"},
	{"a gateway keeps an app that is exported no more", topologyDir + "exports.go",
		"case now == nil || !x.exported(now):", "case now == nil:"},
	{"a link forgets a withdrawal", peeringDir + "mirror.go",
		"	k.pending[app] = nil\n", ""},
	{"a link keeps what a new stream does not name", peeringDir + "mirror.go",
		"if s.stream != k.stream {", "if s.stream > k.stream {"},
	{"a peer's new instances are not seen", topologyDir + "imports.go",
		"slices.Equal(e.Instances, o.Instances)", "true"},
	{"a peer's export reaches no caller", topologyDir + "imports.go",
		"	for caller := range n.callers {\n		im.dirty.entry(caller, n)\n	}\n", ""},

	// Objects and instances.
	{"a deleted object stands", "resolver-service/objects/feed.go",
		"slices.Clip(c.Deleted)", "slices.Clip(c.Deleted)[:0]"},
	{"a draining instance gets calls", topologyDir + "instances.go",
		"case at.draining || not[a] || !o.owns(n, a):", "case !o.owns(n, a):"},
	{"an address belongs to two apps", topologyDir + "addresses.go",
		"return len(as.contested) == 0 || as.owner(a) == n", "return true"},
	{"a peer's address is given to the next app at once", topologyDir + "direct.go",
		"return m != nil && m.served[a] != nil && m.served[a] != n", "return false"},

	// From service to sidecar.
	{"a service does not count on from a sidecar's revision", topologyDir + "topology.go",
		"if revision <= t.viewRevision(app) {", "if revision >= t.viewRevision(app) {"},
	{"a service does not say which apps have left a view", streamDir + "message.go",
		"	m.Removed = append(m.Removed, wire.App(app))\n", ""},
	{"a sidecar keeps apps that have left its view", resolverDir + "mirror.go",
		"		entries = append(entries, catalog.Edit[*catalog.Entry]{App: wire.AppOf(app), Remove: true})\n", ""},
	{"a sidecar forgets new gateways", resolverDir + "mirror.go",
		"if change.Gateways != nil {", "if change.Gateways != nil && m.view.Gateways == nil {"},
	{"apps without a selection get no new view", topologyDir + "topology.go",
		"	if u.Open != nil {\n		t.views.open.Store(u.Open)\n	}\n", ""},

	// Guards.
	{"a guard keeps its first verdict", resolverDir + "guard.go",
		"if v == nil || v.access != a {", "if v == nil {"},
	{"a guard takes every caller for one of its cluster", resolverDir + "guard.go",
		"		v.own = g.owns(c.Principal)\n", "		v.own = true\n"},
	{"a guard lets in each app of a cluster with an export", topologyDir + "guarding.go",
		"orAny(a.App)", `""`},
	{"a guard hears of no caller that has left", "api/wire/access.go",
		"parseApps(m.GetRemoved(), &errs)", "nil"},

	// Calls.
	{"a dialer does not follow its view", dialDir + "channel.go",
		"p.entry == entry", "true"},
	{"a dialer takes plans with other instances for the same", dialDir + "plan.go",
		"if !p.routes[i].equal(&o.routes[i]) {", "if p.routes[i].Cluster != o.routes[i].Cluster {"},
	{"a route with weight 0 counts as one for calls", catalogDir + "route.go",
		"return r.Weight > 0 && (r.State == Ready || r.State == Lapsed || r.State == LastResort)", "return r.State == Ready || r.State == Lapsed || r.State == LastResort"},
	{"every call goes to the first instance", dialDir + "picker.go",
		"next % n", "0"},
	{"an app's own method is repeated", dialDir + "serviceconfig.go",
		"return retryServiceConfig", `return mutant.Replace(retryServiceConfig, "{\"service\": \"dapr.proto.internals.v1.ServiceInvocation\"}", "{}")`},
	{"a call is repeated four times", dialDir + "channel.go",
		"serviceConfig(retry)", `mutant.Replace(serviceConfig(retry), "\"maxAttempts\": 2", "\"maxAttempts\": 5")`},
	{"a gateway leads to another instance than the one named", catalogDir + "gateway.go",
		"slices.Index(b.Tokens, token)", "max(0, slices.Index(b.Tokens, token))"},
	{"weights do not count", catalogDir + "choice.go",
		"return float64(o.Weight) * o.Ramp * o.Capacity", "return o.Ramp * o.Capacity"},
	{"a lookup of an app that is not selected says that there is none", catalogDir + "view.go",
		"return Denied", "return NotFound"},
	{"a connection stays when its endpoint has left the plan", dialDir + "endpoints.go",
		"	e.drainTimer = time.AfterFunc(drainTime, func() { b.finishDrain(e) })\n", "	e.drainTimer = time.AfterFunc(time.Hour, func() { b.finishDrain(e) })\n"},
	{"a call goes to a lower priority beside a higher one", dialDir + "usableroute.go",
		"if share == 1 {", "if share == 2 {"},
}
