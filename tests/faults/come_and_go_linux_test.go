package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// shareWithin is how long an instance that is ready may be without its share.
const shareWithin = 5 * time.Second

// Instances behind a gateway are killed, stopped and started by chance, among that down to one.
// After each step every instance that runs has its share of callers that run all along.
func comeAndGo(t *testing.T, m *mesh) {
	x := m.newTrial(t, "remote instances killed, stopped and started by chance", deadline, m.toOrders(), m.toStock())
	x.strike(func() error { return nil })
	random := rand.New(rand.NewPCG(seed, 0))
	all := []string{"orders 1", "orders 2", "orders 3", "orders 4", "orders 5"}
	some := func(count int) []string {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return slices.Sorted(slices.Values(all[:count]))
	}
	targets := [][]string{some(1), some(2)}
	if *exact {
		targets = append(targets, some(1+random.IntN(5)), some(1), some(1+random.IntN(5)), some(1+random.IntN(5)))
	}
	runs, longest := all, time.Duration(0)
	var history []string
	for _, wanted := range append(targets, some(5)) {
		history = append(history, x.become(m.east, random, runs, wanted))
		runs = wanted
		took := x.shared(wanted)
		longest = max(longest, took)
		x.want(took <= allowed(shareWithin), "after %s: %s until all of %v had their share", strings.Join(history, "; then "), round(took), wanted)
	}
	t.Log(strings.Join(history, "; "))
	f := x.done("0 beyond those that an instance had begun; each ready instance has its share in 5 s",
		fmt.Sprintf("%d steps; each had its share %s after it was ready, at the latest", len(history), round(longest)))
	x.begunOnly(f)
}

// become has just the wanted instances run, at least one of them all the time, and says how.
func (x *trial) become(c *cluster, random *rand.Rand, runs, wanted []string) string {
	x.t.Helper()
	var kills, stops, starts []string
	stays := slices.IndexFunc(runs, func(name string) bool { return slices.Contains(wanted, name) })
	for i, name := range runs {
		again := i != stays && random.IntN(4) == 0
		if slices.Contains(wanted, name) && !again {
			continue
		}
		if slices.Contains(wanted, name) {
			starts = append(starts, name)
		}
		if random.IntN(2) == 0 {
			kills = append(kills, name)
		} else {
			stops = append(stops, name)
		}
	}
	restarts := starts
	for _, name := range wanted {
		if !slices.Contains(runs, name) {
			starts = append(starts, name)
		}
	}
	how := fmt.Sprintf("killed %v, stopped %v, started %v", kills, stops, starts)
	start := func(name string) error { return c.sidecars[name].Restart(meshtest.Within(x.t, meshtest.Patience)) }
	if stays < 0 {
		fresh := starts[len(restarts):]
		starts = restarts
		together(x.t, fresh, start)
		x.shared(fresh) // or nobody would be there for a moment, and others would have the calls
	}
	x.end(func() error {
		together(x.t, kills, func(name string) error { return c.sidecars[name].Kill() })
		return nil
	})
	together(x.t, stops, func(name string) error { return c.sidecars[name].Stop(meshtest.Within(x.t, meshtest.Patience)) })
	together(x.t, starts, start)
	return how
}

// shared waits until each instance has its share of the latest calls of each caller, and says
// for how long: at least half of what is even among five, of 80 calls.
func (x *trial) shared(instances []string) time.Duration {
	x.t.Helper()
	const among, each = 80, 16
	began := time.Now()
	meshtest.Eventually(x.t, meshtest.Patience, func() error {
		for _, c := range x.concerned {
			answered := slices.DeleteFunc(of(c), func(one call) bool { return one.err != nil })
			latest := answered[max(0, len(answered)-among):].by(true)
			for _, name := range instances {
				by := "east " + strings.TrimPrefix(name, "orders ")
				if latest[by] < each/2 {
					return fmt.Errorf("%s has %d of the last %d calls of %s: %v", by, latest[by], among, c.from.Name(), latest)
				}
			}
		}
		return nil
	})
	return time.Since(began)
}
