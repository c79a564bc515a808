package topology

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// call is an edge of a map.
type call struct{ from, to catalog.App }

func (c call) by(app catalog.App) bool { return c.from == app || c.to == app }

// callsOf are the edges, each with the clusters of its routes.
func callsOf(m *Map) map[call][]string {
	all := map[call][]string{}
	for _, v := range m.Views {
		for to, e := range v.View.Entries.All() {
			if to != v.App {
				all[call{v.App, to}] = []string{}
				for i := range e.Routes {
					all[call{v.App, to}] = append(all[call{v.App, to}], e.Routes[i].Cluster)
				}
			}
		}
	}
	return all
}

// narrowedByHand is what a filter keeps of a whole map, by its words.
func narrowedByHand(whole *Map, f MapFilter) *Map {
	near := map[call]bool{}
	up, down := []catalog.App{f.Focus}, []catalog.App{f.Focus}
	for range max(f.Steps, 1) {
		var above, below []catalog.App
		for c := range callsOf(whole) {
			if slices.Contains(up, c.to) {
				near[c], above = true, append(above, c.from)
			}
			if slices.Contains(down, c.from) {
				near[c], below = true, append(below, c.to)
			}
		}
		up, down = above, below
	}
	m := &Map{Cluster: whole.Cluster, Revision: whole.Revision}
	kept := map[call][]string{}
	clusters := []string{f.Via}
	for c, to := range callsOf(whole) {
		if (f.Focus == catalog.App{} || near[c]) && (f.Via == "" || slices.Contains(to, f.Via)) &&
			(f.Namespace == "" || c.from.Namespace == f.Namespace || c.to.Namespace == f.Namespace) {
			kept[c], clusters = to, append(clusters, to...)
		}
	}
	for _, a := range whole.Apps {
		also := a.App == f.Focus || f.Focus == catalog.App{} && f.Via == "" && a.App.Namespace == f.Namespace
		for c := range kept {
			also = also || c.by(a.App)
		}
		if also {
			m.Apps = append(m.Apps, a)
		}
	}
	for _, c := range whole.Clusters {
		if slices.Contains(clusters, c.Name) {
			m.Clusters = append(m.Clusters, c)
		}
	}
	for _, v := range whole.Views {
		var edits []catalog.Edit[*catalog.Entry]
		for to, e := range v.View.Entries.All() {
			if _, ok := kept[call{v.App, to}]; ok {
				edits = append(edits, catalog.Edit[*catalog.Entry]{App: to, Value: e})
			}
		}
		if len(edits) > 0 {
			m.Views = append(m.Views, ViewUpdate{v.App, &catalog.View{Entries: catalog.NewTable(edits)}})
		}
	}
	return m
}

// textOf is a map as text.
func textOf(m *Map) string {
	text := fmt.Sprintln(m.Cluster, m.Revision, m.Apps, m.Clusters)
	for _, v := range m.Views {
		var lines []string
		for to, e := range v.View.Entries.All() {
			if to != v.App {
				lines = append(lines, fmt.Sprintln(v.App, to, e.Rule, e.Explain()))
			}
		}
		slices.Sort(lines)
		text += fmt.Sprint(lines)
	}
	return text
}

// TestANarrowedMapIsPartOfTheWhole compares maps of random clusters with what a filter's words say.
func TestANarrowedMapIsPartOfTheWhole(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		some := func(n int) catalog.App {
			i := rng.IntN(n)
			return catalog.App{Namespace: []string{"shop", "bank"}[i%2], ID: fmt.Sprint("app-", i)}
		}
		put := []catalog.Object{&catalog.Cluster{Name: "east", Gateways: []string{"127.0.0.1:1"}}, &catalog.Cluster{Name: "north"},
			&catalog.AppEndpoints{App: catalog.App{Namespace: "bank", ID: "*"}, Endpoints: []catalog.Endpoint{{App: some(16)}}}}
		for range 12 {
			s := &catalog.AppEndpoints{App: some(16)}
			for range rng.IntN(4) {
				e := catalog.Endpoint{App: some(16)}
				for _, cluster := range []string{"east", "north", "west", "unknown"}[rng.IntN(4):] {
					e.Routes = append(e.Routes, catalog.RouteSpec{Cluster: cluster, Weight: 1})
				}
				if rng.IntN(2) == 0 {
					e.Routes = nil
				}
				s.Endpoints = append(s.Endpoints, e)
			}
			put = append(put, s)
		}
		put = slices.CompactFunc(slices.SortedFunc(slices.Values(put), func(a, b catalog.Object) int { return a.Key().Compare(b.Key()) }),
			func(a, b catalog.Object) bool { return a.Key() == b.Key() })
		top := running(t, west)
		top.must(t, full(put...))
		top.must(t, says("east", PeerExport{App: some(16), Allow: []catalog.Allow{{}}, Ready: 1}, PeerExport{App: some(16), Allow: []catalog.Allow{{}}, Ready: 1}))
		whole, err := top.Inventory().Map(t.Context(), MapFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			f := MapFilter{Steps: rng.IntN(3)}
			if rng.IntN(2) == 0 {
				f.Focus = some(18)
			}
			if rng.IntN(2) == 0 {
				f.Namespace = []string{"shop", "bank", "none"}[rng.IntN(3)]
			}
			if rng.IntN(2) == 0 {
				f.Via = []string{"east", "north", "unknown", "nowhere"}[rng.IntN(4)]
			}
			if (MapFilter{Steps: f.Steps}) == f {
				f.Namespace = "shop"
			}
			got, err := top.Inventory().Map(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := textOf(&got), textOf(narrowedByHand(&whole, f)); got != want {
				t.Fatalf("seed %d, %+v:\ngot  %s\nwant %s", seed, f, got, want)
			}
		}
	}
}

func TestAStepLeadsUpOrDownButNotBack(t *testing.T) {
	top := running(t, west)
	top.must(t, full(selects("web", calls("checkout")), selects("checkout", calls("orders"), calls("auth")), selects("orders", calls("ledger")),
		selects("ledger", calls("disk")), selects("other", calls("auth"), calls("ledger"))))
	for steps, want := range []string{
		"checkout-orders orders-ledger", "checkout-orders orders-ledger", "checkout-orders ledger-disk orders-ledger web-checkout",
	} {
		m, err := top.Inventory().Map(t.Context(), MapFilter{Focus: app("orders"), Steps: steps})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, v := range m.Views {
			for to := range v.View.Entries.All() {
				got += " " + v.App.ID + "-" + to.ID
			}
		}
		if got = cmp.Or(got, " ")[1:]; got != want {
			t.Errorf("%d steps: got %q, want %q", steps, got, want)
		}
	}
}
