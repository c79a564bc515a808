package show

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// manyCalls is a graph of apps that call ten others each.
func manyCalls(apps int) *Graph {
	g := &Graph{}
	m := &v1alpha1.GraphResponse{Cluster: "west", Clusters: []*v1alpha1.GraphCluster{{Name: "east", Object: true, State: "connected"}}}
	app := func(i int) *v1alpha1.App {
		return &v1alpha1.App{Namespace: fmt.Sprint("ns-", i%20), Id: fmt.Sprint("app-", i)}
	}
	for i := range apps {
		m.Apps = append(m.Apps, &v1alpha1.GraphApp{App: app(i), Here: true, Ready: 2})
		for j := range 10 {
			m.Calls = append(m.Calls, &v1alpha1.GraphCall{Caller: app(i), Callee: app((i + 7*j + 1) % apps), Rule: "AppEndpoints", Routes: []*v1alpha1.GraphRoute{
				{Cluster: "west", State: "ready", Ready: 2, Usable: true, Taken: true}, {Cluster: "east", Priority: 1, State: "ready", Ready: 1, Usable: true},
			}})
		}
	}
	g.Add(m)
	g.AddSeen(nil)
	return g
}

func TestGraphsOfSeenCalls(t *testing.T) {
	g := manyCalls(20)
	of := catalog.App{Namespace: "ns-1", ID: "app-1"}
	g.AddSeen([]Call{
		{Callee: "ns-1/app-1", Caller: "ns-0/app-0", Cluster: "local", last: 1, Rule: "AppEndpoints", App: catalog.App{Namespace: "ns-0", ID: "app-0"}, Of: of},
		{Callee: "ns-1/app-1", Caller: "ns-x/mallory", Cluster: "local", last: 1, App: catalog.App{Namespace: "ns-x", ID: "mallory"}, Of: of},
		{Callee: "ns-1/app-1", Caller: "ns-y/web", Cluster: "east", last: 1, Rule: "AppExport", Declared: true, App: catalog.App{Namespace: "ns-y", ID: "web"}, Of: of},
		{Callee: "ns-1/app-1", Caller: "ns-y/never", Cluster: "east", Rule: "AppExport", Declared: true, App: catalog.App{Namespace: "ns-y", ID: "never"}, Of: of},
	})
	g.Filter(GraphFilter{Seen: true})
	var got []string
	for _, c := range g.Calls {
		got = append(got, c.Caller+" in "+c.In+" to "+c.Callee+" "+c.State)
	}
	want := "ns-0/app-0 in west to ns-1/app-1 ready; ns-x/mallory in west to ns-1/app-1 denied; ns-y/web in east to ns-1/app-1 ready"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var out bytes.Buffer
	if err := g.Picture(&out, "dot"); err != nil || !strings.Contains(out.String(), styles[Denied].colour+`", style=solid`) {
		t.Errorf("%v\n%s", err, &out)
	}
	if g.Filter(GraphFilter{Declared: true, Apps: []string{"ns-x/mallory"}}); len(g.Calls) != 0 {
		t.Errorf("still there: %v", g.Calls)
	}
}

func TestGraphsTellWhomAClusterHarms(t *testing.T) {
	route := func(cluster string, priority uint32, state string, taken bool) *v1alpha1.GraphRoute {
		return &v1alpha1.GraphRoute{Cluster: cluster, Priority: priority, Weight: 1, State: state, Usable: taken || state == "ready" || state == "stale", Taken: taken}
	}
	m := &v1alpha1.GraphResponse{Cluster: "west"}
	for _, call := range []struct {
		callee string
		routes []*v1alpha1.GraphRoute
	}{
		{"in-use", []*v1alpha1.GraphRoute{route("east", 0, "ready", true)}},
		{"stands-by", []*v1alpha1.GraphRoute{route("west", 0, "ready", true), route("east", 1, "withdrawn", false)}},
		{"stale", []*v1alpha1.GraphRoute{route("east", 0, "stale", true), route("north", 1, "ready", false)}},
		{"standby-stale", []*v1alpha1.GraphRoute{route("west", 0, "ready", true), route("east", 1, "stale", false)}},
		{"elsewhere", []*v1alpha1.GraphRoute{route("east", 0, "withdrawn", false), route("north", 1, "ready", true)}},
		{"beside", []*v1alpha1.GraphRoute{route("east", 0, "damped", false), route("west", 0, "ready", true)}},
		{"fails", []*v1alpha1.GraphRoute{route("west", 0, "no instance", false), route("east", 1, "withdrawn", false)}},
		{"not-there", []*v1alpha1.GraphRoute{route("west", 0, "no instance", false)}},
		{"weight-0", []*v1alpha1.GraphRoute{{Cluster: "east", State: "withdrawn"}, route("north", 1, "ready", true)}},
	} {
		m.Calls = append(m.Calls, &v1alpha1.GraphCall{Caller: &v1alpha1.App{Namespace: "n", Id: "web"}, Callee: &v1alpha1.App{Namespace: "n", Id: call.callee}, Rule: "x", Routes: call.routes})
	}
	g, whole := &Graph{}, &Graph{}
	g.Add(m)
	whole.Add(m)
	g.Filter(GraphFilter{Clusters: []string{"east"}, Whole: true})
	var out bytes.Buffer
	if err := errors.Join(g.Table(&out), whole.Table(&out)); err != nil {
		t.Fatal(err)
	}
	want := `CALLER   CALLEE            HARM        NOW               OTHER ROUTES                           SEEN   LET IN BY
n/web    n/fails           fails       fails             west (no instance), east (withdrawn)   -      x
n/web    n/elsewhere       elsewhere   to north          east (withdrawn)                       -      x
n/web    n/beside          elsewhere   to west           east (damped)                          -      x
n/web    n/stale           stale       to east (stale)   north (stands by)                      -      x
n/web    n/in-use          none        to east           -                                      -      x
n/web    n/stands-by       none        to west           east (withdrawn)                       -      x
n/web    n/standby-stale   none        to west           east (stands by, stale)                -      x
n/web    n/weight-0        none        to north          east (withdrawn)                       -      x
CALLER   CALLEE            NOW               OTHER ROUTES                           SEEN   LET IN BY
`
	if got := out.String(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 9+10 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestGraphsOfSeveralSteps(t *testing.T) {
	name := func(id string) catalog.App { return catalog.App{Namespace: "n", ID: id} }
	for steps, want := range []string{"b-c c-d", "b-c c-d", "a-b b-c c-d d-e x-b"} {
		g, m := &Graph{}, &v1alpha1.GraphResponse{Cluster: "west"}
		for _, call := range []string{"a-b", "b-c", "c-d", "d-e", "e-f", "y-d"} {
			m.Calls = append(m.Calls, &v1alpha1.GraphCall{
				Caller: &v1alpha1.App{Namespace: "n", Id: call[:1]}, Callee: &v1alpha1.App{Namespace: "n", Id: call[2:]},
				Routes: []*v1alpha1.GraphRoute{{Cluster: "west"}},
			})
		}
		g.Add(m)
		g.AddSeen([]Call{{Callee: "n/b", Caller: "n/x", Cluster: "local", last: 1, App: name("x"), Of: name("b")}})
		g.Filter(GraphFilter{Apps: []string{"n/c"}, Steps: steps})
		var got []string
		for _, c := range g.Calls {
			got = append(got, c.Caller[2:]+"-"+c.Callee[2:])
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%d steps: got %s, want %s", steps, text, want)
		}
	}
}

// FuzzPictures holds pictures with any names to the languages that they are in.
func FuzzPictures(f *testing.F) {
	f.Add("shop/orders", "east", `AppEndpoints "x"`)
	f.Add(`a"]`+"\n  x -> y", "</title><script>", "&#35;\x00\xff")
	f.Fuzz(func(t *testing.T, app, cluster, rule string) {
		g := &Graph{
			Cluster: "west", Apps: []GraphApp{{App: app}}, Clusters: []GraphCluster{{Cluster: cluster, State: "stale"}},
			Calls: []GraphCall{{Caller: app, In: "west", Callee: app + "x", Rule: rule, Routes: []GraphRoute{{Cluster: cluster, Usable: true}}}},
		}
		pictures := map[string]string{}
		for _, format := range GraphFormats {
			var out bytes.Buffer
			if err := g.Picture(&out, format); err != nil {
				t.Fatal(err)
			}
			pictures[format] = out.String()
		}
		decoder := xml.NewDecoder(strings.NewReader(pictures["svg"]))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, pictures["svg"])
			}
			if e, ok := token.(xml.StartElement); ok && !strings.Contains(" svg style path title circle text rect ", " "+e.Name.Local+" ") {
				t.Fatalf("an element %s in\n%s", e.Name.Local, pictures["svg"])
			}
		}
		wants := map[string]int{"dot": 3 + 2*(len(g.Clusters)+1) + 4 + 2, "mermaid": 8}
		for format, lines := range wants {
			if got := strings.Count(pictures[format], "\n"); got > lines+6 {
				t.Fatalf("%s has %d lines:\n%s", format, got, pictures[format])
			}
		}
		for line := range strings.Lines(pictures["dot"]) {
			if strings.Count(strings.ReplaceAll(strings.ReplaceAll(line, `\\`, ""), `\"`, ""), `"`)%2 != 0 {
				t.Fatalf("a quote that does not end in %s", line)
			}
		}
	})
}

func BenchmarkGraph(b *testing.B) {
	const apps = 10_000
	for _, format := range GraphFormats {
		b.Run(format, func(b *testing.B) {
			for b.Loop() {
				if err := manyCalls(apps).Picture(io.Discard, format); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(apps*20), "ns/edge")
		})
	}
}
