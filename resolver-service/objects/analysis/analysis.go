// Package analysis finds likely mistakes in objects that are right by themselves: a name that
// nobody has, a route that can't be taken, an export that lets nobody in.
package analysis

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// The checks, by the names that people see.
const (
	UnknownApp      = "unknown-app"
	UnknownCluster  = "unknown-cluster"
	UnknownCaller   = "unknown-caller"
	NotExported     = "not-exported"
	NoTraffic       = "no-traffic"
	NoEffect        = "no-effect"
	FewInstances    = "few-instances"
	ExportToItself  = "export-to-itself"
	ExportToNobody  = "export-to-nobody"
	ExportOfNothing = "export-of-nothing"
	Covered         = "covered"
	NoConsent       = "no-consent"
	OwnListener     = "own-listener"
	StockSidecar    = "stock-sidecar"
	OpenTunnel      = "open-tunnel"
	NoVersion       = "no-version"
)

// Finding is one thing that is most likely not meant.
type Finding struct {
	Check   string // its name
	Warning bool   // false: a note, since it may well be meant
	Key     catalog.Key
	Source  catalog.Source // of the part that Path names; no File if the object came without one
	Path    string
	What    string
	Fix     string

	app     catalog.App // nobody has it: a name near it may be meant
	cluster string      // the same of a cluster
}

// String is a line for people, without the place in a file.
func (f *Finding) String() string {
	return fmt.Sprintf("%s: %s: %s; %s [%s]", f.Key, f.Path, f.What, f.Fix, f.Check)
}

// Service is what facts do not have of the service itself.
type Service struct {
	Listens func(netip.AddrPort) bool   // on an address; nil: on none
	Absent  func(cluster string) string // why a cluster does not count that another introduces; nil: none does
}

// Analysis collects the findings of one moment.
type Analysis struct {
	facts    topology.Facts
	service  Service
	findings []Finding

	names    *appNames
	clusters []string
	own      string
}

// Run checks objects against facts, and returns a function for the findings. That function takes
// longer, and may be called once the facts are no longer valid.
func Run(facts topology.Facts, service Service, objects func(yield func(catalog.Object) bool)) func() []Finding {
	a := &Analysis{facts: facts, service: service}
	for object := range objects {
		switch o := object.(type) {
		case *catalog.AppEndpoints:
			a.selection(o)
		case *catalog.AppExport:
			a.export(o)
		case *catalog.Cluster:
			a.cluster(o)
		}
	}
	if slices.ContainsFunc(a.findings, func(f Finding) bool { return f.app != catalog.App{} || f.cluster != "" }) {
		a.names = &appNames{apps: slices.Collect(facts.Apps())}
		a.clusters, a.own = slices.Collect(facts.Clusters()), facts.Cluster()
	}
	return a.finish
}

// finish looks for what was meant by names that nobody has.
func (a *Analysis) finish() []Finding {
	all := a.findings[:0]
	for _, f := range a.findings {
		switch {
		case f.app != catalog.App{}:
			near := a.names.nearest(f.app)
			if f.Check == UnknownCaller && (near == catalog.App{} || near.ID == f.app.ID) {
				continue // apps that only other clusters run are not known here
			}
			if near != (catalog.App{}) {
				f.Warning, f.Fix = true, catalog.DidYouMean(near)
			}
		case f.cluster != "":
			known := a.clusters
			if f.Key.Kind == catalog.KindAppEndpoints {
				known = append(slices.Clip(known), a.own) // a route may lead to this cluster, an export not
			}
			if f.Fix = strict.Hint(f.cluster, known, f.Fix); a.service.Absent != nil {
				f.Fix = cmp.Or(a.service.Absent(f.cluster), f.Fix)
			}
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(x, y Finding) int {
		return cmp.Or(order(y.Warning)-order(x.Warning), x.Key.Compare(y.Key), cmp.Compare(x.Source.Line, y.Source.Line), cmp.Compare(x.Path, y.Path))
	})
	return all
}

func order(warning bool) int {
	if warning {
		return 1
	}
	return 0
}

func (a *Analysis) add(o catalog.Object, line int, f Finding) {
	f.Key, f.Source = o.Key(), o.Origin()
	if line > 0 {
		f.Source.Line = line
	}
	a.findings = append(a.findings, f)
}

// selection checks what an app may call.
func (a *Analysis) selection(s *catalog.AppEndpoints) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		path := func(field string) string { return fmt.Sprintf("spec.endpoints[%d]%s", i, field) }
		exporters := a.facts.Exporters(e.App)
		// A default is for many callers, of whom an export may allow some, and perhaps for apps of
		// many namespaces.
		nobody := !a.facts.Runs(e.App) && len(exporters) == 0 && e.App.Namespace != catalog.DefaultName
		unheard := false
		last := uint32(0) // priority of routes that take calls
		for _, r := range e.Routes {
			if r.Weight > 0 {
				last = max(last, r.Priority)
			}
		}
		for j, r := range e.Routes {
			at := func(field string) string { return path(fmt.Sprintf(".routes[%d]%s", j, field)) }
			if r.MinReady != 0 && r.Weight > 0 && r.Priority == last {
				a.add(s, int(e.Line), Finding{
					Check: NoEffect, Path: at(".minReady"), What: fmt.Sprintf("is %s, but no route has a later priority, to which the missing share would go", r.MinReady),
					Fix: "give another route a later priority, or leave minReady out",
				})
			}
			if known := a.facts.Instances(r.Cluster, e.App); r.MinReady > 0 && r.Weight > 0 && r.Priority < last && known > 0 && int(r.MinReady) > known {
				a.add(s, int(e.Line), Finding{
					Check: FewInstances, Path: at(".minReady"), What: fmt.Sprintf("is %s, and %d of %s are known there, so calls go to the next priority even if all are ready", r.MinReady, known, e.App),
					Fix: "write a percentage, such as 50%, if a share of them is meant, or run more",
				})
			}
			if running, known := a.facts.Versions(r.Cluster, e.App); known && r.Versions != "" && r.Weight > 0 && !slices.ContainsFunc(running.Names(), r.Versions.Match) {
				a.add(s, int(e.Line), Finding{
					Check: NoVersion, Warning: true, Path: at(".versions"), What: fmt.Sprintf("match no instance of %s that is ready there: %s", e.App, cmp.Or(running.String(), "none says its version")),
					Fix: "correct the pattern, or have instances say their version",
				})
			}
			switch {
			case r.Weight == 0:
				a.add(s, int(e.Line), Finding{Check: NoTraffic, Path: at(".weight"), What: "is 0, so the route takes no calls", Fix: "give it a weight, or leave the route out"})
			case a.here(r.Cluster):
			case !a.facts.HasCluster(r.Cluster):
				a.unknownCluster(s, int(e.Line), at(".cluster"), r.Cluster)
			case a.facts.Guest(r.Cluster):
				a.add(s, int(e.Line), Finding{
					Check: NoTraffic, Warning: true, Path: at(".cluster"), What: fmt.Sprintf("%s is a guest, which gets the calls that it takes and no other, so the route is never taken", r.Cluster),
					Fix: "leave the route out; spec.guest.takes of the Cluster object says which calls the guest gets",
				})
			case !a.facts.Heard(r.Cluster):
				unheard = true
			case !nobody && !s.IsDefault():
				a.exported(s, e, at(".cluster"), r.Cluster)
			}
		}
		if e.App.Namespace != s.App.Namespace && e.App.Namespace != catalog.DefaultName {
			a.stockSidecar(s, int(e.Line), path(".app"), e.App)
		}
		if !s.IsDefault() && a.facts.Refuses(e, s.App) {
			a.add(s, int(e.Line), Finding{
				Check: NoConsent, Warning: true, Path: path(".app"),
				What: fmt.Sprintf("%s is of another namespace and does not consent, so its guard refuses %s where it enforces", e.App, s.App),
				Fix:  fmt.Sprintf("add {cluster: local, namespace: %s, app: %s} to spec.allow of AppExport %s", s.App.Namespace, s.App.ID, e.App),
			})
		}
		switch {
		case len(e.Routes) == 0 && !s.IsDefault() && !a.facts.Runs(e.App) && len(exporters) > 0:
			a.anyExport(s, e, path(".app"), exporters)
		case nobody && !unheard:
			a.add(s, int(e.Line), Finding{
				Check: UnknownApp, Path: path(".app"), app: e.App, What: fmt.Sprintf("no app %s runs here, and no other cluster exports one", e.App),
				Fix: fmt.Sprintf("correct the name, or start the app; if it runs in another cluster, write AppExport %s there that lets %s of cluster %s have it", e.App, s.App, a.facts.Cluster()),
			})
		}
	}
}

// exported checks that a cluster lets the caller have an app.
func (a *Analysis) exported(s *catalog.AppEndpoints, e *catalog.Endpoint, path, cluster string) {
	exported, allowed := a.facts.Exports(cluster, e.App, s.App)
	if allowed {
		return
	}
	f := Finding{
		Check: NotExported, Warning: true, Path: path,
		What: fmt.Sprintf("cluster %s does not export %s, so the route is never taken", cluster, e.App),
		Fix:  fmt.Sprintf("write AppExport %s there, or leave the route out", e.App),
	}
	if exported {
		f.What = fmt.Sprintf("cluster %s exports %s, but not to %s, so the route is never taken", cluster, e.App, s.App)
		f.Fix = a.allow(s.App, e.App)
	}
	a.add(s, int(e.Line), f)
}

// anyExport checks an endpoint without routes, of an app that other clusters have: one of these
// must let the caller have it.
func (a *Analysis) anyExport(s *catalog.AppEndpoints, e *catalog.Endpoint, path string, exporters []string) {
	for _, cluster := range exporters {
		if _, allowed := a.facts.Exports(cluster, e.App, s.App); allowed {
			return
		}
	}
	a.add(s, int(e.Line), Finding{
		Check: NotExported, Warning: true, Path: path,
		What: fmt.Sprintf("%s does not run here, and no cluster that exports it lets %s call it", e.App, s.App), Fix: a.allow(s.App, e.App),
	})
}

func (a *Analysis) allow(caller, app catalog.App) string {
	return fmt.Sprintf("add {cluster: %s, namespace: %s, app: %s} to spec.allow of AppExport %s there", a.facts.Cluster(), caller.Namespace, caller.ID, app)
}

func (a *Analysis) unknownCluster(o catalog.Object, line int, path, cluster string) {
	a.add(o, line, Finding{
		Check: UnknownCluster, Warning: true, Path: path, cluster: cluster,
		What: fmt.Sprintf("no Cluster object has the name %q", cluster), Fix: "correct the name, or write the Cluster object",
	})
}

// stockSidecar finds an app that callers from elsewhere reach, and that seems to have a sidecar
// without Isthmus.
func (a *Analysis) stockSidecar(o catalog.Object, line int, path string, app catalog.App) {
	if a.facts.Stock(app) {
		a.add(o, line, Finding{
			Check: StockSidecar, Warning: true, Path: path,
			What: fmt.Sprintf("no sidecar of %s has registered here, so it seems to be Dapr's own; whoever may connect to it can have it call other apps with its certificate", app),
			Fix:  "run it with Isthmus in its daprd, or let only trusted callers connect to it",
		})
	}
}

// export checks who may call an app of this cluster.
func (a *Analysis) export(x *catalog.AppExport) {
	if !a.facts.Runs(x.App) {
		f := Finding{
			Check: ExportOfNothing, Path: "metadata.name", app: x.App, What: fmt.Sprintf("no app %s runs here", x.App), Fix: "correct the name, or start the app",
		}
		if exporters := a.facts.Exporters(x.App); len(exporters) > 0 {
			f.What = fmt.Sprintf("no app %s runs here, and cluster %s exports one", x.App, exporters[0])
			f.Fix = "start the app here, or delete the object"
		}
		a.add(x, 0, f)
	}
	a.stockSidecar(x, 0, "metadata.name", x.App)
	if len(x.Allow) == 0 {
		a.add(x, 0, Finding{Check: ExportToNobody, Path: "spec.allow", What: "is empty, so no caller may have the app", Fix: "name who may call it, or delete the object"})
	}
	first := placesOf(x.Allow)
	for i, allow := range x.Allow {
		path := fmt.Sprintf("spec.allow[%d]", i)
		if by := first.covering(allow, i); by >= 0 {
			a.add(x, 0, Finding{Check: Covered, Path: path, What: fmt.Sprintf("allows nobody whom spec.allow[%d] doesn't allow", by), Fix: "leave one of the two out"})
		}
		switch {
		case anyone(allow.Cluster):
		case a.here(allow.Cluster):
			if allow.Namespace == x.App.Namespace {
				a.add(x, 0, Finding{
					Check: ExportToItself, Path: path, What: "is for callers of the app's own namespace in this cluster, which need none",
					Fix: "leave it out, or name the caller's cluster",
				})
			}
		case !a.facts.HasCluster(allow.Cluster):
			a.unknownCluster(x, 0, path+".cluster", allow.Cluster)
		}
		a.caller(x, allow, path)
	}
}

// caller checks the app that an export names. It may run in other clusters only, which nobody
// tells this one; so what counts is whether a name near it is known.
func (a *Analysis) caller(x *catalog.AppExport, allow catalog.Allow, path string) {
	if anyone(allow.App) {
		return
	}
	caller := catalog.App{Namespace: allow.Namespace, ID: allow.App}
	if anyone(allow.Namespace) {
		caller.Namespace = ""
	}
	a.add(x, 0, Finding{Check: UnknownCaller, Path: path + ".app", app: caller, What: fmt.Sprintf("no app %s is known here", show(caller))})
}

func show(app catalog.App) string {
	if app.Namespace == "" {
		return app.ID
	}
	return app.String()
}

// anyone tells whether a pattern of an Allow means any.
func anyone(pattern string) bool { return pattern == "" || pattern == "*" }

// places are where each entry of an AppExport stands first.
type places map[catalog.Allow]int

// here tells whether a name is this cluster's.
func (a *Analysis) here(cluster string) bool {
	return cluster == catalog.LocalCluster || cluster == a.facts.Cluster()
}

func placesOf(all []catalog.Allow) places {
	first := places{}
	for i, allow := range all {
		allow = plain(allow)
		if _, there := first[allow]; !there {
			first[allow] = i
		}
	}
	return first
}

// plain writes an Allow with one of the two patterns that mean any.
func plain(a catalog.Allow) catalog.Allow {
	for _, pattern := range []*string{&a.Cluster, &a.Namespace, &a.App} {
		if *pattern == "*" {
			*pattern = ""
		}
	}
	return a
}

// covering is the first place of an entry that allows all that the entry at i does, or -1. Of two
// equal ones the later is covered.
func (first places) covering(allow catalog.Allow, i int) int {
	narrow, found := plain(allow), -1
	for mask := range 8 { // each of the three patterns as it is, or any
		wide := narrow
		for bit, pattern := range []*string{&wide.Cluster, &wide.Namespace, &wide.App} {
			if mask&(1<<bit) != 0 {
				*pattern = ""
			}
		}
		if j, there := first[wide]; there && j != i && (found < 0 || j < found) {
			found = j
		}
	}
	return found
}

// cluster checks how another cluster is reached.
func (a *Analysis) cluster(c *catalog.Cluster) {
	if c.Tunnel == catalog.TunnelAccept && c.Trust == (catalog.Trust{}) && c.Name != a.facts.Cluster() {
		a.add(c, 0, Finding{
			Check: OpenTunnel, Path: "spec.trust", What: fmt.Sprintf("is missing: whoever has a certificate for %s by this cluster's own roots brings the tunnel of %[1]s, in any trust domain", c.Name),
			Fix: "write the domain of its certificates, and its roots if they are others",
		})
	}
	a.guest(c)
	gateways := slices.Clone(c.Gateways)
	for _, g := range c.AppGateways {
		gateways = append(gateways, g.Address)
	}
	for _, g := range gateways {
		if address, err := netip.ParseAddrPort(g); err == nil && c.Name != a.facts.Cluster() && a.service.Listens != nil && a.service.Listens(address) {
			a.add(c, 0, Finding{
				Check: OwnListener, Warning: true, Path: "spec.gateways", What: fmt.Sprintf("%s is a listener of this cluster's own resolver service", g),
				Fix: fmt.Sprintf("name the gateway of %s", c.Name),
			})
		}
	}
}
