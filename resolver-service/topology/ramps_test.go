package topology

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

const second = time.Second

// ramped is a graph in which checkout calls orders in east first and then here, and east
// takes 8 s to come back.
func ramped(settled bool, whenStale catalog.WhenStale) *Graph {
	g := NewGraph(west)
	east := reaches("east", "10.9.0.1:15443")
	east.RampUp = 8 * second
	e := calls("orders", via("east", 0, 1), via("local", 1, 1))
	e.WhenStale = whenStale
	g.Apply(full(selects("checkout", e), east))
	g.Apply(runs("orders", "1", "10.0.0.1:50002"))
	g.Apply(says("east", has("orders", 2), has("ledger", 1)))
	if settled {
		g.Settle()
	}
	return g
}

// ramp is the percentage of checkout's route to orders through a cluster.
func (g *Graph) ramp(cluster string) uint8 {
	e, _ := g.viewOf(app("checkout")).Entries.Get(app("orders"))
	for _, r := range e.Routes {
		if r.Cluster == cluster {
			return r.Ramp
		}
	}
	return 255
}

func TestTrafficComesBackInSteps(t *testing.T) {
	type step struct {
		at     time.Duration
		change Change
		want   uint8
	}
	in := func(at time.Duration, c Change, want uint8) step { return step{at, c, want} }
	nothing := Change{}
	gone, back := says("east", has("orders", 0)), says("east", has("orders", 2))
	tests := []struct {
		name      string
		unsettled bool
		serve     catalog.WhenStale
		steps     []step
	}{
		{name: "what was there all along has all", steps: []step{in(second, nothing, 0)}},
		{name: "ready again, over its time", steps: []step{
			in(1*second, gone, 0), in(2*second, back, 10), in(3*second, nothing, 10), in(4*second, nothing, 25),
			in(6*second, nothing, 50), in(8*second, nothing, 75), in(9999*time.Millisecond, nothing, 75), in(10*second, nothing, 0)}},
		{name: "one instance more makes no difference to it", steps: []step{
			in(1*second, gone, 0), in(2*second, back, 10), in(4*second, says("east", has("orders", 3)), 25), in(10*second, nothing, 0)}},
		{name: "not before all is settled", unsettled: true, steps: []step{in(1*second, gone, 0), in(2*second, back, 0)}},
		{name: "broken off, and begun again", steps: []step{
			in(1*second, gone, 0), in(2*second, back, 10), in(6*second, nothing, 50), in(7*second, gone, 0), in(8*second, back, 10), in(10*second, nothing, 25)}},
		{name: "a lease that ran out", steps: []step{
			in(1*second, lease("east", Expired), 0), in(2*second, lease("east", Fresh), 10), in(4*second, nothing, 25), in(10*second, nothing, 0)}},
		{name: "a lease that ran out, and is damped for a while", steps: []step{
			in(1*second, lease("east", Expired), 0), in(2*second, lease("east", Damped), 0), in(6*second, lease("east", Fresh), 10), in(8*second, nothing, 25)}},
		{name: "a lease that runs out while it ramps", steps: []step{
			in(1*second, gone, 0), in(2*second, back, 10), in(6*second, lease("east", Expired), 0), in(7*second, lease("east", Fresh), 10), in(11*second, nothing, 50)}},
		{name: "a lease that ran out, for those who went on with what they knew", serve: catalog.Serve, steps: []step{
			in(1*second, lease("east", Expired), 0), in(2*second, lease("east", Fresh), 0)}},
		{name: "for whom its instances come back in steps all the same", serve: catalog.Serve, steps: []step{
			in(1*second, gone, 0), in(2*second, back, 10)}},
		{name: "a cluster that was forgotten is new", steps: []step{
			in(1*second, lease("east", Forgotten), 0), in(2*second, lease("east", Fresh), 0)}},
		{name: "an export that was withdrawn is new", steps: []step{
			in(1*second, Change{Peers: []PeerChange{{Cluster: "east", Delete: []catalog.App{app("orders")}}}}, 0), in(2*second, back, 0)}},
		{name: "nobody else has it", steps: []step{
			in(1*second, gone, 0), in(1*second, stops("orders", "1"), 0), in(2*second, back, 0)}},
		{name: "nobody else has it any more", steps: []step{
			in(1*second, gone, 0), in(2*second, back, 10), in(3*second, stops("orders", "1"), 0)}},
		{name: "several steps late", steps: []step{in(1*second, gone, 0), in(2*second, back, 10), in(7*second, nothing, 50)}},
	}
	for _, test := range tests {
		g := ramped(!test.unsettled, test.serve)
		for i, step := range test.steps {
			step.change.Now = step.at
			g.Apply(step.change)
			if got := g.ramp("east"); got != step.want {
				t.Errorf("%s, step %d: %d %%, want %d", test.name, i, got, step.want)
			}
		}
	}
}

func TestThisClustersInstancesComeBackInStepsToo(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders")), reaches("east", "10.9.0.1:15443")))
	g.Settle()
	g.Apply(says("east", has("orders", 2)))
	at := func(now time.Duration, c Change, want uint8) {
		t.Helper()
		c.Now = now
		g.Apply(c)
		if got := g.ramp("west"); got != want {
			t.Errorf("after %s: %d %%, want %d", now, got, want)
		}
	}
	at(1*second, runs("orders", "1", "10.0.0.1:50002"), 0) // the first of its life
	at(2*second, stops("orders", "1"), 0)
	at(3*second, runs("orders", "1", "10.0.0.1:50002"), 10)
	at(3*second+catalog.DefaultRampUp/2, Change{}, 50)
	at(3*second+catalog.DefaultRampUp, Change{}, 0)
	if _, ok := g.NextStep(); ok {
		t.Error("a step is due, and nothing ramps")
	}
}

func TestAThousandExportsStepInOneChange(t *testing.T) {
	const exports = 1000
	g := NewGraph(west)
	east := reaches("east", "10.9.0.1:15443")
	east.RampUp = 8 * second
	var down, up []PeerExport
	instances := make([]Change, 0, exports)
	endpoints := make([]catalog.Endpoint, exports)
	for i := range exports {
		id := fmt.Sprint("app-", i)
		down, up = append(down, has(id, 0)), append(up, has(id, 1))
		instances = append(instances, runs(id, "1", fmt.Sprintf("10.0.%d.%d:50002", i/250, i%250)))
		endpoints[i] = calls(id, via("east", 0, 1), via("local", 1, 1))
	}
	g.Apply(full(selects("checkout", endpoints...), east))
	g.Apply(with(instances...))
	g.Settle()
	steps := func(what string, begins time.Duration, c Change) {
		t.Helper()
		c.Now = begins
		g.Apply(c)
		changes := 0
		for next, ok := g.NextStep(); ok; next, ok = g.NextStep() {
			for _, u := range g.Apply(Change{Now: next}) {
				changes += len(u.Views)
			}
		}
		if changes != len(rampSteps) {
			t.Errorf("%s: %d changes of the view, want one for each of %d steps", what, changes, len(rampSteps))
		}
	}
	g.Apply(says("east", down...))
	steps("ready again", second, says("east", up...))
	g.Apply(Change{Now: 20 * second, Peers: []PeerChange{{Cluster: "east", Lease: Expired}}})
	steps("heard again", 21*second, says("east"))
}

func TestATopologyStepsRampsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := running(t, west)
		east := reaches("east", "10.9.0.1:15443")
		east.RampUp = 8 * second
		top.must(t, full(selects("checkout", calls("orders", via("east", 0, 1), via("local", 1, 1))), east))
		top.must(t, runs("orders", "1", "10.0.0.1:50002"))
		top.must(t, says("east", has("orders", 2)))
		top.must(t, lease("east", Expired))
		time.Sleep(second)
		top.must(t, lease("east", Fresh))
		if d := top.Resolve(app("checkout"), app("orders")); d.Cluster != "east" || d.Routes[0].Ramp != 0 {
			t.Errorf("before all was settled: %+v", d)
		}
		top.Settle()
		top.must(t, lease("east", Expired))
		time.Sleep(30 * time.Millisecond) // off the grain of steps
		top.must(t, lease("east", Fresh))
		for _, want := range []int{10, 25, 50, 75, 0} {
			if d := top.Resolve(app("checkout"), app("orders")); d.Routes[0].Ramp != want {
				t.Errorf("%d %%, want %d: %s", d.Routes[0].Ramp, want, d.Routes[0].Reason)
			}
			time.Sleep(2*second + stepGrain)
			synctest.Wait()
		}
	})
}
