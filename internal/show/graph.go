package show

import (
	"cmp"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Graph is the apps and clusters with the calls between them, as programs read it.
type Graph struct {
	Cluster  string         `json:"cluster" yaml:"cluster"`   // the one that was asked
	Apps     []GraphApp     `json:"apps" yaml:"apps"`         // in that cluster
	Clusters []GraphCluster `json:"clusters" yaml:"clusters"` // the others
	Calls    []GraphCall    `json:"calls" yaml:"calls"`
}

// GraphApp is an app.
type GraphApp struct {
	App        string   `json:"app" yaml:"app"`
	Ready      uint32   `json:"ready" yaml:"ready"`
	Selection  bool     `json:"selection" yaml:"selection"`   // it has AppEndpoints
	ExportedTo []string `json:"exportedTo" yaml:"exportedTo"` // "*" for any cluster
}

// GraphCluster is another cluster.
type GraphCluster struct {
	Cluster string `json:"cluster" yaml:"cluster"`
	Object  bool   `json:"object" yaml:"object"` // there is a Cluster object
	State   string `json:"state" yaml:"state"`   // connected, stale, damped or unheard
}

// GraphCall is a caller's way to a callee.
type GraphCall struct {
	Caller   string `json:"caller" yaml:"caller"`
	In       string `json:"in" yaml:"in"` // the caller's cluster
	Callee   string `json:"callee" yaml:"callee"`
	State    string `json:"state" yaml:"state"` // ready, stale, unavailable, or denied: seen, and nothing lets it in
	Declared bool   `json:"declared" yaml:"declared"`
	Seen     bool   `json:"seen" yaml:"seen"` // by the callee's guard in this cluster
	Rule     string `json:"rule" yaml:"rule"` // the object and line that declares it
	// Harm is fails, elsewhere, stale or none, by the state of the one cluster that calls were filtered by.
	Harm   string       `json:"harm,omitempty" yaml:"harm,omitempty"`
	Routes []GraphRoute `json:"routes" yaml:"routes"`
}

// GraphRoute is one way to a callee.
type GraphRoute struct {
	Cluster  string `json:"cluster" yaml:"cluster"`
	Priority uint32 `json:"priority" yaml:"priority"`
	Weight   uint32 `json:"weight" yaml:"weight"`
	State    string `json:"state" yaml:"state"` // ready, stale, damped, or why it is not used
	Ready    uint32 `json:"ready" yaml:"ready"`
	Usable   bool   `json:"usable" yaml:"usable"`
	Taken    bool   `json:"taken" yaml:"taken"` // lookups take it now
}

// The states of a call.
const (
	callReady       = "ready"
	callStale       = "stale"
	callUnavailable = "unavailable"
	callDenied      = "denied"
)

// Add takes in a message.
func (g *Graph) Add(m *v1alpha1.GraphResponse) {
	g.Cluster = cmp.Or(g.Cluster, m.GetCluster())
	for _, a := range m.GetApps() {
		if a.GetHere() {
			g.Apps = append(g.Apps, GraphApp{appName(a.GetApp()), a.GetReady(), a.GetSelection(), append([]string{}, a.GetExportedTo()...)})
		}
	}
	for _, c := range m.GetClusters() {
		g.Clusters = append(g.Clusters, GraphCluster{c.GetName(), c.GetObject(), c.GetState()})
	}
	for _, c := range m.GetCalls() {
		call := GraphCall{Caller: appName(c.GetCaller()), In: g.Cluster, Callee: appName(c.GetCallee()), Declared: true, Rule: c.GetRule(), State: callUnavailable, Routes: []GraphRoute{}}
		for _, r := range c.GetRoutes() {
			call.Routes = append(call.Routes, GraphRoute{r.GetCluster(), r.GetPriority(), r.GetWeight(), r.GetState(), r.GetReady(), r.GetUsable(), r.GetTaken()})
			switch {
			case r.GetTaken() && r.GetState() == callStale && call.State != callReady:
				call.State = callStale
			case r.GetTaken():
				call.State = callReady
			}
		}
		g.Calls = append(g.Calls, call)
	}
}

// AddSeen takes in the calls that guards have seen.
func (g *Graph) AddSeen(all []Call) {
	type edge struct{ in, caller, callee string }
	at := make(map[edge]int, len(g.Calls))
	for i := range g.Calls {
		c := &g.Calls[i]
		at[edge{c.In, c.Caller, c.Callee}] = i
	}
	for i := range all {
		c := &all[i]
		if !c.Seen() || c.App == (catalog.App{}) || c.App == c.Of {
			continue
		}
		in := c.Cluster
		if in == catalog.LocalCluster {
			in = g.Cluster
		}
		if j, ok := at[edge{in, c.Caller, c.Callee}]; ok {
			g.Calls[j].Seen = true
			continue
		}
		call := GraphCall{
			Caller: c.Caller, In: in, Callee: c.Callee, Seen: true, Declared: c.Declared, Rule: c.Rule, State: callReady,
			Routes: []GraphRoute{{Cluster: g.Cluster, Weight: catalog.DefaultWeight, State: callReady, Usable: true, Taken: true}},
		}
		if c.Rule == "" {
			call.State = callDenied
		}
		g.Calls = append(g.Calls, call)
	}
	slices.SortFunc(g.Calls, func(a, b GraphCall) int {
		return cmp.Or(cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.In, b.In), cmp.Compare(a.Callee, b.Callee))
	})
}

// GraphFilter narrows a graph.
type GraphFilter struct {
	Apps           []string // calls by or of them
	Steps          int      // or on longer ways to and from them, of so many calls; 0 counts as 1
	Clusters       []string // routes to them; of one, each call says what harm it does
	Whole          bool     // a call that has such a route keeps all its routes
	Seen, Declared bool     // only such calls
}

// Filter leaves out the calls that the filter does not name, and the apps and clusters that no call
// is left of.
func (g *Graph) Filter(f GraphFilter) {
	any := func(list []string, names ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
	}
	near, calls := g.near(f.Apps, f.Steps), []GraphCall{}
	for _, c := range g.Calls {
		if len(f.Clusters) == 1 {
			c.Harm = c.harm(f.Clusters[0])
		}
		routes := slices.DeleteFunc(slices.Clone(c.Routes), func(r GraphRoute) bool { return !any(f.Clusters, r.Cluster, c.In) })
		if !f.Whole {
			c.Routes = routes
		}
		if near(&c) && len(routes) > 0 && (c.Seen || !f.Seen) && (c.Declared || !f.Declared) {
			calls = append(calls, c)
		}
	}
	g.Calls = calls
	if len(f.Apps) == 0 && len(f.Clusters) == 0 && !f.Seen && !f.Declared {
		return
	}
	apps, clusters := map[string]bool{}, map[string]bool{}
	for i := range calls {
		c := &calls[i]
		apps[c.Callee], clusters[c.In] = true, true
		if c.In == g.Cluster {
			apps[c.Caller] = true
		}
		for _, r := range c.Routes {
			clusters[r.Cluster] = true
		}
	}
	for _, app := range f.Apps {
		apps[app] = true
	}
	g.Apps = slices.DeleteFunc(g.Apps, func(a GraphApp) bool { return !apps[a.App] })
	g.Clusters = slices.DeleteFunc(g.Clusters, func(c GraphCluster) bool { return !clusters[c.Cluster] })
}

// near tells whether a call is on a way of so many calls that leads to one of the apps or from it.
func (g *Graph) near(apps []string, steps int) func(*GraphCall) bool {
	callees, callers := map[string]bool{}, map[string]bool{}
	for _, app := range apps {
		callees[app], callers[app] = true, true
	}
	for range max(steps, 1) - 1 {
		above, below := maps.Clone(callees), maps.Clone(callers)
		for i := range g.Calls {
			c := &g.Calls[i]
			if callees[c.Callee] && c.In == g.Cluster {
				above[c.Caller] = true
			}
			if callers[c.Caller] && c.In == g.Cluster {
				below[c.Callee] = true
			}
		}
		callees, callers = above, below
	}
	return func(c *GraphCall) bool {
		return len(apps) == 0 || callees[c.Callee] || callers[c.Caller]
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
	Call     *GraphCall
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
}

// Draw places the apps: this cluster first, the others by name.
func (g *Graph) Draw() *Drawing {
	d := &Drawing{}
	notes := map[string]map[string]string{g.Cluster: {}}
	for i := range g.Apps {
		notes[g.Cluster][g.Apps[i].App] = readyNote(g.Apps[i].Ready)
	}
	put := func(cluster, app, note string) {
		if notes[cluster] == nil {
			notes[cluster] = map[string]string{}
		}
		notes[cluster][app] = cmp.Or(notes[cluster][app], note)
	}
	states := map[string]string{}
	for _, c := range g.Clusters {
		states[c.Cluster] = c.State
		notes[c.Cluster] = map[string]string{}
	}
	anySeen := slices.ContainsFunc(g.Calls, func(c GraphCall) bool { return c.Seen })
	for i := range g.Calls {
		c := &g.Calls[i]
		put(c.In, c.Caller, "")
		for _, r := range c.Routes {
			note := ""
			if r.Cluster != g.Cluster {
				note = readyNote(r.Ready)
			}
			put(r.Cluster, c.Callee, note)
		}
	}
	names := slices.Sorted(maps.Keys(notes))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(number(b2u(a != g.Cluster)), number(b2u(b != g.Cluster))) })
	at := map[[2]string]Place{}
	for i, name := range names {
		col := Column{Cluster: cmp.Or(name, "unknown"), State: states[name]}
		for row, app := range slices.Sorted(maps.Keys(notes[name])) {
			at[[2]string{name, app}] = Place{i, row}
			col.Apps = append(col.Apps, DrawnApp{app, notes[name][app]})
		}
		d.Columns = append(d.Columns, col)
	}
	for i := range g.Calls {
		c := &g.Calls[i]
		for _, r := range c.Routes {
			e := Edge{at[[2]string{c.In, c.Caller}], at[[2]string{r.Cluster, c.Callee}], c.way(&r, anySeen && r.Cluster == g.Cluster), c.Caller + " to " + c.Callee + ": " + r.State, c}
			if c.Rule != "" {
				e.Title += "; " + c.Rule
			}
			d.Edges = append(d.Edges, e)
		}
	}
	return d
}

func (c *GraphCall) way(r *GraphRoute, mustBeSeen bool) Way {
	switch {
	case c.State == callDenied:
		return Denied
	case !r.Usable:
		return Down
	case !r.Taken:
		return Standby
	case r.State == callStale:
		return Stale
	case mustBeSeen && !c.Seen:
		return Unseen
	}
	return Taken
}

func readyNote(ready uint32) string { return number(ready) + " ready" }

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
