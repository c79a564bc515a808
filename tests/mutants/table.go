package main

// mutant is a fault in the code.
type mutant struct {
	name        string
	file        string // of the code
	code, fault string // what stands there once, and what takes its place
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
		"if l.fresh() && !now.Before(l.due) {", "if l.fresh() && !now.Before(l.due.Add(time.Hour)) {"},
	{"a lease runs four times as long", peeringDir + "lease.go",
		"= at, at.Add(l.after), false, false, time.Time{}", "= at, at.Add(4*l.after), false, false, time.Time{}"},
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
		"		if a.ForCluster(peer) {\n			allow", "		if a.Cluster != \"\" {\n			allow"},
	{"a gateway keeps an app that is exported no more", topologyDir + "exports.go",
		"case now == nil || !x.exported(now):", "case now == nil:"},
	{"a link forgets a withdrawal", peeringDir + "mirror.go",
		"	delete(k.exports, app)\n	k.pending[app] = nil\n", "	delete(k.exports, app)\n"},
	{"a link keeps what a new stream does not name", peeringDir + "mirror.go",
		"if s.stream != k.stream {", "if s.stream > k.stream {"},
	{"a peer's new instances are not seen", topologyDir + "imports.go",
		"slices.Equal(e.Addresses, o.Addresses) && slices.Equal(e.Instances, o.Instances) && ", "slices.Equal(e.Addresses, o.Addresses) && "},
	{"a peer's export reaches no caller", topologyDir + "imports.go",
		"	for caller := range n.callers {\n		im.dirty.entry(caller, n)\n	}\n", ""},

	// Objects and instances.
	{"a deleted object stands", "resolver-service/objects/feed.go",
		"Delete: slices.Clip(c.Deleted), Put:", "Delete: slices.Clip(c.Deleted)[:0], Put:"},
	{"a draining instance gets calls", topologyDir + "instances.go",
		"case at.draining || not[a] || !o.owns(n, a):", "case !o.owns(n, a):"},
	{"an address belongs to two apps", topologyDir + "instances.go",
		"case at.draining || not[a] || !o.owns(n, a):", "case at.draining || not[a]:"},
	{"a peer's address is given to the next app at once", topologyDir + "direct.go",
		"return m != nil && m.served[a] != nil && m.served[a] != n", "return false"},

	// From service to sidecar.
	{"a service does not count on from a sidecar's revision", streamDir + "watch.go",
		"w.s.topology.AtLeast(ctx, w.hello.app, w.hello.revision)", "w.s.topology.AtLeast(ctx, w.hello.app, 0)"},
	{"a service does not say which apps have left a view", streamDir + "message.go",
		"	m.Removed = append(m.Removed, wire.App(app))\n", ""},
	{"a sidecar keeps apps that have left its view", resolverDir + "mirror.go",
		"entries = append(entries, catalog.Edit[*catalog.Entry]{App: wire.AppOf(app), Remove: true})", "_ = app"},
	{"a sidecar forgets new gateways", resolverDir + "mirror.go",
		"if change.Gateways != nil {", "if change.Gateways != nil && m.view.Gateways == nil {"},
	{"apps without a selection get no new view", topologyDir + "topology.go",
		"	if u.Open != nil {\n		t.views.open.Store(u.Open)\n	}\n", ""},

	// Guards.
	{"a guard keeps its first verdict", resolverDir + "guard.go",
		"if v == nil || v.access != a {", "if v == nil {"},
	{"a guard takes every caller for one of its cluster", resolverDir + "guard.go",
		"v.own = g.owns(c.Principal)", "v.own = true"},
	{"a guard lets in each app of a cluster with an export", topologyDir + "guarding.go",
		"Namespace: orAny(a.Namespace), App: orAny(a.App),", "Namespace: orAny(a.Namespace),"},
	{"a guard hears of no caller that has left", "api/wire/access.go",
		"parseApps(m.GetRemoved(), &errs))", "nil)"},

	// Calls.
	{"a dialer does not follow its view", dialDir + "channel.go",
		"p != nil && p.entry == entry && p.zone", "p != nil && p.zone"},
	{"a dialer takes plans with other instances for the same", dialDir + "plan.go",
		"if !p.routes[i].equal(&o.routes[i]) {", "if p.routes[i].Cluster != o.routes[i].Cluster {"},
	{"a route with weight 0 gets calls", dialDir + "plan.go",
		"if r.Weight == 0 || len(r.Addresses) == 0 ||", "if len(r.Addresses) == 0 ||"},
	{"every call goes to the first instance", dialDir + "picker.go",
		"at := next % n", "at := next % 1"},
	{"an app's own method is repeated", dialDir + "serviceconfig.go",
		`"name": [{"service": "dapr.proto.internals.v1.ServiceInvocation"}],`, `"name": [{}],`},
	{"a call is repeated four times", dialDir + "serviceconfig.go",
		`"maxAttempts": 2,`, `"maxAttempts": 5,`},
	{"a gateway leads to another instance than the one named", catalogDir + "gateway.go",
		"	i := slices.Index(b.Tokens, token)\n", "	i := max(0, slices.Index(b.Tokens, token))\n"},
	{"weights do not count", catalogDir + "choice.go",
		"return float64(o.Weight) * o.Ramp * o.Capacity", "return o.Ramp * o.Capacity"},
	{"a lookup of an app that is not selected says that there is none", catalogDir + "view.go",
		"	if v.Open {\n		return NotFound\n	}\n	return Denied\n", "	return NotFound\n"},
	{"a connection stays when its endpoint has left the plan", dialDir + "balancer.go",
		"	case !e.planned:\n		b.drain(e)\n", "	case !e.planned:\n"},
	{"a call goes to a lower priority beside a higher one", dialDir + "usableroute.go",
		"if share == 1 {", "if share == 2 {"},
}
