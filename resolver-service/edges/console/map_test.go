package console_test

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
)

// way is a line of the map: from a caller in west to a callee in a cluster.
type way struct{ caller, callee, cluster, kind string }

func (x way) String() string { return x.caller + " > " + x.callee + " in " + x.cluster + ": " + x.kind }

// ways are what sidecars' views lead to, by what the map should draw of each.
func (w *world) ways(callers []catalog.App) (all []way) {
	for _, caller := range callers {
		if o, _ := w.west.object(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: caller.Namespace, Name: caller.ID}); o == nil {
			continue // it follows the cluster's default, which is no line
		}
		for callee, e := range w.west.view(caller) {
			if callee == caller {
				continue
			}
			for i := range e.Routes {
				all = append(all, way{caller.String(), callee.String(), e.Routes[i].Cluster, kindOf(e, &e.Routes[i])})
			}
		}
	}
	return all
}

// kindOf is what a route is now, by what sidecars do with it.
func kindOf(e *catalog.Entry, r *catalog.Route) string {
	taken := false
	for _, share := range e.Shares() {
		taken = taken || share.Route == r && share.Part > 0
	}
	switch {
	case !r.Usable():
		return "down"
	case !taken:
		return "standby"
	case r.State == catalog.Lapsed:
		return "stale"
	}
	return "taken"
}

// drawn are the lines of the picture, by the boxes that their ends touch.
func drawn(t *testing.T, page *consoletest.Page) (all []way) {
	t.Helper()
	boxes := map[[2]int][2]string{} // the middle of the left side, and of the right one, to app and cluster
	for _, box := range page.All("class", "node") {
		rect, label := box.Elements("rect"), box.Attr("aria-label")
		app, cluster, _ := strings.Cut(label[strings.LastIndex(label, ", ")+len(", "):], " in ")
		x, y, width, height := number(rect[0], "x"), number(rect[0], "y"), number(rect[0], "width"), number(rect[0], "height")
		boxes[[2]int{x, y + height/2}] = [2]string{app, cluster}
		boxes[[2]int{x + width, y + height/2}] = [2]string{app, cluster}
	}
	for _, g := range page.All("class", "edge") {
		path := g.Elements("path")[0].Attr("d")
		if len(g.Elements("circle")) == 0 {
			continue // of the legend
		}
		points := ends.FindAllString(path, -1)
		from, to := point(points[0]), point(points[len(points)-1])
		a, b := boxes[from], boxes[to]
		if a[1] != "west" || b[0] == "" {
			t.Fatalf("a line from %v %v to %v %v joins no two boxes", from, a, to, b)
		}
		all = append(all, way{a[0], b[0], b[1], strings.TrimPrefix(g.Attr("class"), "edge ")})
	}
	return all
}

// ends are the points of a path, of which the first and the last count.
var ends = regexp.MustCompile(`\d+ \d+`)

func point(text string) (p [2]int) {
	_, _ = fmt.Sscan(text, &p[0], &p[1])
	return p
}

func number(n consoletest.Node, attribute string) int {
	i, _ := strconv.Atoi(n.Attr(attribute))
	return i
}

// listed are the lines of the table below the picture, on all its pages.
func (w *world) listed(page *consoletest.Page) (all []way) {
	w.t.Helper()
	for {
		rows, ok := page.Table("The same as a table")
		if !ok {
			w.t.Fatalf("the map has no table: %s", page.Text())
		}
		for _, row := range rows {
			if len(row) < 6 {
				continue // none
			}
			for _, li := range row[4].Elements("li") {
				cluster, rest, _ := strings.Cut(li.Text(), ": ")
				state, _, _ := strings.Cut(rest, ", priority")
				kind := "down"
				switch {
				case state == "taken, stale":
					kind = "stale"
				case state == "taken":
					kind = "taken"
				case strings.HasPrefix(state, "stands by, "):
					kind = "standby"
				}
				all = append(all, way{row[0].Text(), row[2].Text(), cluster, kind})
			}
		}
		next := page.All("rel", "next")
		if len(next) == 0 {
			return all
		}
		page = w.page(next[0].Attr("href"))
	}
}

// sorted are ways in one order, each once.
func sorted(all []way) (texts []string) {
	for _, x := range all {
		texts = append(texts, x.String())
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// The map shows what sidecars' views lead to, in the picture and in the table: nothing more, nothing
// less, however it is narrowed.
func TestTheMapIsWhatViewsLeadTo(t *testing.T) {
	w := newWorld(t, 2)
	w.populate()
	w.troubles()
	all := w.ways(asked)
	kinds := map[string]int{}
	for _, x := range all {
		kinds[x.kind]++
	}
	for _, kind := range []string{"taken", "standby", "stale", "down"} {
		if kinds[kind] == 0 {
			t.Errorf("no way is %s: %v", kind, kinds)
		}
	}
	w.hasWays("whole", "", all)
	for _, app := range asked {
		near := map[int][]way{}
		for _, steps := range []int{1, 2} {
			near[steps] = within(all, app.String(), steps)
			w.hasWays(fmt.Sprint(app, " at ", steps), fmt.Sprint("app=", url.QueryEscape(app.String()), "&steps=", steps), near[steps])
		}
		page := w.get("/apps/" + app.String())
		want := slices.DeleteFunc(slices.Clone(near[1]), func(x way) bool { return x.caller != app.String() })
		if got := drawn(t, page); len(near[1]) > 0 && !slices.Equal(sorted(got), sorted(near[1])) {
			t.Errorf("the page of %s:\n%s", app, difference(sorted(got), sorted(near[1])))
		}
		if rows, _ := page.Table("Ways of " + app.String()); callees(want) != len(rows) && callees(want) > 0 {
			t.Errorf("the page of %s lists %d callees of %d", app, len(rows), callees(want))
		}
	}
	for _, namespace := range []string{"shop", "bank"} {
		w.hasWays(namespace, "namespace="+namespace, slices.DeleteFunc(slices.Clone(all), func(x way) bool {
			return !strings.HasPrefix(x.caller, namespace+"/") && !strings.HasPrefix(x.callee, namespace+"/")
		}))
	}
	for _, cluster := range []string{"east", "north", "nowhere"} {
		w.hasWays("to "+cluster, "cluster="+cluster, slices.DeleteFunc(slices.Clone(all), func(x way) bool { return x.cluster != cluster }))
	}
	w.hasWays("search", "q=app-3", slices.DeleteFunc(slices.Clone(all), func(x way) bool {
		return !strings.Contains(x.caller, "app-3") && !strings.Contains(x.callee, "app-3")
	}))
	w.hasWays("declared", "only=declared", all)
	w.hasWays("seen", "only=seen", nil)
	w.hasWays("of an app, to a cluster", "app="+url.QueryEscape(apps[0].String())+"&cluster=east",
		slices.DeleteFunc(within(all, apps[0].String(), 1), func(x way) bool { return x.cluster != "east" }))
}

func callees(all []way) int {
	names := map[string]bool{}
	for _, x := range all {
		names[x.callee] = true
	}
	return len(names)
}

// within are the ways of so many calls that lead to an app or from it.
func within(all []way, app string, steps int) (near []way) {
	callers, callees := map[string]bool{app: true}, map[string]bool{app: true}
	if steps == 2 {
		for _, x := range all {
			if x.callee == app {
				callers[x.caller] = true
			}
			if x.caller == app {
				callees[x.callee] = true
			}
		}
	}
	for _, x := range all {
		if callers[x.callee] || callees[x.caller] {
			near = append(near, x)
		}
	}
	return near
}

// hasWays holds a map to the ways that it should have.
func (w *world) hasWays(what, query string, want []way) {
	w.t.Helper()
	page := w.page("/map?" + query)
	if got := sorted(w.listed(page)); !slices.Equal(got, sorted(want)) {
		w.t.Errorf("%s: the table has %d ways, the views %d:\n%s", what, len(got), len(sorted(want)), difference(got, sorted(want)))
	}
	got := sorted(drawn(w.t, page))
	if strings.Contains(page.Text(), "too much to tell apart") {
		asked, _ := url.ParseQuery(query)
		focus := func(app string) string {
			if namespace := namespaceOf(app); app != asked.Get("app") && namespace != asked.Get("namespace") {
				return namespace
			}
			return app
		}
		if one, other := sorted(folded(want, focus)), sorted(folded(want, namespaceOf)); !slices.Equal(got, one) && !slices.Equal(got, other) {
			w.t.Errorf("%s: the picture is folded, and:\n%s", what, difference(got, one))
		}
	} else if !slices.Equal(got, sorted(want)) {
		w.t.Errorf("%s: the picture has %d ways, the views %d:\n%s", what, len(got), len(sorted(want)), difference(got, sorted(want)))
	}
}

// difference tells what one list has and the other has not.
func difference(got, want []string) string {
	var b strings.Builder
	for _, x := range got {
		if !slices.Contains(want, x) {
			fmt.Fprintln(&b, "  more:", x)
		}
	}
	for _, x := range want {
		if !slices.Contains(got, x) {
			fmt.Fprintln(&b, "  less:", x)
		}
	}
	return b.String()
}

// folded are ways between what apps are drawn as: a line where some way leads, of several the one that
// leads farthest.
func folded(all []way, as func(string) string) (fewer []way) {
	rank := []string{"taken", "stale", "standby", "down"} // of several ways the first of these is drawn
	best := map[way]string{}
	for _, x := range all {
		between := way{as(x.caller), as(x.callee), x.cluster, ""}
		if kind, ok := best[between]; !ok || slices.Index(rank, x.kind) < slices.Index(rank, kind) {
			best[between] = x.kind
		}
	}
	for between, kind := range best {
		fewer = append(fewer, way{between.caller, between.callee, between.cluster, kind})
	}
	return fewer
}

// Of more apps than people can tell apart, the map shows namespaces. What is in focus stays apart if
// there is room.
func TestTheMapOfManyAppsIsOneOfNamespaces(t *testing.T) {
	w := newWorld(t, 3)
	w.populate()
	var many []catalog.App
	var objects []catalog.Object
	for i := range 5 {
		many = append(many, appsIn(fmt.Sprint("team-", i), 12)...)
	}
	for _, app := range many {
		s := w.selection(app)
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: many[w.IntN(len(many))]})
		s.Endpoints = slices.CompactFunc(s.Endpoints, func(a, b catalog.Endpoint) bool { return a.App == b.App })
		if s.Endpoints[len(s.Endpoints)-1].App == app {
			s.Endpoints = s.Endpoints[:len(s.Endpoints)-1]
		}
		objects = append(objects, s)
	}
	w.west.apply(objects...)
	w.troubles()
	all := w.ways(append(slices.Clone(asked), many...))
	want := folded(all, namespaceOf)
	page := w.page("/map")
	if got := sorted(drawn(t, page)); !slices.Equal(got, sorted(want)) {
		t.Errorf("the picture of namespaces:\n%s", difference(got, sorted(want)))
	}
	if got := sorted(w.listed(page)); !slices.Equal(got, sorted(all)) {
		t.Errorf("the table, which has each call:\n%s", difference(got, sorted(all)))
	}
	ready := map[string]uint32{}
	stream, err := v1alpha1.NewInventoryClient(w.west.conn).Apps(t.Context(), &v1alpha1.AppsRequest{})
	if err := receive(stream, err, func(m *v1alpha1.AppsResponse) {
		for _, a := range m.GetApps() {
			ready[a.GetApp().GetNamespace()] += a.GetReady()
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, box := range page.All("class", "node") {
		note, name, _ := strings.Cut(box.Attr("aria-label"), ", ")
		name, here := strings.CutSuffix(name, " in west")
		if here && note != name && note != fmt.Sprint(name, " ", ready[name], " ready") {
			t.Errorf("%s has %q, and %d are ready", name, note, ready[name])
		}
	}
	w.hasWays("team-3", "namespace=team-3", slices.DeleteFunc(slices.Clone(all), func(x way) bool {
		return namespaceOf(x.caller) != "team-3" && namespaceOf(x.callee) != "team-3"
	}))
	w.hasWays("two steps", "app=team-1/app-4&steps=2", within(all, "team-1/app-4", 2))
}

func namespaceOf(app string) string { namespace, _, _ := strings.Cut(app, "/"); return namespace }
