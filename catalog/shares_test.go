package catalog

import (
	"math"
	"strconv"
	"testing"
)

// TestSharesAreWhatLookupsFallOn compares a plan's shares with its lookups.
func TestSharesAreWhatLookupsFallOn(t *testing.T) {
	addresses := func(n int) (all []string) {
		for i := range n {
			all = append(all, "10.0.0."+strconv.Itoa(i)+":1")
		}
		return all
	}
	app := App{Namespace: "shop", ID: "orders"}
	route := func(cluster string, priority, weight uint32, n int, ramp uint8) Route {
		r := LocalRoute(addresses(n), 0)
		r.Cluster, r.Priority, r.Weight, r.Ramp = cluster, priority, weight, ramp
		return r
	}
	for name, routes := range map[string][]Route{
		"none":          {route("west", 0, 1, 0, 0)},
		"one":           {route("west", 0, 1, 1, 0)},
		"several":       {route("west", 0, 1, 3, 0)},
		"weights":       {route("west", 0, 90, 2, 0), route("east", 0, 10, 1, 0), route("north", 1, 5, 1, 0)},
		"no weight":     {route("west", 0, 0, 2, 0), route("east", 0, 10, 1, 0)},
		"in steps":      {route("west", 0, 1, 1, 25), route("east", 1, 1, 1, 0)},
		"first is away": {route("west", 0, 1, 0, 0), route("east", 1, 3, 1, 0), route("north", 1, 1, 1, 0)},
	} {
		p := NewPlan(app, routes)
		taken := map[string]float64{}
		const lookups = 10_000
		for range lookups {
			if _, r := p.Pick(); r != nil {
				taken[r.Cluster]++
			}
		}
		total := 0.0
		for _, s := range p.Shares() {
			total += s.Part
			if got := taken[s.Route.Cluster] / lookups; math.Abs(got-s.Part) > 0.01 {
				t.Errorf("%s: %s is said to take %.3f, and takes %.3f", name, s.Route.Cluster, s.Part, got)
			}
			delete(taken, s.Route.Cluster)
		}
		if len(taken) > 0 || len(p.Shares()) > 0 && math.Abs(total-1) > 1e-9 {
			t.Errorf("%s: all together take %v, and these are not named: %v", name, total, taken)
		}
	}
}
