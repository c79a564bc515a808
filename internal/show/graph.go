package show

import (
	"cmp"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// The states of a call.
const (
	callReady       = "ready"
	callStale       = "stale"
	callUnavailable = "unavailable"
	callDenied      = "denied"
)

// AddGraph adds a message to a graph: of its apps those in this cluster, and of each call its
// state.
func AddGraph(g, m *v1alpha1.GraphResponse) {
	g.Cluster, g.Revision = cmp.Or(g.GetCluster(), m.GetCluster()), max(g.GetRevision(), m.GetRevision())
	for _, a := range m.GetApps() {
		if a.GetHere() {
			g.Apps = append(g.Apps, a)
		}
	}
	g.Clusters, g.Calls = append(g.GetClusters(), m.GetClusters()...), append(g.GetCalls(), m.GetCalls()...)
	for _, c := range m.GetCalls() {
		c.In, c.Declared, c.State = g.GetCluster(), true, callUnavailable
		for _, r := range c.GetRoutes() {
			switch {
			case r.GetTaken() && r.GetState() == callStale && c.GetState() != callReady:
				c.State = callStale
			case r.GetTaken():
				c.State = callReady
			}
		}
	}
}

// copied is a call that can be changed while others read the first.
func copied(c *v1alpha1.GraphCall) *v1alpha1.GraphCall {
	return &v1alpha1.GraphCall{
		Caller: c.GetCaller(), In: c.GetIn(), Callee: c.GetCallee(), State: c.GetState(), Declared: c.GetDeclared(), Seen: c.GetSeen(),
		Rule: c.GetRule(), Harm: c.GetHarm(), Routes: c.GetRoutes(),
	}
}

// AddSeen adds the calls that guards have seen to a graph, whose calls stay as they are for others.
func AddSeen(g *v1alpha1.GraphResponse, all []*v1alpha1.Call) {
	type edge struct {
		in             string
		caller, callee catalog.App
	}
	at := make(map[edge]int, len(g.GetCalls()))
	for i, c := range g.GetCalls() {
		at[edge{c.GetIn(), wire.AppOf(c.GetCaller()), wire.AppOf(c.GetCallee())}] = i
	}
	for _, c := range all {
		caller, callee := Caller(c), wire.AppOf(c.GetCallee())
		if !Seen(c) || caller == (catalog.App{}) || caller == callee {
			continue
		}
		in := c.GetCluster()
		if in == catalog.LocalCluster {
			in = g.GetCluster()
		}
		if j, ok := at[edge{in, caller, callee}]; ok {
			g.Calls[j] = copied(g.Calls[j])
			g.Calls[j].Seen = true
			continue
		}
		call := &v1alpha1.GraphCall{
			Caller: &v1alpha1.App{Namespace: caller.Namespace, Id: caller.ID}, In: in, Callee: c.GetCallee(), Seen: true, Declared: c.GetDeclared(), Rule: c.GetRule(), State: callReady,
			Routes: []*v1alpha1.GraphRoute{{Cluster: g.GetCluster(), Weight: catalog.DefaultWeight, State: callReady, Usable: true, Taken: true}},
		}
		if c.GetRule() == "" {
			call.State = callDenied
		}
		g.Calls = append(g.Calls, call)
	}
	slices.SortFunc(g.GetCalls(), func(a, b *v1alpha1.GraphCall) int {
		return cmp.Or(wire.AppOf(a.GetCaller()).Compare(wire.AppOf(b.GetCaller())), cmp.Compare(a.GetIn(), b.GetIn()), wire.AppOf(a.GetCallee()).Compare(wire.AppOf(b.GetCallee())))
	})
}

// GraphFilter narrows a graph.
type GraphFilter struct {
	Apps           []catalog.App // calls by or of them
	Steps          int           // or on longer ways to and from them, of so many calls; 0 counts as 1
	Clusters       []string      // routes to them; of one, each call says what harm it does
	Whole          bool          // a call that has such a route keeps all its routes
	Seen, Declared bool          // only such calls
}

// Filter leaves out the calls that the filter does not name, and the apps and clusters that no call
// is left of. Calls stay as they are for others.
func Filter(g *v1alpha1.GraphResponse, f GraphFilter) {
	any := func(list []string, names ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
	}
	near, calls := near(g, f.Apps, f.Steps), []*v1alpha1.GraphCall{}
	for _, c := range g.GetCalls() {
		if !near(c) || f.Seen && !c.GetSeen() || f.Declared && !c.GetDeclared() {
			continue
		}
		routes := slices.DeleteFunc(slices.Clone(c.GetRoutes()), func(r *v1alpha1.GraphRoute) bool { return !any(f.Clusters, r.GetCluster(), c.GetIn()) })
		if len(routes) == 0 {
			continue
		}
		if len(f.Clusters) > 0 {
			c = copied(c)
		}
		if len(f.Clusters) == 1 {
			c.Harm = impact(c, f.Clusters[0])
		}
		if len(f.Clusters) > 0 && !f.Whole {
			c.Routes = routes
		}
		calls = append(calls, c)
	}
	g.Calls = calls
	if len(f.Apps) == 0 && len(f.Clusters) == 0 && !f.Seen && !f.Declared {
		return
	}
	apps, clusters := map[catalog.App]bool{}, map[string]bool{}
	for _, c := range calls {
		apps[wire.AppOf(c.GetCallee())], clusters[c.GetIn()] = true, true
		if c.GetIn() == g.GetCluster() {
			apps[wire.AppOf(c.GetCaller())] = true
		}
		for _, r := range c.GetRoutes() {
			clusters[r.GetCluster()] = true
		}
	}
	for _, app := range f.Apps {
		apps[app] = true
	}
	g.Apps = slices.DeleteFunc(g.GetApps(), func(a *v1alpha1.GraphApp) bool { return !apps[wire.AppOf(a.GetApp())] })
	g.Clusters = slices.DeleteFunc(g.GetClusters(), func(c *v1alpha1.GraphCluster) bool { return !clusters[c.GetName()] })
}

// near tells whether a call is on a way of so many calls that leads to one of the apps or from it.
func near(g *v1alpha1.GraphResponse, apps []catalog.App, steps int) func(*v1alpha1.GraphCall) bool {
	callees, callers := map[catalog.App]bool{}, map[catalog.App]bool{}
	for _, app := range apps {
		callees[app], callers[app] = true, true
	}
	for range max(steps, 1) - 1 {
		above, below := maps.Clone(callees), maps.Clone(callers)
		for _, c := range g.GetCalls() {
			if callees[wire.AppOf(c.GetCallee())] && c.GetIn() == g.GetCluster() {
				above[wire.AppOf(c.GetCaller())] = true
			}
			if callers[wire.AppOf(c.GetCaller())] && c.GetIn() == g.GetCluster() {
				below[wire.AppOf(c.GetCallee())] = true
			}
		}
		callees, callers = above, below
	}
	return func(c *v1alpha1.GraphCall) bool {
		return len(apps) == 0 || callees[wire.AppOf(c.GetCallee())] || callers[wire.AppOf(c.GetCaller())]
	}
}

// Drawing is a graph as pictures have it: each cluster a column of apps.
type Drawing struct {
	Columns []Column
	Edges   []Edge
}

// Column is a cluster.
type Column struct {
	Cluster, State string
	Apps           []DrawnApp
}

// DrawnApp is an app in one cluster, by its place.
type DrawnApp struct{ App, Note string }

// Place is a column and a row.
type Place struct{ Column, Row int }

// Edge is a route.
type Edge struct {
	From, To Place
	Way      Way
	Title    string
}

// Way is what a route is to its caller now.
type Way string

// The ways.
const (
	Taken   Way = "taken"
	Standby Way = "standby"
	Stale   Way = "stale"
	Down    Way = "down"
	Denied  Way = "denied" // seen, and nothing lets it in
	Unseen  Way = "unseen" // taken, and never seen while others were
	Unused  Way = "unused" // of a default, and leads nowhere, which hurts nobody
)

// edgeStyle is how an edge is drawn.
type edgeStyle struct {
	colour string
	dashed bool
}

var styles = map[Way]edgeStyle{
	Taken:   {"#2e7d32", false},
	Standby: {"#78909c", true},
	Stale:   {"#ef6c00", false},
	Down:    {"#c62828", true},
	Denied:  {"#c62828", false},
	Unseen:  {"#2e7d32", true},
	Unused:  {"#78909c", true},
}

// Draw places the apps of a graph: this cluster first, the others by name.
func Draw(g *v1alpha1.GraphResponse) *Drawing {
	d := &Drawing{}
	notes := map[string]map[string]string{g.GetCluster(): {}}
	for _, a := range g.GetApps() {
		notes[g.GetCluster()][Name(a.GetApp())] = readyNote(a.GetReady(), a.GetVersions())
	}
	put := func(cluster, app, note string) {
		if notes[cluster] == nil {
			notes[cluster] = map[string]string{}
		}
		notes[cluster][app] = cmp.Or(notes[cluster][app], note)
	}
	states := map[string]string{}
	for _, c := range g.GetClusters() {
		states[c.GetName()] = c.GetState()
		notes[c.GetName()] = map[string]string{}
	}
	anySeen := slices.ContainsFunc(g.GetCalls(), (*v1alpha1.GraphCall).GetSeen)
	for _, c := range g.GetCalls() {
		put(c.GetIn(), Name(c.GetCaller()), "")
		for _, r := range c.GetRoutes() {
			note := ""
			if r.GetCluster() != g.GetCluster() {
				note = readyNote(r.GetReady(), r.GetVersions())
			}
			put(r.GetCluster(), Name(c.GetCallee()), note)
		}
	}
	names := slices.Sorted(maps.Keys(notes))
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(number(b2u(a != g.GetCluster())), number(b2u(b != g.GetCluster())))
	})
	at := map[[2]string]Place{}
	for i, name := range names {
		col := Column{Cluster: cmp.Or(name, "unknown"), State: states[name]}
		for row, app := range slices.Sorted(maps.Keys(notes[name])) {
			at[[2]string{name, app}] = Place{i, row}
			col.Apps = append(col.Apps, DrawnApp{app, notes[name][app]})
		}
		d.Columns = append(d.Columns, col)
	}
	for _, c := range g.GetCalls() {
		caller, callee := Name(c.GetCaller()), Name(c.GetCallee())
		for _, r := range c.GetRoutes() {
			d.Edges = append(d.Edges, Edge{
				at[[2]string{c.GetIn(), caller}], at[[2]string{r.GetCluster(), callee}], wayOf(c, r, anySeen && r.GetCluster() == g.GetCluster()),
				caller + " to " + callee + ": " + r.GetState() + after("; ", c.GetRule()),
			})
		}
	}
	return d
}

func wayOf(c *v1alpha1.GraphCall, r *v1alpha1.GraphRoute, mustBeSeen bool) Way {
	switch {
	case c.GetState() == callDenied:
		return Denied
	case !r.GetUsable() && c.GetCaller().GetId() == catalog.DefaultName && !c.GetSeen():
		return Unused
	case !r.GetUsable():
		return Down
	case !r.GetTaken():
		return Standby
	case r.GetState() == callStale:
		return Stale
	case mustBeSeen && !c.GetSeen():
		return Unseen
	}
	return Taken
}

// readyNote says how many instances are ready, and of which versions.
func readyNote(ready uint32, versions string) string {
	return number(ready) + " ready" + after("; ", catalog.Clip(versions, maxNote))
}

// maxNote bounds the versions on a picture.
const maxNote = 24

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
