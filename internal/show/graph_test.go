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
func manyCalls(apps int) *v1alpha1.GraphResponse {
	g := &v1alpha1.GraphResponse{}
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
	AddGraph(g, m)
	AddSeen(g, nil)
	return g
}

func TestGraphsOfSeenCalls(t *testing.T) {
	g := manyCalls(20)
	of := &v1alpha1.App{Namespace: "ns-1", Id: "app-1"}
	AddSeen(g, []*v1alpha1.Call{
		{Callee: of, Caller: "ns-0/app-0", Cluster: "local", LastUnixMs: 1, Rule: "AppEndpoints"},
		{Callee: of, Caller: "ns-x/mallory", Cluster: "local", LastUnixMs: 1},
		{Callee: of, Caller: "ns-y/web", Cluster: "east", LastUnixMs: 1, Rule: "AppExport", Declared: true},
		{Callee: of, Caller: "ns-y/never", Cluster: "east", Rule: "AppExport", Declared: true},
	})
	Filter(g, GraphFilter{Seen: true})
	var got []string
	for _, c := range g.GetCalls() {
		got = append(got, Name(c.GetCaller())+" in "+c.GetIn()+" to "+Name(c.GetCallee())+" "+c.GetState())
	}
	want := "ns-0/app-0 in west to ns-1/app-1 ready; ns-x/mallory in west to ns-1/app-1 denied; ns-y/web in east to ns-1/app-1 ready"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var out bytes.Buffer
	if err := Picture(&out, g, "dot"); err != nil || !strings.Contains(out.String(), styles[Denied].colour+`", style=solid`) {
		t.Errorf("%v\n%s", err, &out)
	}
	if Filter(g, GraphFilter{Declared: true, Apps: []catalog.App{{Namespace: "ns-x", ID: "mallory"}}}); len(g.GetCalls()) != 0 {
		t.Errorf("still there: %v", g.GetCalls())
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
	g, whole := &v1alpha1.GraphResponse{}, &v1alpha1.GraphResponse{}
	AddGraph(g, m)
	AddGraph(whole, m)
	Filter(g, GraphFilter{Clusters: []string{"east"}, Whole: true})
	var out bytes.Buffer
	if err := errors.Join(GraphTable(&out, g), GraphTable(&out, whole)); err != nil {
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
	for steps, want := range []string{"b-c c-d", "b-c c-d", "a-b b-c c-d d-e x-b"} {
		g, m := &v1alpha1.GraphResponse{}, &v1alpha1.GraphResponse{Cluster: "west"}
		for _, call := range []string{"a-b", "b-c", "c-d", "d-e", "e-f", "y-d"} {
			m.Calls = append(m.Calls, &v1alpha1.GraphCall{
				Caller: &v1alpha1.App{Namespace: "n", Id: call[:1]}, Callee: &v1alpha1.App{Namespace: "n", Id: call[2:]},
				Routes: []*v1alpha1.GraphRoute{{Cluster: "west"}},
			})
		}
		AddGraph(g, m)
		AddSeen(g, []*v1alpha1.Call{{Callee: &v1alpha1.App{Namespace: "n", Id: "b"}, Caller: "n/x", Cluster: "local", LastUnixMs: 1}})
		Filter(g, GraphFilter{Apps: []catalog.App{{Namespace: "n", ID: "c"}}, Steps: steps})
		var got []string
		for _, c := range g.GetCalls() {
			got = append(got, c.GetCaller().GetId()+"-"+c.GetCallee().GetId())
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
		named := func(id string) *v1alpha1.App { return &v1alpha1.App{Id: id} }
		g := &v1alpha1.GraphResponse{
			Cluster: "west", Apps: []*v1alpha1.GraphApp{{App: named(app)}}, Clusters: []*v1alpha1.GraphCluster{{Name: cluster, State: "stale"}},
			Calls: []*v1alpha1.GraphCall{{Caller: named(app), In: "west", Callee: named(app + "x"), Rule: rule, Routes: []*v1alpha1.GraphRoute{{Cluster: cluster, Usable: true}}}},
		}
		pictures := map[string]string{}
		for _, format := range GraphFormats {
			var out bytes.Buffer
			if err := Picture(&out, g, format); err != nil {
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
		wants := map[string]int{"dot": 3 + 2*(len(g.GetClusters())+1) + 4 + 2, "mermaid": 8}
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
				if err := Picture(io.Discard, manyCalls(apps), format); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(apps*20), "ns/edge")
		})
	}
}
