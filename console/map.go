package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/show"
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
	Clusters   []show.GraphCluster
	Own        string
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
	mostDrawn = 60  // apps in all columns; more are drawn by namespace
	mostRows  = 100 // of a table
)

func mapPage(r *request) (*content, error) {
	q, err := mapQueryOf(r.FormValue)
	if err != nil {
		return nil, err
	}
	g, err := r.graph()
	if err != nil {
		return nil, err
	}
	v := &mapView{Query: q, Own: g.Cluster, Clusters: g.Clusters, Namespaces: namespaces(g)}
	narrow(g, q)
	v.Total, v.Calls = len(g.Calls), g.Calls[min(q.From, len(g.Calls)):]
	if len(v.Calls) > mostRows {
		v.Calls, v.Next = v.Calls[:mostRows], q.From+mostRows
	}
	drawn, link := g, appPath
	if tooMany(g) && q.App == "" && q.Namespace == "" {
		drawn, v.Collapsed = byNamespace(g), true
		link = func(namespace string) string { return "/map?namespace=" + url.QueryEscape(namespace) }
	}
	v.Picture = draw(drawn, link, q.App)
	return &content{Page: "map", Title: "Map", Command: q.command(), Live: true, Data: v}, nil
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

// tooMany tells whether a graph has more apps than people can tell apart in a picture.
func tooMany(g *show.Graph) bool {
	apps := map[string]bool{}
	for i := range g.Apps {
		apps[g.Apps[i].App] = true
	}
	for i := range g.Calls {
		apps[g.Calls[i].Caller], apps[g.Calls[i].Callee] = true, true
	}
	return len(apps) > mostDrawn
}

// byNamespace is a graph of namespaces, each an app of its own. Of several ways from one to another by a
// cluster, the line is the one that leads farthest: one that is taken, otherwise one that stands by. It
// is denied if any call is.
func byNamespace(g *show.Graph) *show.Graph {
	of := func(app string) string { namespace, _, _ := strings.Cut(app, "/"); return namespace }
	all := &show.Graph{Cluster: g.Cluster, Clusters: g.Clusters}
	for i := range g.Apps {
		name := of(g.Apps[i].App)
		if n := len(all.Apps); n == 0 || all.Apps[n-1].App != name {
			all.Apps = append(all.Apps, show.GraphApp{App: name})
		}
		all.Apps[len(all.Apps)-1].Ready += g.Apps[i].Ready
	}
	type way struct{ in, caller, callee, to string }
	at := map[way]int{}
	for i := range g.Calls {
		c := &g.Calls[i]
		for _, route := range c.Routes {
			w := way{c.In, of(c.Caller), of(c.Callee), route.Cluster}
			j, ok := at[w]
			if !ok {
				j, at[w] = len(all.Calls), len(all.Calls)
				route.Ready = 0
				all.Calls = append(all.Calls, show.GraphCall{Caller: w.caller, In: c.In, Callee: w.callee, State: c.State, Declared: c.Declared, Seen: c.Seen, Routes: []show.GraphRoute{route}})
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

// waysInWords say what the lines of a map mean, in the order of the legend.
var waysInWords = []struct {
	Way  show.Way
	Text string
}{
	{show.Taken, "taken now"}, {show.Unseen, "taken, never seen"}, {show.Standby, "stands by"}, {show.Stale, "taken, its cluster is stale"},
	{show.Down, "leads nowhere now"}, {show.Denied, "seen, and refused"},
}
