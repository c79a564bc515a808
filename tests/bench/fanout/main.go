// Command fanout measures how long it takes from an instance's change until the
// sidecars that may call it answer with it: a resolver service with 10,000 apps and
// 100,000 instances in a process of its own, 1,000 sidecars' resolvers connected to it,
// and one instance that all of them may call and that changes its address.
//
// By turns with it, a bare gRPC server sends a like message to as many sidecars. What the service
// itself adds is the difference.
//
// It also shows what the service holds in memory and how long it takes to be ready
// after a start, with all selections in its store and all instances to take over.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// plan is what is measured.
type plan struct {
	fleet   fleet.Fleet
	streams int
	changes int
	only    string
}

// The aims.
const (
	aimLast  = 10 * time.Millisecond
	aimReady = 3 * time.Second
	aimRSS   = 256 << 20
)

func main() {
	var p plan
	flag.IntVar(&p.fleet.Apps, "apps", 10_000, "apps in the cluster")
	flag.IntVar(&p.fleet.Instances, "instances", 10, "instances of each app")
	flag.IntVar(&p.fleet.Callees, "callees", 20, "callees in each app's selection")
	flag.IntVar(&p.streams, "streams", 1_000, "connected sidecars")
	flag.StringVar(&p.only, "only", "", "measure only what has this in its name, such as \"mTLS, reaches 20\"")
	flag.IntVar(&p.changes, "changes", 150, "changes to measure")
	measure.Program{
		Short: map[string]string{"apps": "300", "streams": "200", "changes": "5"},
		Roles: map[string]measure.Role{"service": service, "bare": bare},
		Run:   func(ctx context.Context) error { return run(ctx, p) },
	}.Main()
}

func run(ctx context.Context, p plan) error {
	table := measure.Table{
		Title: fmt.Sprintf("An instance changes; %d sidecars are connected (%d apps × %d instances × %d callees, %d changes)",
			p.streams, p.fleet.Apps, p.fleet.Instances, p.fleet.Callees, p.changes),
		Head: []string{"sidecars", "ready ms", "RSS MiB", "peak MiB", "first ms p50", "p99", "median ms p50", "p99", "last ms p50", "p99", "CPU ms service", "CPU ms sidecars"},
	}
	var all []result
	for _, mtls := range []bool{false, true} {
		for _, o := range p.occasions(mtls) {
			if !strings.Contains(o.String(), p.only) {
				continue
			}
			r, floor, err := once(ctx, p, o)
			if err != nil {
				return err
			}
			all = append(all, r)
			table.Add(r.row()...)
			table.Add(floor.row()...)
		}
	}
	table.Print(os.Stdout)
	fmt.Println("CPU is that of one change, all sidecars together. The sidecars run beside the service on the same cores, in a process of their own, which collects its garbage between changes.")
	for _, r := range all {
		last := measure.Quantile(r.last, .99)
		fmt.Printf("%s: last sees it in under %s (p99 %s ms): %s; ready in under %s: %s; under %d MiB: %s\n", r.name,
			aimLast, measure.Millis(last), measure.Verdict(last < aimLast), aimReady, measure.Verdict(r.ready < aimReady),
			aimRSS>>20, measure.Verdict(r.rss < aimRSS))
	}
	return nil
}

// occasion is one way to connect the sidecars.
type occasion struct {
	mtls    bool
	each    int // sidecars of an app
	callers int // apps that may call the one that changes
}

func (o occasion) String() string {
	connections := "plain text"
	if o.mtls {
		connections = "mTLS"
	}
	return fmt.Sprintf("%s, reaches %d apps × %d", connections, o.callers, o.each)
}

// occasions are the ordinary one, a change that reaches as many apps as each has callees,
// with ten sidecars each; and the worst, in which it reaches all sidecars and each is of
// another app, so that each gets a view of its own.
func (p plan) occasions(mtls bool) []occasion {
	return []occasion{
		{mtls, p.fleet.Instances, p.fleet.Callees},
		{mtls, 1, p.streams},
	}
}

func (r result) row() []string {
	row := []string{r.name, measure.Millis(r.ready), measure.MiB(r.rss), measure.MiB(r.peak)}
	for _, seen := range [][]time.Duration{r.first, r.median, r.last} {
		row = append(row, measure.Millis(measure.Median(seen)), measure.Millis(measure.Quantile(seen, .99)))
	}
	return append(row, measure.Millis(r.serviceCPU), measure.Millis(r.sidecarsCPU))
}
