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
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"

	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// aim is how many times the stock daprd's CPU time a call may cost.
const aim = 1.02

func main() {
	rounds := flag.Int("rounds", 31, "rounds in which everything is measured once")
	calls := flag.Int("calls", 1000, "calls of each kind, by each caller, in a round")
	at := flag.Int("at", 4, "calls under way at a time")
	profile := flag.String("profile", "", "directory for a CPU profile of each caller, taken in rounds after those that are shown")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *calls, *at, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "call:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, calls, at int, profile string) (err error) {
	dir, remove, err := sandbox.Workspace()
	if err != nil {
		return err
	}
	s, err := sandbox.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(), remove()) }()
	callers, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range callers {
			err = errors.Join(err, c.proxied.Close())
		}
	}()
	if err := round(ctx, callers, calls, at); err != nil { // connects, and warms up
		return err
	}
	for _, c := range callers {
		c.cpu, c.allocations = [kinds][]float64{}, [kinds][]float64{}
	}
	for n := range rounds {
		if err := round(ctx, callers, calls, at); err != nil {
			return err
		}
		if (n+1)%10 == 0 {
			fmt.Fprintf(os.Stderr, "call: %d of %d rounds\n", n+1, rounds)
		}
	}
	show(callers, rounds, calls, at)
	if profile == "" {
		return nil
	}
	for _, c := range callers {
		if err := c.profile(ctx, profile, calls, at); err != nil {
			return err
		}
	}
	return nil
}

// round measures each kind of call by each caller, in another order each time.
func round(ctx context.Context, callers []*caller, calls, at int) error {
	for kind := range kinds {
		for _, i := range rand.Perm(len(callers)) {
			if err := callers[i].measure(ctx, kind, calls, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure makes so many calls, and notes what each cost the sidecar.
func (c *caller) measure(ctx context.Context, kind, calls, at int) error {
	mallocs, err := c.mallocs(ctx)
	if err != nil {
		return err
	}
	before, err := measure.CPU(c.PID())
	if err != nil {
		return err
	}
	if err := c.make(ctx, kind, calls, at); err != nil {
		return err
	}
	after, err := measure.CPU(c.PID())
	if err != nil {
		return err
	}
	more, err := c.mallocs(ctx)
	if err != nil {
		return err
	}
	c.cpu[kind] = append(c.cpu[kind], float64(after-before)/float64(calls)/1e3)
	c.allocations[kind] = append(c.allocations[kind], float64(more-mallocs)/float64(calls))
	return nil
}

// make makes so many calls, a few at a time.
func (c *caller) make(ctx context.Context, kind, calls, at int) error {
	errs := make([]error, at)
	var group sync.WaitGroup
	for i := range at {
		group.Go(func() {
			for n := i; n < calls && errs[i] == nil; n += at {
				errs[i] = c.call(ctx, kind)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

func show(callers []*caller, rounds, calls, at int) {
	table := measure.Table{
		Title: fmt.Sprintf("A call in the caller's daprd: medians of %d rounds of %d calls by turns, %d at a time; × is against stock daprd in the same round, with its quartiles", rounds, calls, at),
		Head:  []string{"", "calls", "CPU µs", "×", "quartiles", "best CPU µs", "×", "allocations", "×"},
	}
	stock := callers[0]
	for _, c := range callers {
		for kind := range kinds {
			times := ratios(c.cpu[kind], stock.cpu[kind])
			table.Add(c.name, kindNames[kind],
				fmt.Sprintf("%.1f", measure.Median(c.cpu[kind])), fmt.Sprintf("%.3f", measure.Median(times)),
				fmt.Sprintf("%.3f to %.3f", measure.Quantile(times, .25), measure.Quantile(times, .75)),
				fmt.Sprintf("%.1f", measure.Quantile(c.cpu[kind], 0)), fmt.Sprintf("%.3f", measure.Quantile(c.cpu[kind], 0)/measure.Quantile(stock.cpu[kind], 0)),
				fmt.Sprintf("%.1f", measure.Median(c.allocations[kind])),
				fmt.Sprintf("%.3f", measure.Median(c.allocations[kind])/measure.Median(stock.allocations[kind])))
		}
	}
	table.Print(os.Stdout)
	for _, c := range callers {
		for kind := range kinds {
			if c.held {
				times := measure.Median(ratios(c.cpu[kind], stock.cpu[kind]))
				fmt.Printf("%s, %s: at most %.2f ×: %s\n", c.name, kindNames[kind], aim, measure.Verdict(times <= aim))
			}
		}
	}
}

// ratios are those of two measurements, round by round.
func ratios(of, to []float64) []float64 {
	all := make([]float64, len(of))
	for i := range of {
		all[i] = of[i] / to[i]
	}
	return all
}
