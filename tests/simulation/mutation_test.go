package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// mutation is a fault that is injected at a seam of the simulation. Its effect is that of a fault
// in the service. The zero mutation is none.
type mutation struct {
	opensExports     bool // a service takes each export as one to everybody
	revivesExports   bool // a service goes back to the first version of an export
	missesSelections bool // one of two replicas never gets a selection
	keepsPaths       bool // a split path still works, so a lease does not lapse
	losesGateways    bool // a cluster's gateways don't come back
}

// corrupt returns the effect of a mutation on a replica's objects; nil for none. An object that
// becomes nil is missing.
func (m mutation) corrupt(r *replica) func(catalog.Object) catalog.Object {
	first, reads := map[catalog.Key]catalog.Object{}, map[catalog.Key]int{}
	return func(o catalog.Object) catalog.Object {
		switch o := o.(type) {
		case *catalog.AppExport:
			if m.opensExports {
				return &catalog.AppExport{App: o.App, Allow: []catalog.Allow{{}}}
			}
			if reads[o.Key()]++; first[o.Key()] == nil {
				first[o.Key()] = o
			} else if m.revivesExports && reads[o.Key()]%3 == 0 {
				return first[o.Key()]
			}
		case *catalog.AppEndpoints:
			if m.missesSelections && r.host == "east-1" && o.App == app("orders") {
				return nil
			}
		}
		return o
	}
}

// TestFaultsAreFound injects faults and checks that the right invariant finds each.
func TestFaultsAreFound(t *testing.T) {
	if raced.Enabled {
		t.Skip("it is about the simulation, and the same without the race detector")
	}
	for name, c := range map[string]struct {
		mutation mutation
		by       string // how the finding begins
	}{
		"an export filter that lets everybody call":      {mutation{opensExports: true}, "export: "},
		"an export that comes back after it was revoked": {mutation{revivesExports: true}, "export: "},
		"a replica that misses an object":                {mutation{missesSelections: true}, ""},
		"a lease that does not lapse":                    {mutation{keepsPaths: true}, "stale: "},
		"a cluster that nobody calls again":              {mutation{losesGateways: true}, "calm: "},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 100 // since the order of steps decides which find it
			var other error
			for seed := range uint64(most) {
				steps, without := 40, []string{"one-way"}
				if c.mutation.revivesExports {
					steps, without = 600, everythingBut("export") // most of 600 are left out
				}
				_, err := run(t, newPlan(1000+seed, steps, without), c.mutation)
				if err != nil && strings.HasPrefix(err.Error(), c.by) {
					t.Logf("found by seed %d: %v", 1000+seed, err)
					return
				}
				if err != nil {
					other = err
				}
			}
			t.Errorf("not found in %d runs; found was %v", most, other)
		})
	}
}

func everythingBut(these ...string) (without []string) {
	for _, k := range slices.Concat(kinds, later) {
		if !slices.Contains(these, k.name) {
			without = append(without, k.name)
		}
	}
	return without
}

// TestTwoAppsAtOneAddressAreFound checks the owner invariant with made-up views, because no input
// makes a topology break it.
func TestTwoAppsAtOneAddressAreFound(t *testing.T) {
	view := func(a catalog.App, r catalog.Route) *catalog.View {
		entry := catalog.NewEntry(a, catalog.Rule{}, []catalog.Route{r})
		return &catalog.View{Entries: catalog.NewTable([]catalog.Edit[*catalog.Entry]{{App: a, Value: entry}})}
	}
	in := func(cluster string, r catalog.Route) catalog.Route {
		r.Cluster = cluster
		return r
	}
	one, other := []string{"10.0.0.1:50002", "10.0.0.2:50002"}, []string{"10.0.0.2:50002"}
	for what, test := range map[string]struct {
		app   catalog.App
		route catalog.Route
		found bool
	}{
		"another app here":             {app("ledger"), in("west", catalog.LocalRoute(other, 0)), true},
		"another app of a peer":        {app("ledger"), in("north", catalog.RemoteRoute(1, 0, other, nil)), true},
		"an app of another peer":       {app("ledger"), in("east", catalog.RemoteRoute(1, 0, other, nil)), false},
		"the same app of a peer":       {app("orders"), in("north", catalog.RemoteRoute(1, 0, other, nil)), false},
		"one gateway of two of a peer": {app("ledger"), in("north", catalog.RemoteRoute(1, 0, nil, other)), false},
	} {
		whose := owners{}
		for _, r := range []catalog.Route{in("west", catalog.LocalRoute(one, 0)), in("north", catalog.RemoteRoute(2, 0, one, nil))} {
			if wrong := whose.see(view(app("orders"), r)); wrong != "" {
				t.Errorf("%s: %s", what, wrong)
			}
		}
		if wrong := whose.see(view(test.app, test.route)); (wrong != "") != test.found {
			t.Errorf("%s: %q; is it found? want %v", what, wrong, test.found)
		}
	}
}
