// Command resolvebench measures ResolveID of Isthmus as daprd calls it. It compares Isthmus with a
// plain map and with every other resolver of Dapr's that can run here. All run in one process, in
// many short rounds by turns.
//
// On Linux it runs in a network namespace of its own with nothing but loopback: mdns uses every
// network of the machine. Without such a namespace it leaves mdns out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// The aims: on 2 cores where a look-up in a map costs 22 ns serial and 10 ns parallel, at
// most 35 and 15. Faster and slower machines have the same ratios.
const (
	aimSerial   = 35.0 / 22
	aimParallel = 15.0 / 10
)

func main() {
	rounds := flag.Int("rounds", 101, "rounds in which everything is measured once")
	slice := flag.Duration("slice", 4*time.Millisecond, "how long each measurement takes")
	consul := flag.String("consul", os.Getenv("ISTHMUS_CONSUL"), "the consul binary")
	alone := flag.Bool("alone", false, "the network is this program's own; set by the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()

	err := errNoNamespace
	if !*alone {
		err = inNamespace(ctx)
	}
	if errors.Is(err, errNoNamespace) {
		err = run(ctx, *rounds, *slice, *consul, *alone)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "resolvebench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, slice time.Duration, consul string, alone bool) (err error) {
	dir, err := os.MkdirTemp("", "isthmus-resolvebench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bench := &bench{dir: dir}
	defer func() { err = errors.Join(err, bench.close()) }()
	if alone {
		if err := raiseLoopback(); err != nil {
			return err
		}
	}
	bench.maps()
	if err := bench.isthmus(ctx); err != nil {
		return err
	}
	bench.peers(ctx, consul, alone)
	for round := range rounds {
		if err := bench.round(ctx, slice); err != nil {
			return err
		}
		if (round+1)%20 == 0 {
			fmt.Fprintf(os.Stderr, "resolvebench: %d of %d rounds\n", round+1, rounds)
		}
	}
	bench.print()
	return nil
}

func (b *bench) print() {
	table := measure.Table{
		Title: fmt.Sprintf("ResolveID on %d cores: medians of %d rounds by turns, and the best; × is against map[App]", runtime.GOMAXPROCS(0), len(b.subjects[0].serial)),
		Head:  []string{"", "serial ns", "×", "parallel ns", "×", "allocations", "best serial ns", "best parallel ns"},
	}
	base := b.subjects[0]
	serial, parallel := measure.Median(base.serial), measure.Median(base.parallel)
	for _, s := range b.subjects {
		table.Add(s.name,
			fmt.Sprintf("%.1f", measure.Median(s.serial)), fmt.Sprintf("%.2f", measure.Median(s.serial)/serial),
			fmt.Sprintf("%.1f", measure.Median(s.parallel)), fmt.Sprintf("%.2f", measure.Median(s.parallel)/parallel),
			fmt.Sprintf("%.1f", measure.Median(s.allocations)),
			fmt.Sprintf("%.1f", measure.Quantile(s.serial, 0)), fmt.Sprintf("%.1f", measure.Quantile(s.parallel, 0)))
	}
	table.Print(os.Stdout)
	if len(b.missing) > 0 {
		fmt.Printf("Left out:\n  %s\n", strings.Join(b.missing, "\n  "))
	}
	for _, s := range b.subjects {
		if s.held {
			rs, rp := measure.Median(s.serial)/serial, measure.Median(s.parallel)/parallel
			fmt.Printf("%s: at most %.2f × serial: %s; at most %.2f × parallel: %s; no allocation: %s\n", s.name,
				aimSerial, measure.Verdict(rs <= aimSerial), aimParallel, measure.Verdict(rp <= aimParallel),
				measure.Verdict(measure.Median(s.allocations) == 0))
		}
	}
}
