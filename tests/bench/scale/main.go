// Command scale shows what the topology costs at several sizes: how long it takes to
// be ready, what it holds in memory, and what one instance's change costs, which must
// follow what the change reaches and not how large the cluster is.
//
// Each row is measured in a process of its own, so that the memory is that row's.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

func main() {
	row := flag.String("row", "", "measure this fleet, given as JSON, and print the result as JSON; used by the program itself")
	flag.Parse()
	if err := run(*row); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(row string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if row != "" {
		return child(ctx, row)
	}
	if err := sizes(ctx); err != nil {
		return err
	}
	return reach(ctx)
}

// child measures one fleet.
func child(ctx context.Context, row string) error {
	var f fleet.Fleet
	if err := json.Unmarshal([]byte(row), &f); err != nil {
		return fmt.Errorf("read -row: %w", err)
	}
	r, err := measureFleet(ctx, f)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// inProcess measures a fleet in a process of its own.
func inProcess(ctx context.Context, f fleet.Fleet) (r result, err error) {
	fmt.Fprintf(os.Stderr, "scale: %d apps, %d instances, %d callees each\n", f.Apps, f.Apps*f.Instances, f.Callees)
	row, err := json.Marshal(f)
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, "-row", string(row))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("measure %s: %w", row, err)
	}
	return r, json.Unmarshal(out, &r)
}

// sizes shows that a change costs the same in a cluster of any size.
func sizes(ctx context.Context) error {
	table := measure.Table{
		Title: "One instance of an app changes, by the size of the cluster (10 instances per app)",
		Head:  []string{"apps × callees", "ready ms", "heap MiB", "RSS MiB", "p50 µs", "p99 µs", "views", "allocated B", "allocations"},
	}
	var last result
	for _, callees := range []int{20, 0} {
		for _, apps := range []int{100, 1_000, 10_000} {
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
	fmt.Printf("With 10,000 apps, 100,000 instances, 20 callees each: published in under 1 ms (p99 %s µs): %s; ready in under 3 s (%s ms): %s; under 256 MiB (RSS %s): %s\n",
		measure.Micros(last.P99), measure.Verdict(last.P99 < time.Millisecond),
		measure.Millis(last.Ready), measure.Verdict(last.Ready < 3*time.Second),
		measure.MiB(last.Memory.RSS), measure.Verdict(last.Memory.RSS < 256<<20))
	return nil
}

// reach shows that a change costs in proportion to how many views it reaches.
func reach(ctx context.Context) error {
	table := measure.Table{
		Title: "One instance of an app changes, by how many may call it (10,000 apps × 10 instances × 20 callees)",
		Head:  []string{"callers", "p50 µs", "p99 µs", "views", "allocated B", "allocations", "µs per view"},
	}
	for _, popular := range []int{100, 1_000, 9_999} {
		r, err := inProcess(ctx, fleet.Fleet{Apps: 10_000, Instances: 10, Callees: 20, Popular: popular})
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
