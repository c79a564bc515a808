// Command scale shows what the topology costs at several sizes: how long it takes to
// be ready, what it holds in memory, and what one instance's change costs, which must
// follow what the change reaches and not how large the cluster is.
//
// Each row is measured in a process of its own, so that the memory is that row's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

func main() {
	var sizes, popular string
	flag.StringVar(&sizes, "sizes", "100,1000,10000", "apps in the clusters")
	flag.StringVar(&popular, "popular", "100,1000,9999", "apps that may call the changed app, of the largest cluster")
	measure.Program{
		Short: map[string]string{"sizes": "100", "popular": "50"},
		Roles: map[string]measure.Role{"fleet": measure.Result(measureFleet)},
		Run: func(ctx context.Context) error {
			apps, err := numbers(sizes)
			callers, err2 := numbers(popular)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if err := showSizes(ctx, apps); err != nil {
				return err
			}
			return showReach(ctx, apps[len(apps)-1], callers)
		},
	}.Main()
}

// numbers reads a flag.
func numbers(text string) (all []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// inProcess measures a fleet in a process of its own.
func inProcess(ctx context.Context, f fleet.Fleet) (result, error) {
	measure.Progress("%d apps, %d instances, %d callees each", f.Apps, f.Apps*f.Instances, f.Callees)
	return measure.Separately[result](ctx, "fleet", f)
}

// showSizes shows that a change costs the same in a cluster of any size.
func showSizes(ctx context.Context, sizes []int) error {
	table := measure.Table{
		Title: "One instance of an app changes, by the size of the cluster (10 instances per app)",
		Head:  []string{"apps × callees", "ready ms", "heap MiB", "RSS MiB", "p50 µs", "p99 µs", "views", "allocated B", "allocations"},
	}
	var last result
	for _, callees := range []int{20, 0} {
		for _, apps := range sizes {
			r, err := inProcess(ctx, fleet.Fleet{Apps: apps, Instances: 10, Callees: callees})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%d × %d", apps, callees)
			if callees == 0 {
				name = fmt.Sprintf("%d, no selections", apps)
			} else {
				last = r
			}
			table.Add(append([]string{name, measure.Millis(r.Ready), measure.MiB(r.Memory.Heap), measure.MiB(r.Memory.RSS)}, r.costs()...)...)
		}
	}
	table.Print(os.Stdout)
	fmt.Printf("With %d apps, %d instances, 20 callees each: published in under 1 ms (p99 %s µs): %s; ready in under 3 s (%s ms): %s; under 256 MiB (RSS %s): %s\n",
		sizes[len(sizes)-1], 10*sizes[len(sizes)-1], measure.Micros(last.P99), measure.Verdict(last.P99 < time.Millisecond),
		measure.Millis(last.Ready), measure.Verdict(last.Ready < 3*time.Second),
		measure.MiB(last.Memory.RSS), measure.Verdict(last.Memory.RSS < 256<<20))
	return nil
}

// showReach shows that a change costs in proportion to how many views it reaches.
func showReach(ctx context.Context, apps int, callers []int) error {
	table := measure.Table{
		Title: fmt.Sprintf("One instance of an app changes, by how many may call it (%d apps × 10 instances × 20 callees)", apps),
		Head:  []string{"callers", "p50 µs", "p99 µs", "views", "allocated B", "allocations", "µs per view"},
	}
	for _, popular := range callers {
		r, err := inProcess(ctx, fleet.Fleet{Apps: apps, Instances: 10, Callees: 20, Popular: popular})
		if err != nil {
			return err
		}
		each := float64(r.P50) / 1e3 / r.Views
		table.Add(append(append([]string{strconv.Itoa(r.Callers)}, r.costs()...), fmt.Sprintf("%.2f", each))...)
	}
	table.Print(os.Stdout)
	return nil
}

func (r result) costs() []string {
	return []string{
		measure.Micros(r.P50), measure.Micros(r.P99), fmt.Sprintf("%.1f", r.Views),
		strconv.FormatUint(r.Bytes, 10), strconv.FormatUint(r.Allocations, 10),
	}
}
