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
	Calls      []show.GraphCall
	Total      int // of calls
	Next       int // row at which the table goes on; 0 at its end
	Collapsed  bool
	Namespaces []string
	Clusters   []string
}

// mapQuery is what the map was asked for.
type mapQuery struct {
	App, Namespace, Cluster, Search string
	Steps                           int
	Only                            string // seen, declared, refused, or empty
	From                            int    // row of the table
}

// Bounds of what is drawn and listed.
const (
	mostDrawn   = 60  // apps in all columns; more are drawn by namespace
	mostWays    = 250 // between them
	mostColumns = 8   // of other clusters; more are drawn as one
	mostRows    = 100 // of a table
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
	narrow(g, q)
	v.Total, v.Calls = len(g.Calls), g.Calls[min(q.From, len(g.Calls)):]
	if len(v.Calls) > mostRows {
		v.Calls, v.Next = v.Calls[:mostRows], q.From+mostRows
	}
	v.Picture, v.Collapsed = drawFitting(g, q.App, q.Namespace)
	return &content{Page: "map", Title: "Map", Command: q.command(), Live: true, Data: v}, nil
}

// graphOf asks for no more than is looked at.
func (r *request) graphOf(q mapQuery) (*show.Graph, error) {
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
	q := mapQuery{App: value("app"), Namespace: value("namespace"), Cluster: value("cluster"), Search: strings.TrimSpace(value("q")), Only: value("only"), Steps: 1}
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
func (q mapQuery) At(row int) string {
	values := url.Values{}
	for name, value := range map[string]string{"app": q.App, "namespace": q.Namespace, "cluster": q.Cluster, "q": q.Search, "only": q.Only} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if q.Steps > 1 {
		values.Set("steps", strconv.Itoa(q.Steps))
	}
	values.Set("row", strconv.Itoa(row))
	return "/map?" + values.Encode()
}

// narrow leaves the calls that were asked for, and the apps and clusters of these.
func narrow(g *show.Graph, q mapQuery) {
	filter := show.GraphFilter{Seen: q.Only == "seen", Declared: q.Only == "declared"}
	if q.App != "" {
		filter.Apps, filter.Steps = []string{q.App}, q.Steps
	}
	if q.Cluster != "" {
		filter.Clusters = []string{q.Cluster}
	}
	g.Calls = slices.DeleteFunc(g.Calls, func(c show.GraphCall) bool {
		within := func(app string) bool { return strings.HasPrefix(app, q.Namespace+"/") }
		found := strings.Contains(c.Caller, q.Search) || strings.Contains(c.Callee, q.Search)
		return q.Only == "refused" && c.State != "denied" || !found || q.Namespace != "" && !within(c.Caller) && !within(c.Callee)
	})
	if q.Namespace+q.Search != "" && len(filter.Apps) == 0 {
		g.Apps = slices.DeleteFunc(g.Apps, func(a show.GraphApp) bool {
			return !strings.HasPrefix(a.App, q.Namespace) || !strings.Contains(a.App, q.Search)
		})
		kept := map[string]bool{}
		for _, c := range g.Calls {
			for _, r := range c.Routes {
				kept[r.Cluster] = true
			}
			kept[c.In] = true
		}
		g.Clusters = slices.DeleteFunc(g.Clusters, func(c show.GraphCluster) bool { return !kept[c.Cluster] })
	}
	g.Filter(filter)
}

func namespaces(g *show.Graph) []string {
	var all []string
	for i := range g.Apps {
		namespace, _, _ := strings.Cut(g.Apps[i].App, "/")
		all = append(all, namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// drawFitting draws a graph with as much in it as people can tell apart. Where that is not all, apps are drawn
// as their namespaces, but for those in focus if that is possible, or as one, and many clusters as one.
func drawFitting(g *show.Graph, app, namespace string) (p *picture, collapsed bool) {
	g = withoutIdle(g)
	if fits(g) {
		return draw(g, mapLink, app), false
	}
	of := func(name string) string { namespace, _, _ := strings.Cut(name, "/"); return namespace }
	for _, names := range []func(string) string{
		func(name string) string {
			if name == app || app == "" && of(name) == namespace {
				return name
			}
			return of(name)
		},
		of,
		func(string) string { return allApps },
	} {
		if drawn := collapse(g, names); fits(drawn) || names("/") == allApps {
			return draw(drawn, mapLink, app), true
		}
	}
	return nil, true
}

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
	return "/map?namespace=" + url.QueryEscape(name)
}

// withoutIdle leaves out clusters without a call, if there are many.
func withoutIdle(g *show.Graph) *show.Graph {
	if len(g.Clusters) <= mostColumns {
		return g
	}
	used := ways(g)
	less := *g
	less.Clusters = slices.DeleteFunc(slices.Clone(g.Clusters), func(c show.GraphCluster) bool { return used[c.Cluster] == 0 })
	return &less
}

// ways counts the ways from and to each cluster.
func ways(g *show.Graph) map[string]int {
	all := map[string]int{}
	for i := range g.Calls {
		all[g.Calls[i].In]++
		for _, route := range g.Calls[i].Routes {
			all[route.Cluster]++
		}
	}
	return all
}

// fits tells whether people can tell everything of a graph apart in a picture.
func fits(g *show.Graph) bool {
	type place struct{ cluster, app string }
	places, ways := map[place]bool{}, 0
	for i := range g.Apps {
		places[place{g.Cluster, g.Apps[i].App}] = true
	}
	for i := range g.Calls {
		c := &g.Calls[i]
		places[place{c.In, c.Caller}] = true
		for _, route := range c.Routes {
			places[place{route.Cluster, c.Callee}] = true
			ways++
		}
	}
	return len(places) <= mostDrawn && ways <= mostWays && len(g.Clusters) <= mostColumns+1
}

// collapse is a graph in which apps of one name are one, and clusters are one with others, but those with
// the most ways. Of several ways from one to another by a cluster, the line is the one that leads farthest: one
// that is taken, otherwise one that stands by. It is denied if any call is.
func collapse(g *show.Graph, name func(string) string) *show.Graph {
	cluster := joined(g)
	all := &show.Graph{Cluster: g.Cluster}
	for _, c := range g.Clusters {
		if joint := cluster(c.Cluster); joint == c.Cluster {
			all.Clusters = append(all.Clusters, c)
		}
	}
	apps := map[string]int{}
	for i := range g.Apps {
		n := name(g.Apps[i].App)
		if _, ok := apps[n]; !ok {
			apps[n] = len(all.Apps)
			all.Apps = append(all.Apps, show.GraphApp{App: n})
		}
		all.Apps[apps[n]].Ready += g.Apps[i].Ready
	}
	type way struct{ in, caller, callee, to string }
	at := map[way]int{}
	for i := range g.Calls {
		c := &g.Calls[i]
		for _, route := range c.Routes {
			route.Cluster = cluster(route.Cluster)
			w := way{cluster(c.In), name(c.Caller), name(c.Callee), route.Cluster}
			j, ok := at[w]
			if !ok {
				j, at[w] = len(all.Calls), len(all.Calls)
				route.Ready = 0
				all.Calls = append(all.Calls, show.GraphCall{Caller: w.caller, In: w.in, Callee: w.callee, State: c.State, Declared: c.Declared, Seen: c.Seen, Routes: []show.GraphRoute{route}})
			}
			of := &all.Calls[j]
			of.Seen = of.Seen || c.Seen
			if c.State == "denied" {
				of.State = c.State
			}
			if r := &of.Routes[0]; !r.Taken && (route.Taken || route.Usable && !r.Usable) {
				r.State, r.Usable, r.Taken = route.State, route.Usable, route.Taken
			}
		}
	}
	slices.SortFunc(all.Calls, func(a, b show.GraphCall) int {
		return cmp.Or(cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee))
	})
	return all
}

// joined is the name under which each cluster is drawn: its own, or one for all that have few ways.
func joined(g *show.Graph) func(string) string {
	used := ways(g)
	delete(used, g.Cluster)
	if len(used) <= mostColumns {
		return func(cluster string) string { return cluster }
	}
	names := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(used[b]-used[a], cmp.Compare(a, b)) })
	kept := append(names[:mostColumns-1:mostColumns-1], g.Cluster)
	others := fmt.Sprintf("%d other clusters", len(names)-mostColumns+1)
	return func(cluster string) string {
		if slices.Contains(kept, cluster) {
			return cluster
		}
		return others
	}
}

// waysInWords say what the lines of a map mean, in the order of the legend.
var waysInWords = []struct {
	Way  show.Way
	Text string
}{
	{show.Taken, "taken now"}, {show.Unseen, "taken, never seen"}, {show.Standby, "stands by"}, {show.Stale, "taken, its cluster is stale"},
	{show.Down, "leads nowhere now"}, {show.Denied, "nothing lets it in"},
}
