package catalog

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

const lookups = 10_000

// tally counts addresses over so many lookups of which every stride-th is looked at.
func tally(p *Plan, stride int) map[string]float64 {
	count := map[string]float64{}
	for range lookups {
		for range stride - 1 {
			p.Pick()
		}
		count[p.Address()]++
	}
	return count
}

// hold checks that each address has its share of the lookups to within so many of them.
func hold(t *testing.T, what string, count, share map[string]float64, within float64) {
	t.Helper()
	for address, share := range share {
		if off := math.Abs(count[address] - share*lookups); off > within {
			t.Errorf("%s: %s has %.0f of %d lookups, want %.1f", what, address, count[address], lookups, share*lookups)
		}
	}
	for address := range count {
		if share[address] == 0 {
			t.Errorf("%s: %q is chosen, and has no share", what, address)
		}
	}
}

// shares are the shares of each address of random routes with random weights.
func randomRoutes(r *rand.Rand) (routes []Route, share map[string]float64) {
	total := 0.0
	for i := range 2 + r.IntN(5) {
		var addresses []string
		for j := range 1 + r.IntN(5) {
			addresses = append(addresses, fmt.Sprintf("%d-%d:1", i, j))
		}
		route := to(fmt.Sprint("cluster-", i), 1, 1+r.Uint32N(100), Ready, addresses...)
		total += float64(route.Weight)
		routes = append(routes, route)
	}
	share = map[string]float64{}
	for _, route := range routes {
		for _, a := range route.Addresses {
			share[a] = float64(route.Weight) / total / float64(len(route.Addresses))
		}
	}
	return routes, share
}

// One per cent of the lookups is a hundred of them; the sequence does ten times better.
func TestWeightsHoldOverTenThousandLookups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 100 {
		routes, share := randomRoutes(r)
		hold(t, fmt.Sprint("weights ", i), tally(NewPlan(orders, routes), 1), share, 10)
	}
}

func TestWeightsHoldOverPlansThatAreReplaced(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		routes, share := randomRoutes(r)
		for _, follow := range []bool{true, false} {
			p, count := NewPlan(orders, routes), map[string]float64{}
			for lookup := range lookups {
				if lookup%100 == 99 {
					next := NewPlan(orders, routes)
					if follow {
						next.Follow(p)
					}
					p = next
				}
				count[p.Address()]++
			}
			within := 10.0
			if !follow { // each plan begins anywhere
				within = 100
			}
			hold(t, fmt.Sprintf("weights %d, following %t", i, follow), count, share, within)
		}
	}
}

func TestEverySecondAndThirdLookupIsSpreadToo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for stride := 2; stride <= 12; stride++ {
		for range 3 {
			routes, share := randomRoutes(r)
			hold(t, fmt.Sprint("every ", stride), tally(NewPlan(orders, routes), stride), share, 30)
		}
	}
}

func TestAddressesOfARouteHaveTheSame(t *testing.T) {
	for _, n := range []int{2, 5, 7, 64, MaxShards} {
		addresses := Domain(DefaultDomain).GatewayAddresses(orders, "east", "15443", n)
		share := map[string]float64{}
		for _, a := range addresses {
			share[a] = 1 / float64(n)
		}
		hold(t, fmt.Sprint(n, " shards"), tally(NewPlan(orders, []Route{to("east", 0, 1, Ready, addresses...)}), 1), share, 5)
	}
}

func TestARampHoldsBackItsShare(t *testing.T) {
	ramping := func(r Route, percent uint8) Route { r.Ramp = percent; return r }
	tests := []struct {
		name   string
		routes []Route
		share  map[string]float64
	}{
		{"the rest goes on to the next priority",
			[]Route{ramping(to("west", 0, 1, Ready, "w:1"), 25), to("east", 1, 1, Ready, "e:1")}, map[string]float64{"w:1": .25, "e:1": .75}},
		{"past one that is not ready",
			[]Route{ramping(to("west", 0, 1, Ready, "w:1"), 10), to("north", 1, 1, Empty), to("east", 2, 1, Ready, "e:1", "e:2")}, map[string]float64{"w:1": .1, "e:1": .45, "e:2": .45}},
		{"to those who share its priority",
			[]Route{ramping(to("west", 0, 1, Ready, "w:1"), 50), to("east", 0, 1, Ready, "e:1"), to("north", 1, 1, Ready, "n:1")}, map[string]float64{"w:1": 1. / 3, "e:1": 2. / 3}},
		{"if all of a priority ramp, they take what the furthest takes",
			[]Route{ramping(to("west", 0, 1, Ready, "w:1"), 50), ramping(to("east", 0, 1, Ready, "e:1"), 25), to("north", 1, 1, Ready, "n:1")},
			map[string]float64{"w:1": 1. / 3, "e:1": 1. / 6, "n:1": .5}},
		{"alone it takes all", []Route{ramping(to("west", 0, 1, Ready, "w:1"), 25), to("east", 1, 1, Empty)}, map[string]float64{"w:1": 1}},
		{"and the last priority all that is left",
			[]Route{ramping(to("west", 0, 1, Ready, "w:1"), 50), ramping(to("east", 1, 1, Ready, "e:1"), 10)}, map[string]float64{"w:1": .5, "e:1": .5}},
		{"100 is all", []Route{ramping(to("west", 0, 1, Ready, "w:1"), 100), to("east", 1, 1, Ready, "e:1")}, map[string]float64{"w:1": 1}},
	}
	for _, test := range tests {
		hold(t, test.name, tally(NewPlan(orders, test.routes), 1), test.share, 10)
	}
}

func TestCallsThatARouteCannotCarryGoOn(t *testing.T) {
	// A route with so many instances ready, and so many that are not.
	with := func(cluster string, priority, weight uint32, min MinReady, ready, draining uint32) Route {
		r := to(cluster, priority, weight, Ready, cluster+":1")
		if r.Ready, r.Draining, r.MinReady = ready, draining, min; ready == 0 {
			r.State, r.Addresses = Empty, nil
		}
		return r
	}
	ramping := func(r Route, percent uint8) Route { r.Ramp = percent; return r }
	full := func(cluster string, priority uint32) Route { return with(cluster, priority, 1, 0, 1, 0) }
	tests := []struct {
		name   string
		routes []Route
		share  map[string]float64
	}{
		{"enough are ready", []Route{with("w", 0, 1, 3, 3, 0), full("e", 1)}, map[string]float64{"w:1": 1}},
		{"one of three", []Route{with("w", 0, 1, 3, 1, 0), full("e", 1)}, map[string]float64{"w:1": 1. / 3, "e:1": 2. / 3}},
		{"one of 30 of which half are asked for", []Route{with("w", 0, 1, -50, 1, 29), full("e", 1)}, map[string]float64{"w:1": 1. / 15, "e:1": 14. / 15}},
		{"half of what is known", []Route{with("w", 0, 1, -50, 2, 2), full("e", 1)}, map[string]float64{"w:1": 1}},
		{"none is ready", []Route{with("w", 0, 1, 3, 0, 3), full("e", 1)}, map[string]float64{"e:1": 1}},
		{"past those who share its priority, not to them",
			[]Route{with("w", 0, 1, 2, 1, 0), full("n", 0), full("e", 1)}, map[string]float64{"w:1": .25, "n:1": .5, "e:1": .25}},
		{"the same if none is ready", []Route{with("w", 0, 1, 2, 0, 0), full("n", 0), full("e", 1)}, map[string]float64{"n:1": .5, "e:1": .5}},
		{"but to them if there is nowhere else", []Route{with("w", 0, 1, 2, 1, 0), full("n", 0)}, map[string]float64{"w:1": 1. / 3, "n:1": 2. / 3}},
		{"over three priorities", []Route{with("w", 0, 1, 2, 1, 0), with("n", 1, 1, 2, 1, 0), full("e", 2)}, map[string]float64{"w:1": .5, "n:1": .25, "e:1": .25}},
		{"what nobody carries is shared in proportion", []Route{with("w", 0, 1, 10, 4, 0), with("e", 1, 1, 10, 1, 0)},
			map[string]float64{"w:1": .4 / .46, "e:1": .06 / .46}},
		{"alone it takes all", []Route{with("w", 0, 1, 10, 1, 0)}, map[string]float64{"w:1": 1}},
		{"by weight", []Route{with("w", 0, 3, 2, 1, 0), with("n", 0, 1, 2, 2, 0), full("e", 1)}, map[string]float64{"w:1": .375, "n:1": .25, "e:1": .375}},
		{"while it ramps up, too", []Route{ramping(with("w", 0, 1, 2, 1, 0), 50), full("e", 1)}, map[string]float64{"w:1": .25, "e:1": .75}},
		{"and its ramp goes to the others there", []Route{ramping(with("w", 0, 1, 2, 2, 0), 50), full("n", 0), full("e", 1)}, map[string]float64{"w:1": 1. / 3, "n:1": 2. / 3}},
		{"weight 0 is due nothing", []Route{with("w", 0, 0, 2, 0, 0), full("n", 0), full("e", 1)}, map[string]float64{"n:1": 1}},
	}
	for _, test := range tests {
		p := NewPlan(orders, test.routes)
		hold(t, test.name, tally(p, 1), test.share, 10)
		for _, s := range p.Shares() {
			if want := test.share[s.Route.Addresses[0]]; math.Abs(s.Part-want) > 1e-9 {
				t.Errorf("%s: %s has the share %v, want %v", test.name, s.Route.Cluster, s.Part, want)
			}
		}
	}
}

func TestMinReadyIsANumberOrAPercentage(t *testing.T) {
	for _, text := range []string{"", "1", "3", "100000", "1%", "50%", "100%"} {
		if m, err := ParseMinReady(text); err != nil || m.String() != text {
			t.Errorf("%q is read as %q, %v", text, m, err)
		}
	}
	for _, text := range []string{"0", "0%", "101%", "-1", "03", "%", "3.5", "3 %", "100001", "many", "+3"} {
		if m, err := ParseMinReady(text); err == nil {
			t.Errorf("%q is read as %q", text, m)
		}
	}
}

// known is a Reachability with fixed routes.
type known map[string]Route

func (k known) Local() Route                { return k["west"] }
func (k known) Remote(cluster string) Route { return k[cluster] }
func (k known) Exporters() []string         { return nil }

func TestARampThatMakesNoDifferenceIsNotInThePlan(t *testing.T) {
	at := func(percent uint8, address string) Route {
		return Route{Ramp: percent, Ready: 1, Addresses: []string{address}}
	}
	routes := func(priorities ...uint32) (specs []RouteSpec) {
		for i, p := range priorities {
			specs = append(specs, RouteSpec{Cluster: []string{"local", "east", "north"}[i], Priority: p, Weight: 1})
		}
		return specs
	}
	tests := []struct {
		name   string
		routes []RouteSpec
		known  known
		want   []uint8
	}{
		{"with nobody else", routes(0), known{"west": at(25, "w:1")}, []uint8{0}},
		{"with somebody behind", routes(0, 1), known{"west": at(25, "w:1"), "east": at(0, "e:1")}, []uint8{25, 0}},
		{"with nobody ready behind", routes(0, 1), known{"west": at(25, "w:1"), "east": {State: Empty}}, []uint8{0, 0}},
		{"of one that waits behind another", routes(0, 1), known{"west": at(0, "w:1"), "east": at(50, "e:1")}, []uint8{0, 0}},
		{"of the last that is left", routes(0, 1), known{"west": at(10, "w:1"), "east": at(50, "e:1")}, []uint8{10, 0}},
		{"of all alike", routes(0, 0), known{"west": at(10, "w:1"), "east": at(10, "e:1")}, []uint8{0, 0}},
		{"of all, but not alike", routes(0, 0), known{"west": at(10, "w:1"), "east": at(50, "e:1")}, []uint8{10, 50}},
		{"of one that is not ready", routes(0, 1), known{"west": {State: Empty, Ramp: 10}, "east": at(0, "e:1")}, []uint8{0, 0}},
		{"of the third, which has nothing", routes(0, 1, 2), known{"west": at(10, "w:1"), "east": at(0, "e:1"), "north": at(10, "n:1")}, []uint8{10, 0, 0}},
	}
	for _, test := range tests {
		p := (&Endpoint{App: orders, Routes: test.routes}).Plan("west", test.known)
		for i, want := range test.want {
			if got := p.Routes[i].Ramp; got != want {
				t.Errorf("%s: route %d ramps at %d, want %d", test.name, i, got, want)
			}
		}
	}
}

func TestAnExplanationTellsOfShardsDrainingAndRamps(t *testing.T) {
	addresses := Domain(DefaultDomain).GatewayAddresses(orders, "east", "15443", 3)
	v := viewWith(
		Route{RouteSpec: RouteSpec{Cluster: "east", Weight: 1}, Gateway: true, Ready: 3, Draining: 1, Ramp: 25, Addresses: addresses},
		to("west", 1, 1, Ready, "w:1"),
		to("far", 2, 1, Ready, "f:1"),
	)
	said := map[string]bool{}
	for range 8 {
		d := v.Explain(orders)
		east := d.Routes[0]
		if east.Shards != 3 || east.Draining != 1 || east.Ramp != 25 {
			t.Fatalf("east is %+v", east)
		}
		for _, r := range d.Routes {
			said[r.Cluster+": "+r.Reason] = true
		}
		if d.Cluster == "east" && !strings.HasSuffix(d.Gateway, ".orders.shop.east.isthmus.internal") {
			t.Errorf("gateway %q", d.Gateway)
		}
	}
	const east = "east: 3 ready, 1 draining, over 3 shards; takes 25 % for now: traffic comes back in steps"
	for _, want := range []string{
		east, east + ", and this lookup fell on west", "west: 1 ready",
		"west: 1 ready; takes what priority 0 leaves for now, and this lookup fell on east",
		"far: 1 ready, but priority 1 comes first",
	} {
		if !said[want] {
			t.Errorf("nobody said %q, but %v", want, said)
		}
	}
}

func TestSharesAreWrittenAsPeopleWriteThem(t *testing.T) {
	d := NewEntry(orders, Rule{}, []Route{to("east", 0, 90, Ready, "e:1"), to("north", 0, 10, Ready, "n:1")}).Explain()
	if d.Routes[0].Share != 90 || d.Routes[1].Share != 10 {
		t.Errorf("the shares are %v and %v, want 90 and 10", d.Routes[0].Share, d.Routes[1].Share)
	}
}
