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
	alone := flag.Bool("alone", false, "the network is this program's own; set by the program itself")
	measure.Program{
		Short: map[string]string{"rounds": "3", "slice": "1ms"},
		Run: func(ctx context.Context) error {
			err := errNoNamespace
			if !*alone {
				err = inNamespace(ctx)
			}
			if !errors.Is(err, errNoNamespace) {
				return err
			}
			return measure.WithDirectory(func(dir string) error { return run(ctx, dir, *rounds, *slice, *alone) })
		},
	}.Main()
}

func run(ctx context.Context, dir string, rounds int, slice time.Duration, alone bool) (err error) {
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
	bench.peers(ctx, alone)
	measured := 0
	err = measure.Turns(ctx, rounds, bench.subjects, func(ctx context.Context, s *subject) error {
		if measured++; measured%len(bench.subjects) == 1 {
			runtime.GC() // at the beginning of a round, so that there is none during it
		}
		return s.measure(ctx, slice)
	})
	if err != nil {
		return err
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
	serial, parallel := base.serial.Median(), base.parallel.Median()
	var verdicts []string
	for _, s := range b.subjects {
		ofSerial, ofParallel := s.serial.Median()/serial, s.parallel.Median()/parallel
		table.Add(s.name,
			fmt.Sprintf("%.1f", s.serial.Median()), fmt.Sprintf("%.2f", ofSerial),
			fmt.Sprintf("%.1f", s.parallel.Median()), fmt.Sprintf("%.2f", ofParallel),
			fmt.Sprintf("%.1f", s.allocations.Median()),
			fmt.Sprintf("%.1f", s.serial.Best()), fmt.Sprintf("%.1f", s.parallel.Best()))
		if s.held {
			verdicts = append(verdicts, fmt.Sprintf("%s: at most %.2f × serial: %s; at most %.2f × parallel: %s; no allocation: %s", s.name,
				aimSerial, measure.Verdict(ofSerial <= aimSerial), aimParallel, measure.Verdict(ofParallel <= aimParallel),
				measure.Verdict(s.allocations.Median() == 0)))
		}
	}
	table.Print(os.Stdout)
	if len(b.missing) > 0 {
		fmt.Printf("Left out:\n  %s\n", strings.Join(b.missing, "\n  "))
	}
	fmt.Println(strings.Join(verdicts, "\n"))
}
