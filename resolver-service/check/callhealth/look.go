package callhealth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// calleeState is what is known of an app that selections hold.
type calleeState struct {
	offered bool      // a caller had a way to it
	since   time.Time // when no caller had one any more; zero while one has
	seen    bool      // by the Look that goes on
}

// Unwell is an instance whose app can't take calls.
type Unwell struct {
	App   catalog.App
	Why   string
	Since time.Time
}

// Unreached is an app in another cluster that sidecars of callers report.
type Unreached struct {
	Cluster string
	Callee  catalog.App
	By      int // callers' sidecars
	Since   time.Time
	Why     string
}

// unreached are the faults of callees that don't answer behind gateways that do.
func (h *Health) unreached(now time.Time) (faults []*v1alpha1.CallFault) {
	if h.cfg.Unreached == nil {
		return nil
	}
	for _, u := range h.cfg.Unreached() {
		callers := "1 caller's sidecar"
		if u.By != 1 {
			callers = fmt.Sprintf("%d callers' sidecars", u.By)
		}
		faults = append(faults, &v1alpha1.CallFault{
			Check: AppHealth, Level: Fail, Callee: wire.App(u.Callee), Cluster: u.Cluster, Outcome: "unreached",
			SinceUnixMs: u.Since.UnixMilli(), LastUnixMs: now.UnixMilli(), Why: u.Why,
			What: fmt.Sprintf("it does not answer in cluster %s, behind a gateway that does, for %s: %s say so; %s", u.Cluster, span(now.Sub(u.Since)), callers, u.Why),
			Fix:  "see the app, its sidecar and the log of both in cluster " + u.Cluster,
		})
	}
	return faults
}

// Asked is an app of this cluster that a caller in another one selects, and that no AppExport lets
// it have.
type Asked struct {
	Cluster     string
	Caller, App catalog.App
	Why         string
}

// WantedFrom is what callers here miss of a cluster, for it to be told.
func WantedFrom(all []Wanted, cluster string) (apps []*v1alpha1.WantedApp) {
	callers := map[catalog.App]catalog.App{}
	for _, w := range all {
		if first, ok := callers[w.Callee]; (w.Cluster == "" || w.Cluster == cluster) && (!ok || w.Caller.Compare(first) < 0) {
			callers[w.Callee] = w.Caller
		}
	}
	for _, callee := range slices.SortedFunc(maps.Keys(callers), catalog.App.Compare) {
		apps = append(apps, &v1alpha1.WantedApp{App: wire.App(callee), Caller: wire.App(callers[callee])})
	}
	return apps
}

// unexported are the faults of apps that other clusters ask for in vain.
func (h *Health) unexported(all []Asked, now time.Time) (faults []*v1alpha1.CallFault) {
	for _, a := range all {
		faults = append(faults, &v1alpha1.CallFault{
			Check: ExportMissing, Level: warn, Caller: wire.App(a.Caller), CallerCluster: a.Cluster, Callee: wire.App(a.App), Cluster: catalog.LocalCluster,
			Outcome: "not exported", SinceUnixMs: now.UnixMilli(), LastUnixMs: now.UnixMilli(), Why: a.Why,
			What: fmt.Sprintf("cluster %s asks for %s, which runs here, for %s: %s", a.Cluster, a.App, a.Caller, a.Why),
			Fix:  fmt.Sprintf("if it may, write AppExport %s with {cluster: %s, namespace: %s, app: %s} in its spec.allow; otherwise take it out of the selection there", a.App, a.Cluster, a.Caller.Namespace, a.Caller.ID),
		})
	}
	return faults
}

// Wanted is an app that a selection holds, and that no cluster, or one of those that it names,
// exports to the caller.
type Wanted struct {
	Caller, Callee catalog.App
	Cluster        string // empty: any
}

// mostWanted bounds the apps that are wanted from others.
const mostWanted = 1000

// selected is a callee with its callers that have no way to it.
type selected struct {
	callers []catalog.App
	sample  *catalog.Entry
	found   bool // a caller has a way
}

// Look takes in the views of the apps with a selection, and the instances of those whose app can't
// take calls, of so many by app, and what other clusters ask for in vain. It returns what other
// clusters may offer and don't.
func (h *Health) Look(views []topology.ViewUpdate, unwell []Unwell, of map[catalog.App]int, asked []Asked, now time.Time) (wanted []Wanted) {
	callees := map[catalog.App]*selected{}
	for _, v := range views {
		for _, e := range v.View.Entries.All() {
			callee, s := e.App, e.Rule.Selection
			if callee == v.App || s == nil || s.IsDefault() {
				continue // it was not chosen for this caller
			}
			c := callees[callee]
			if c == nil {
				c = &selected{}
				callees[callee] = c
			}
			if slices.ContainsFunc(e.Routes, func(r catalog.Route) bool { return r.Usable() }) {
				c.found = true
			} else {
				c.callers, c.sample = append(c.callers, v.App), e
			}
			if len(wanted) < mostWanted {
				wanted = append(wanted, wantedBy(v.App, e)...)
			}
		}
	}
	faults := append(dead(unwell, of, now), h.unexported(asked, now)...)
	h.mu.Lock()
	defer h.mu.Unlock()
	for app, c := range callees {
		if f := h.offered(app, c, now); f != nil {
			faults = append(faults, f)
		}
	}
	for app, s := range h.callees {
		if !s.seen {
			delete(h.callees, app)
		}
		s.seen = false
	}
	slices.SortFunc(faults, func(a, b *v1alpha1.CallFault) int {
		return cmp.Or(cmp.Compare(a.GetCallee().GetNamespace(), b.GetCallee().GetNamespace()), cmp.Compare(a.GetCallee().GetId(), b.GetCallee().GetId()), cmp.Compare(a.GetCheck(), b.GetCheck()))
	})
	h.looked = faults
	return wanted
}

// offered is what is wrong with a callee that has no way left for some callers; mu is held. One that was
// never offered may be still to come: the analysis of objects has it.
func (h *Health) offered(app catalog.App, c *selected, now time.Time) *v1alpha1.CallFault {
	s := h.callees[app]
	if s == nil {
		s = &calleeState{}
		h.callees[app] = s
	}
	s.seen = true
	if c.found {
		s.offered = true
	}
	if len(c.callers) == 0 || c.found || !s.offered {
		s.since = time.Time{}
		return nil
	}
	if s.since.IsZero() {
		s.since = now
	}
	var callers []string
	for _, caller := range c.callers[:min(len(c.callers), mostNamed)] {
		callers = append(callers, caller.String())
	}
	why := c.sample.Explain().Reason
	f := &fault{&v1alpha1.CallFault{
		Check: CalleesOffered, Level: Fail, Callee: wire.App(app), Outcome: catalog.Unavailable.String(), SinceUnixMs: s.since.UnixMilli(), LastUnixMs: now.UnixMilli(), Why: why,
		Fix: "start the app, or see isthmus apps " + app.ID,
	}}
	if h.cfg.Change != nil {
		f.Change = h.cfg.Change(s.since, h.keysOf(app, c))
	}
	f.What = fmt.Sprintf("nobody offers it any more, for %s, and %s may call it: %s%s", span(now.Sub(s.since)), listed(callers, len(c.callers)), why, f.changed())
	return f.CallFault
}

// keysOf are the objects of a callee and of its first caller.
func (h *Health) keysOf(app catalog.App, c *selected) []catalog.Key {
	caller := c.callers[0]
	keys := []catalog.Key{
		{Kind: catalog.KindAppExport, Namespace: app.Namespace, Name: app.ID},
		{Kind: catalog.KindAppEndpoints, Namespace: caller.Namespace, Name: caller.ID},
	}
	for i := range c.sample.Routes {
		if r := &c.sample.Routes[i]; !r.Local {
			keys = append(keys, catalog.Key{Kind: catalog.KindCluster, Name: r.Cluster})
		}
	}
	return keys
}

// wantedBy is what an entry leads nowhere for lack of an export.
func wantedBy(caller catalog.App, e *catalog.Entry) (all []Wanted) {
	anywhere := len(e.Rule.Selection.Endpoints[e.Rule.Index].Routes) == 0
	for i := range e.Routes {
		r := &e.Routes[i]
		switch {
		case r.State == catalog.NotExported:
			all = append(all, Wanted{caller, e.App, r.Cluster})
		case !r.Local || r.Usable():
			anywhere = false
		}
	}
	if anywhere {
		all = append(all, Wanted{caller, e.App, ""})
	}
	return all
}

// dead are the apps with instances whose health fails.
func dead(unwell []Unwell, of map[catalog.App]int, now time.Time) (all []*v1alpha1.CallFault) {
	apps := map[catalog.App][]Unwell{}
	for _, u := range unwell {
		apps[u.App] = append(apps[u.App], u)
	}
	for app, some := range apps {
		oldest := slices.MinFunc(some, func(a, b Unwell) int { return a.Since.Compare(b.Since) })
		f := &v1alpha1.CallFault{
			Check: AppHealth, Level: warn, Callee: wire.App(app), Cluster: catalog.LocalCluster, Outcome: "dead", SinceUnixMs: oldest.Since.UnixMilli(), LastUnixMs: now.UnixMilli(), Why: oldest.Why,
			Fix: "see the log of the app; its sidecar is well, and takes calls again once the app does",
		}
		if len(some) >= of[app] {
			f.Level = Fail
		}
		f.What = fmt.Sprintf("%d of %d instances can't take calls, for %s: %s", len(some), max(of[app], len(some)), span(now.Sub(oldest.Since)), oldest.Why)
		all = append(all, f)
	}
	return all
}
