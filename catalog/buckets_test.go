package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

func numbered(i int) App { return App{"shop", fmt.Sprintf("app-%05d", i)} }

func tableOf(apps int) (Table[int], map[App]int) {
	edits, model := make([]Edit[int], apps), make(map[App]int, apps)
	for i := range edits {
		edits[i] = Edit[int]{App: numbered(i), Value: i}
		model[edits[i].App] = i
	}
	return NewTable(edits), model
}

// TestLargeTablesShareGroups changes tables so large that their buckets are in groups,
// and looks at the old ones afterwards.
func TestLargeTablesShareGroups(t *testing.T) {
	table, model := tableOf(40_000)
	if table.buckets.groups == nil {
		t.Fatal("40,000 apps are not in groups: this test tests nothing")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		old, was := table, maps.Clone(model)
		var edits []Edit[int]
		for range random.IntN(50) {
			e := Edit[int]{App: numbered(random.IntN(60_000)), Value: random.Int(), Remove: random.IntN(3) == 0}
			edits = append(edits, e)
			if delete(model, e.App); !e.Remove {
				model[e.App] = e.Value
			}
		}
		table = table.With(edits...)
		same(t, &table, model)
		same(t, &old, was)
		patched := old.With(slices.Collect(table.Diff(&old, func(a, b int) bool { return a == b }))...)
		same(t, &patched, model)
	}
}

// TestTableGrowsAndShrinks goes through all sizes, with groups and without.
func TestTableGrowsAndShrinks(t *testing.T) {
	var table Table[int]
	model := map[App]int{}
	const step, most = 1000, 100_000
	change := func(i int, remove bool) {
		edits := make([]Edit[int], step)
		for j := range edits {
			edits[j] = Edit[int]{App: numbered(i + j), Value: i, Remove: remove}
			if delete(model, edits[j].App); !remove {
				model[edits[j].App] = i
			}
		}
		table = table.With(edits...)
	}
	for i := 0; i < most; i += step {
		change(i, false)
	}
	same(t, &table, model)
	if table.buckets.groups == nil {
		t.Error("a table that grew large has no groups")
	}
	for i := 0; i < most-step; i += step {
		change(i, true)
	}
	same(t, &table, model)
	if table.buckets.groups != nil {
		t.Error("a table that shrank has groups")
	}
}

func TestAChangeCostsTheSameInTablesOfAllSizes(t *testing.T) {
	cost := func(apps int) uint64 {
		table, _ := tableOf(apps)
		const changes = 200
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range changes {
			table = table.With(Edit[int]{App: numbered(i), Value: -i})
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / changes
	}
	small, large := cost(8_000), cost(500_000)
	if large > 2*small {
		t.Errorf("a change allocates %d bytes among 8,000 apps and %d among 500,000", small, large)
	}
}
