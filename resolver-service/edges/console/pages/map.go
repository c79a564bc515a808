package pages

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// mapView is the page of the map.
type mapView struct {
	Query      mapQuery
	Picture    *picture // nil where there is nothing to draw, or too much
	Calls      []*v1alpha1.GraphCall
	Total      int // of calls
	Next       int // row at which the table goes on; 0 at its end
	Collapsed  bool
	Namespaces []string
	Clusters   []string
	Over       []tab
	Figures    string // all calls of the time
	Missing    []*v1alpha1.MissingReplica
}

// mapQuery is what the map was asked for.
type mapQuery struct {
	App, Namespace, Cluster, Search string
	Steps                           int
	Only                            string // seen, declared, refused, or empty
	From                            int    // row of the table
	Over                            window
	Zoom                            string
}

// Bounds of the map and its lists.
const (
	mostDrawn   = 60  // apps in all columns; more are drawn by namespace
	mostWays    = 120 // between them
	mostColumns = 8   // of other clusters; more are drawn as one
	mostRows    = 100 // of a table
	mostBeside  = 40  // of one beside a picture
)

func mapPage(r *request) (*content, error) {
	q, err := mapQueryOf(r.FormValue)
	if err != nil {
		return nil, err
	}
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	g, err := r.graphOf(q)
	if err != nil {
		return nil, err
	}
	v := &mapView{Query: q, Namespaces: namespaces(g)}
	for _, peer := range now.GetPeers() {
		v.Clusters = append(v.Clusters, peer.GetCluster())
	}
	calls, err := r.traffic(&v1alpha1.TrafficRequest{}, q.Over)
	if err != nil {
		return nil, err
	}
	live := addTraffic(g, calls)
	v.Missing = calls.GetMissing()
	v.Figures, v.Over = figures(calls), q.Over.tabs(windows[:3], func(over string) string { return q.at("over", over) })
	narrow(g, q)
	v.Total, v.Calls = len(g.GetCalls()), g.GetCalls()[min(q.From, len(g.GetCalls())):]
	if len(v.Calls) > mostBeside {
		v.Calls, v.Next = v.Calls[:mostBeside], q.From+mostBeside
	}
	v.Picture, v.Collapsed = drawFitting(g, live, q.App, q.Namespace)
	if err := v.Picture.zoom(q.Zoom, func(zoom string) string { return q.at("zoom", zoom) }); err != nil {
		return nil, err
	}
	return &content{Page: v, Title: "Map", Command: q.command(), Live: true}, nil
}

// graphOf asks for no more than is looked at.
func (r *request) graphOf(q mapQuery) (*v1alpha1.GraphResponse, error) {
	if q.App+q.Namespace+q.Cluster == "" {
		return r.wholeGraph()
	}
	req := &v1alpha1.GraphRequest{Namespace: q.Namespace, Via: q.Cluster}
	if q.App != "" {
		app, err := catalog.ParseApp(q.App)
		if err != nil {
			return nil, err
		}
		req.Focus, req.Steps = wire.App(app), uint32(q.Steps)
	}
	return r.graph(req)
}

func mapQueryOf(value func(string) string) (mapQuery, error) {
	q := mapQuery{App: value("app"), Namespace: value("namespace"), Cluster: value("cluster"), Search: strings.TrimSpace(value("q")), Only: value("only"), Steps: 1, Zoom: value("zoom")}
	if q.App != "" {
		if _, err := catalog.ParseApp(q.App); err != nil {
			return q, refuse(http.StatusBadRequest, "app: %v", err)
		}
	}
	var err error
	if text := value("steps"); text != "" {
		if q.Steps, err = strconv.Atoi(text); err != nil || q.Steps < 1 || q.Steps > 2 {
			return q, refuse(http.StatusBadRequest, "steps: want 1 or 2")
		}
	}
	if q.From, err = rowOf(value); err != nil {
		return q, err
	}
	if q.Over, err = windowOf(value, "1m"); err != nil {
		return q, err
	}
	if !slices.Contains([]string{"", "seen", "declared", "refused"}, q.Only) {
		return q, refuse(http.StatusBadRequest, "only: want seen, declared or refused")
	}
	return q, nil
}

// rowOf is the row at which a table begins.
func rowOf(value func(string) string) (int, error) {
	text := value("row")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "row: want a number, not %q", text)
	}
	return int(n), nil
}

func (q mapQuery) command() string {
	command := "isthmus graph"
	if q.App != "" {
		command += " --app " + q.App
	}
	if q.Cluster != "" {
		command += " --via " + q.Cluster
	}
	switch q.Only {
	case "seen", "declared":
		command += " --" + q.Only
	}
	return command
}

// At is the address of the same map from another row of the table on.
func (q mapQuery) At(row int) string { return q.at("row", strconv.Itoa(row)) }

// at is the address of the same map with another value of one name.
func (q mapQuery) at(name, value string) string {
	values := url.Values{}
	for name, value := range map[string]string{"app": q.App, "namespace": q.Namespace, "cluster": q.Cluster, "q": q.Search, "only": q.Only, "zoom": q.Zoom} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if q.Steps > 1 {
		values.Set("steps", strconv.Itoa(q.Steps))
	}
	if q.Over.Name != windows[0].Name {
		values.Set("over", q.Over.Name)
	}
	values.Set(name, value)
	return "/map?" + values.Encode()
}

// narrow leaves the calls that were asked for, and the apps and clusters of these.
func narrow(g *v1alpha1.GraphResponse, q mapQuery) {
	filter := show.GraphFilter{Seen: q.Only == "seen", Declared: q.Only == "declared"}
	if q.App != "" {
		app := appNamed(q.App)
		filter.Apps, filter.Steps = []catalog.App{{Namespace: app.GetNamespace(), ID: app.GetId()}}, q.Steps
	}
	if q.Cluster != "" {
		filter.Clusters = []string{q.Cluster}
	}
	g.Calls = slices.DeleteFunc(g.GetCalls(), func(c *v1alpha1.GraphCall) bool {
		within := func(a *v1alpha1.App) bool { return a.GetNamespace() == q.Namespace }
		found := strings.Contains(show.Name(c.GetCaller()), q.Search) || strings.Contains(show.Name(c.GetCallee()), q.Search)
		return q.Only == "refused" && c.GetState() != "denied" || !found || q.Namespace != "" && !within(c.GetCaller()) && !within(c.GetCallee())
	})
	if q.Namespace+q.Search != "" && len(filter.Apps) == 0 {
		g.Apps = slices.DeleteFunc(g.GetApps(), func(a *v1alpha1.GraphApp) bool {
			return !strings.HasPrefix(a.GetApp().GetNamespace(), q.Namespace) || !strings.Contains(show.Name(a.GetApp()), q.Search)
		})
		kept := map[string]bool{}
		for _, c := range g.GetCalls() {
			for _, r := range c.GetRoutes() {
				kept[r.GetCluster()] = true
			}
			kept[c.GetIn()] = true
		}
		g.Clusters = slices.DeleteFunc(g.GetClusters(), func(c *v1alpha1.GraphCluster) bool { return !kept[c.GetName()] })
	}
	show.Filter(g, filter)
}

func namespaces(g *v1alpha1.GraphResponse) []string {
	var all []string
	for _, a := range g.GetApps() {
		all = append(all, a.GetApp().GetNamespace())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// drawFitting draws a graph with as much in it as people can tell apart. Where that is not all, apps are drawn
// as their namespaces, but for those in focus if that is possible, or as one, and many clusters as one.
func drawFitting(g *v1alpha1.GraphResponse, calls *flows, app, namespace string) (p *picture, collapsed bool) {
	g = withoutIdle(g)
	if fits(g) {
		return draw(g, calls, mapLink, app), false
	}
	for _, names := range []func(string) string{
		func(name string) string {
			if name == app || app == "" && namespaceOf(name) == namespace {
				return name
			}
			return namespaceOf(name)
		},
		namespaceOf,
		func(string) string { return allApps },
	} {
		if drawn := collapse(g, names); fits(drawn) || names("/") == allApps {
			return draw(drawn, calls.folded(names, joined(g)), mapLink, app), true
		}
	}
	return nil, true
}

func namespaceOf(app string) string { namespace, _, _ := strings.Cut(app, "/"); return namespace }

// allApps is drawn for all apps of a cluster.
const allApps = "all apps"

// mapLink is where a box of a map leads to.
func mapLink(name string) string {
	switch {
	case name == allApps:
		return "/apps"
	case strings.Contains(name, "/"):
		return appPath(name)
	}
	return withQuery("/map", "namespace", name)
}

// withoutIdle leaves out clusters without a call, if there are many.
func withoutIdle(g *v1alpha1.GraphResponse) *v1alpha1.GraphResponse {
	if len(g.GetClusters()) <= mostColumns {
		return g
	}
	used := ways(g)
	return &v1alpha1.GraphResponse{
		Cluster: g.GetCluster(), Apps: g.GetApps(), Calls: g.GetCalls(),
		Clusters: slices.DeleteFunc(slices.Clone(g.GetClusters()), func(c *v1alpha1.GraphCluster) bool { return used[c.GetName()] == 0 }),
	}
}

// ways counts the ways from and to each cluster.
func ways(g *v1alpha1.GraphResponse) map[string]int {
	all := map[string]int{}
	for _, c := range g.GetCalls() {
		all[c.GetIn()]++
		for _, route := range c.GetRoutes() {
			all[route.GetCluster()]++
		}
	}
	return all
}

// fits tells whether people can tell everything of a graph apart in a picture.
func fits(g *v1alpha1.GraphResponse) bool {
	type place struct{ cluster, app string }
	places, ways := map[place]bool{}, 0
	for _, a := range g.GetApps() {
		places[place{g.GetCluster(), show.Name(a.GetApp())}] = true
	}
	for _, c := range g.GetCalls() {
		places[place{c.GetIn(), show.Name(c.GetCaller())}] = true
		for _, route := range c.GetRoutes() {
			places[place{route.GetCluster(), show.Name(c.GetCallee())}] = true
			ways++
		}
	}
	return len(places) <= mostDrawn && ways <= mostWays && len(g.GetClusters()) <= mostColumns+1
}

// collapse is a graph in which apps of one name are one, and clusters are one with others, but those with
// the most ways. Of several ways from one to another by a cluster, the line is the one that leads farthest: one
// that is taken, otherwise one that stands by. It is denied if any call is.
func collapse(g *v1alpha1.GraphResponse, name func(string) string) *v1alpha1.GraphResponse {
	cluster := joined(g)
	all := &v1alpha1.GraphResponse{Cluster: g.GetCluster()}
	for _, c := range g.GetClusters() {
		if joint := cluster(c.GetName()); joint == c.GetName() {
			all.Clusters = append(all.Clusters, c)
		}
	}
	apps := map[string]*v1alpha1.GraphApp{}
	for _, a := range g.GetApps() {
		n := name(show.Name(a.GetApp()))
		if apps[n] == nil {
			apps[n] = &v1alpha1.GraphApp{App: appNamed(n)}
			all.Apps = append(all.Apps, apps[n])
		}
		apps[n].Ready += a.GetReady()
	}
	type way struct{ in, caller, callee, to string }
	at := map[way]*v1alpha1.GraphCall{}
	for _, c := range g.GetCalls() {
		for _, route := range c.GetRoutes() {
			w := way{cluster(c.GetIn()), name(show.Name(c.GetCaller())), name(show.Name(c.GetCallee())), cluster(route.GetCluster())}
			of := at[w]
			if of == nil {
				of = &v1alpha1.GraphCall{Caller: appNamed(w.caller), In: w.in, Callee: appNamed(w.callee), State: c.GetState(), Declared: c.GetDeclared(), Routes: []*v1alpha1.GraphRoute{{
					Cluster: w.to, Priority: route.GetPriority(), Weight: route.GetWeight(), State: route.GetState(), Usable: route.GetUsable(), Taken: route.GetTaken(),
				}}}
				at[w], all.Calls = of, append(all.Calls, of)
			}
			of.Seen = of.GetSeen() || c.GetSeen()
			if c.GetState() == "denied" {
				of.State = c.GetState()
			}
			if r := of.GetRoutes()[0]; !r.GetTaken() && (route.GetTaken() || route.GetUsable() && !r.GetUsable()) {
				r.State, r.Usable, r.Taken = route.GetState(), route.GetUsable(), route.GetTaken()
			}
		}
	}
	slices.SortFunc(all.Calls, func(a, b *v1alpha1.GraphCall) int {
		return cmp.Or(cmp.Compare(show.Name(a.GetCaller()), show.Name(b.GetCaller())), cmp.Compare(show.Name(a.GetCallee()), show.Name(b.GetCallee())))
	})
	return all
}

// joined is the name under which each cluster is drawn: its own, or one for all that have few ways.
func joined(g *v1alpha1.GraphResponse) func(string) string {
	used := ways(g)
	delete(used, g.GetCluster())
	if len(used) <= mostColumns {
		return func(cluster string) string { return cluster }
	}
	names := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(used[b]-used[a], cmp.Compare(a, b)) })
	kept := append(names[:mostColumns-1:mostColumns-1], g.GetCluster())
	others := fmt.Sprintf("%d other clusters", len(names)-mostColumns+1)
	return func(cluster string) string {
		if slices.Contains(kept, cluster) {
			return cluster
		}
		return others
	}
}

// routeText is what a route is like, behind its cluster.
func routeText(r *v1alpha1.GraphRoute) string {
	state := plain(r.GetState())
	switch {
	case r.GetTaken() && state == "ready":
		state = ""
	case r.GetTaken():
		state = ", " + state
	case r.GetUsable():
		state = "stands by, " + state
	}
	return fmt.Sprintf("%s, priority %d, weight %d, %d ready", state, r.GetPriority(), r.GetWeight(), r.GetReady())
}
