// Command actors measures what a call of an actor in another cluster costs, beside a service
// invocation of the same app there, in short rounds by turns. Between them stands the floor: the
// daprds that a bridged call passes, with a relay in the place of each bridge that does nothing else.
// Linux only: CPU time is the scheduler's count for the processes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// How many times a service invocation a bridged call may cost.
const (
	latencyAim = 2.0
	cpuAim     = 2.5
)

// options say how much is measured.
type options struct {
	rounds, calls, at int
	load              time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 31, "rounds in which everything is measured once")
	flag.IntVar(&o.calls, "calls", 200, "calls of each kind in a round, one at a time")
	flag.IntVar(&o.at, "at", 32, "calls under way at a time where calls a second are counted")
	flag.DurationVar(&o.load, "load", 3*time.Second, "how long they are counted, for each number of replicas in a round")
	measure.Program{
		Short: map[string]string{"rounds": "2", "calls": "20", "load": "200ms"},
		Roles: map[string]measure.Role{"relay": relay},
		Run: func(ctx context.Context) error {
			return measure.WithDirectory(func(dir string) error { return run(ctx, dir, o) })
		},
	}.Main()
}

func run(ctx context.Context, dir string, o options) (err error) {
	s, err := sandbox.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	m := &mesh{Sandbox: s}
	defer func() { err = errors.Join(err, m.close(), s.Close()) }()
	if err := m.start(ctx); err != nil {
		return err
	}
	ways := m.ways()
	turn := func(ctx context.Context, w *way) error { return w.measure(ctx, o) }
	if err := measure.Turns(ctx, 1, ways, turn); err != nil { // connects, and warms up
		return err
	}
	for _, w := range ways {
		w.p50, w.p99, w.cpu = nil, nil, nil
	}
	if err := measure.Turns(ctx, o.rounds, ways, turn); err != nil {
		return err
	}
	showCosts(ways, o)
	rates, err := m.rates(ctx, o)
	if err != nil {
		return err
	}
	showRates(rates, o)
	return nil
}

// measure makes calls one at a time, and notes how long they took and what they cost all processes but
// this one, which calls and answers.
func (w *way) measure(ctx context.Context, o options) error {
	took := make([]time.Duration, o.calls)
	before, err := measure.ChildrenCPU()
	if err != nil {
		return err
	}
	for i := range took {
		start := time.Now()
		if err := w.call(ctx, i); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		took[i] = time.Since(start)
	}
	after, err := measure.ChildrenCPU()
	w.p50 = append(w.p50, float64(measure.Quantile(took, .5))/1e6)
	w.p99 = append(w.p99, float64(measure.Quantile(took, .99))/1e6)
	w.cpu = append(w.cpu, float64(after-before)/float64(o.calls)/1e6)
	return err
}

// rates counts calls a second through 1, 2 and 4 replicas of west's bridge. Each number is measured for
// itself, since replicas can't be had by turns.
func (m *mesh) rates(ctx context.Context, o options) (rates [][3]string, err error) {
	ways := m.ways()
	invoked, bridged := ways[0], ways[len(ways)-1]
	for _, replicas := range []int{1, 2, 4} {
		if err := m.scale(ctx, replicas); err != nil {
			return nil, err
		}
		var each [2]measure.Samples
		for range max(1, o.rounds/10) {
			for i, w := range []*way{invoked, bridged} {
				n, err := w.rate(ctx, o)
				if err != nil {
					return nil, err
				}
				each[i] = append(each[i], n)
			}
		}
		rates = append(rates, [3]string{fmt.Sprint(replicas), fmt.Sprintf("%.0f", each[1].Median()), fmt.Sprintf("%.2f", each[1].Times(each[0]).Median())})
	}
	return rates, nil
}

// rate is how many calls a second are answered. No two under way are of one actor.
func (w *way) rate(ctx context.Context, o options) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.load+measure.Patience)
	defer cancel()
	var made atomic.Int64
	start := time.Now()
	err := measure.AtOnce(o.at, o.at, func(int) error {
		for time.Since(start) < o.load {
			if err := w.call(ctx, int(made.Add(1))); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		return nil
	})
	return float64(made.Load()) / time.Since(start).Seconds(), err
}

func showCosts(ways []*way, o options) {
	table := measure.Table{
		Title: fmt.Sprintf("A call with a body of 1 KiB, one at a time: medians of %d rounds of %d calls by turns; × is against service invocation in the same round. CPU is of all sidecars, gateways and bridges.", o.rounds, o.calls),
		Head:  []string{"", "p50 ms", "×", "p99 ms", "×", "CPU ms", "×"},
	}
	base := ways[0]
	times := func(s, of measure.Samples) string { return fmt.Sprintf("%.2f", s.Times(of).Median()) }
	for _, w := range ways {
		table.Add(w.name, fmt.Sprintf("%.2f", w.p50.Median()), times(w.p50, base.p50), fmt.Sprintf("%.2f", w.p99.Median()), times(w.p99, base.p99),
			fmt.Sprintf("%.2f", w.cpu.Median()), times(w.cpu, base.cpu))
	}
	table.Print(os.Stdout)
	bridged := ways[len(ways)-1]
	var verdicts []string
	for _, v := range []struct {
		what  string
		times float64
		aim   float64
	}{
		{"latency, p50", bridged.p50.Times(base.p50).Median(), latencyAim}, {"latency, p99", bridged.p99.Times(base.p99).Median(), latencyAim},
		{"CPU", bridged.cpu.Times(base.cpu).Median(), cpuAim},
	} {
		verdicts = append(verdicts, fmt.Sprintf("%s: at most %.1f × service invocation: %s", v.what, v.aim, measure.Verdict(v.times <= v.aim)))
	}
	fmt.Println(strings.Join(verdicts, "\n"))
}

func showRates(rates [][3]string, o options) {
	table := measure.Table{
		Title: fmt.Sprintf("Calls of actors in another cluster, %d at a time, on one machine that also runs the callers and both clusters; × is against service invocation in the same round", o.at),
		Head:  []string{"replicas of the bridge", "calls a second", "×"},
	}
	for _, r := range rates {
		table.Add(r[:]...)
	}
	table.Print(os.Stdout)
}
