package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestATableIsAMapThatKeepsItsPast(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		var table Table[int]
		model := map[App]int{}
		for step := range 150 {
			var edits []Edit[int]
			for range 1 + r.IntN(20) {
				a := App{"ns-" + fmt.Sprint(r.IntN(3)), "app-" + fmt.Sprint(r.IntN(300))}
				edits = append(edits, Edit[int]{App: a, Value: step, Remove: r.IntN(3) == 0})
			}
			old, was := table, clone(model)
			table = table.With(edits...)
			for _, e := range edits {
				if e.Remove {
					delete(model, e.App)
				} else {
					model[e.App] = e.Value
				}
			}
			same(t, &table, model)
			same(t, &old, was)
			patched := clone(was)
			for e := range table.Diff(&old, func(a, b int) bool { return a == b }) {
				if e.Remove {
					delete(patched, e.App)
				} else {
					if v, ok := patched[e.App]; ok && v == e.Value {
						t.Fatalf("seed %d: %v is in the difference and did not change", seed, e.App)
					}
					patched[e.App] = e.Value
				}
			}
			same(t, &table, patched)
		}
	}
}

func clone(m map[App]int) map[App]int {
	c := make(map[App]int, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func same(t *testing.T, table *Table[int], model map[App]int) {
	t.Helper()
	if table.Len() != len(model) {
		t.Fatalf("%d apps, want %d", table.Len(), len(model))
	}
	for a, want := range model {
		if got, ok := table.Get(a); !ok || got != want {
			t.Fatalf("%v: got %d, %v, want %d", a, got, ok, want)
		}
	}
	n := 0
	for a, v := range table.All() {
		if want, ok := model[a]; !ok || v != want {
			t.Fatalf("%v: yields %d, want %d, %v", a, v, want, ok)
		}
		n++
	}
	if _, ok := table.Get(App{"ns-9", "app-0"}); ok || n != len(model) {
		t.Fatalf("yields %d apps, want %d", n, len(model))
	}
}

func TestManyEditsOfASmallTable(t *testing.T) {
	for _, before := range []int{0, 1, 40, 20_000} {
		model, first := map[App]int{}, []Edit[int]{}
		for i := range before {
			a := App{"shop", fmt.Sprintf("app-%05d", i)}
			model[a] = i
			first = append(first, Edit[int]{App: a, Value: i})
		}
		table, past := NewTable(first), clone(model)
		var edits []Edit[int]
		for i := range 30_000 {
			e := Edit[int]{App: App{"shop", fmt.Sprintf("app-%05d", i)}, Value: -i, Remove: i%7 == 0}
			edits = append(edits, e)
			if model[e.App] = e.Value; e.Remove {
				delete(model, e.App)
			}
		}
		next := table.With(edits...)
		same(t, &next, model)
		same(t, &table, past)
	}
}

func TestALargeTableIsMadeAtOnce(t *testing.T) {
	all := map[App]int{}
	for i := range 10_000 {
		all[App{"shop", fmt.Sprintf("app-%05d", i)}] = i
	}
	var edits []Edit[int]
	for a, i := range all {
		edits = append(edits, Edit[int]{App: a, Value: i})
	}
	table := NewTable(edits)
	same(t, &table, all)
	longest := 0
	for _, s := range table.buckets.all() {
		if s != nil {
			longest = max(longest, s.count)
		}
	}
	if longest > 6*bucketFill(table.Len()) {
		t.Errorf("a shard holds %d of 10,000 apps: the hash spreads badly", longest)
	}
}

func TestHashSpreadsNamesThatLookAlike(t *testing.T) {
	seen := map[uint64]App{}
	for i := range 20_000 {
		for _, a := range []App{{"shop", fmt.Sprint("a", i)}, {fmt.Sprint("a", i), "shop"}, {"", fmt.Sprint(i, "aaaaaaaa")}, {"x", fmt.Sprintf("aaaaaaaa%d", i)}} {
			h := hashApp(a)
			if other, ok := seen[h]; ok && other != a {
				t.Fatalf("%v and %v have the same hash", a, other)
			}
			seen[h] = a
		}
	}
	if h := hashApp(App{}); h == 0 {
		t.Error("a hash is 0")
	}
	if slices.Contains([]uint64{hashApp(App{"a", "b"})}, hashApp(App{"b", "a"})) {
		t.Error("namespace and app-id can be exchanged")
	}
}
