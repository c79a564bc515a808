// Command call measures what a call costs in the caller's sidecar: daprd with Isthmus, by
// the way of production with a resolver service, Sentry and mTLS, beside stock daprd with the
// cheapest of its resolvers, which only puts a name into a pattern. Both call the same apps,
// in short rounds by turns. Linux only: CPU time is the scheduler's count for the process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// aim is how many times the stock daprd's CPU time a call may cost.
const aim = 1.02

// options say how much is measured.
type options struct{ rounds, calls, at int }

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 31, "rounds in which everything is measured once")
	flag.IntVar(&o.calls, "calls", 1000, "calls of each kind, by each caller, in a round")
	flag.IntVar(&o.at, "at", 4, "calls under way at a time")
	measure.Program{
		Short: map[string]string{"rounds": "2", "calls": "50"},
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
	defer func() { err = errors.Join(err, s.Close()) }()
	callers, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range callers {
			err = errors.Join(err, c.proxied.Close())
		}
	}()
	// Callers of one kind follow each other at once, as they are compared.
	round := func(ctx context.Context, kind int) error {
		return measure.Turns(ctx, 1, callers, func(ctx context.Context, c *caller) error { return c.measure(ctx, kind, o) })
	}
	if err := measure.Turns(ctx, 1, []int{get, post, proxied}, round); err != nil { // connects, and warms up
		return err
	}
	for _, c := range callers {
		c.cpu, c.allocations = [kinds]measure.Samples{}, [kinds]measure.Samples{}
	}
	if err := measure.Turns(ctx, o.rounds, []int{get, post, proxied}, round); err != nil {
		return err
	}
	show(callers, o)
	for _, c := range callers {
		if err := c.profile(ctx, measure.Profiles(), o); err != nil {
			return err
		}
	}
	return nil
}

// measure makes so many calls, and notes what each cost the sidecar.
func (c *caller) measure(ctx context.Context, kind int, o options) error {
	mallocs, err := c.mallocs(ctx)
	if err != nil {
		return err
	}
	used, err := measure.Spent(c.PID(), func() error { return c.make(ctx, kind, o) })
	if err != nil {
		return err
	}
	more, err := c.mallocs(ctx)
	c.cpu[kind] = append(c.cpu[kind], float64(used)/float64(o.calls)/1e3)
	c.allocations[kind] = append(c.allocations[kind], float64(more-mallocs)/float64(o.calls))
	return err
}

// make makes so many calls, a few at a time.
func (c *caller) make(ctx context.Context, kind int, o options) error {
	err := measure.AtOnce(o.at, o.calls, func(n int) error {
		for range n {
			if err := c.call(ctx, kind); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

func show(callers []*caller, o options) {
	table := measure.Table{
		Title: fmt.Sprintf("A call in the caller's daprd: medians of %d rounds of %d calls by turns, %d at a time; × is against stock daprd in the same round, with its quartiles", o.rounds, o.calls, o.at),
		Head:  []string{"", "calls", "CPU µs", "×", "quartiles", "best CPU µs", "×", "allocations", "×"},
	}
	stock := callers[0]
	var verdicts []string
	for _, c := range callers {
		for kind := range kinds {
			cpu, times := c.cpu[kind], c.cpu[kind].Times(stock.cpu[kind])
			table.Add(c.name, kindNames[kind],
				fmt.Sprintf("%.1f", cpu.Median()), fmt.Sprintf("%.3f", times.Median()), times.Quartiles(),
				fmt.Sprintf("%.1f", cpu.Best()), fmt.Sprintf("%.3f", cpu.Best()/stock.cpu[kind].Best()),
				fmt.Sprintf("%.1f", c.allocations[kind].Median()),
				fmt.Sprintf("%.3f", c.allocations[kind].Median()/stock.allocations[kind].Median()))
			if c.held {
				verdicts = append(verdicts, fmt.Sprintf("%s, %s: at most %.2f ×: %s", c.name, kindNames[kind], aim, measure.Verdict(times.Median() <= aim)))
			}
		}
	}
	table.Print(os.Stdout)
	fmt.Println(strings.Join(verdicts, "\n"))
}
