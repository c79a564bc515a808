// Command stores measures config stores on their real servers: how long it takes from
// a write until a connected sidecar decides by it, beside the smallest program that
// watches the same key with the store's own client; how soon a service is ready that
// starts with 10,000 objects; and what it asks of the store when nothing happens.
//
// For each store there is a server, "isthmus serve" in a process of its own, and in
// this process a sidecar's resolver, the bare watcher and the writer. A change lets one
// app call another one, or forbids it again. Every store that was measured stays up
// until the end, so that all of them are counted at rest for the same minute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// plan is what is measured.
type plan struct {
	stores  []string
	objects int
	changes int
	starts  int
	rest    time.Duration
}

// aimExtra is how much later than the bare watch a sidecar may decide (p99).
const aimExtra = 5 * time.Millisecond

func main() {
	var p plan
	stores := flag.String("stores", strings.Join(names(), ","), "stores to measure")
	flag.IntVar(&p.objects, "objects", 10_000, "objects in each store")
	flag.IntVar(&p.changes, "changes", 1_000, "changes to measure, of each sort")
	flag.IntVar(&p.starts, "starts", 3, "starts to measure")
	flag.DurationVar(&p.rest, "rest", time.Minute, "how long requests at rest are counted")
	measure.Program{
		Short: map[string]string{"objects": "1000", "changes": "10", "starts": "1", "rest": "3s"},
		Run: func(ctx context.Context) error {
			p.stores = strings.Split(*stores, ",")
			return measure.WithDirectory(func(dir string) error { return run(ctx, dir, p) })
		},
	}.Main()
}

func run(ctx context.Context, dir string, p plan) (err error) {
	for _, name := range p.stores {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-stores: there is no %q; want some of %s", name, strings.Join(names(), ","))
		}
	}
	var all []*result
	var missing, failed []error
	defer func() {
		for _, r := range all {
			err = errors.Join(err, r.close())
		}
	}()
	for _, k := range kinds {
		if !slices.Contains(p.stores, k.name) {
			continue
		}
		r, err := once(ctx, dir, p, k)
		switch {
		case errors.Is(err, sandbox.ErrNoBinary):
			missing = append(missing, fmt.Errorf("%s is left out: %w", k.name, err))
		case ctx.Err() != nil:
			return err
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", k.name, err))
			measure.Progress("%s: %v", k.name, err)
		default:
			all = append(all, r)
		}
	}
	if err := restAll(ctx, p, all); err != nil {
		return err
	}
	report(p, all, missing)
	return errors.Join(failed...)
}

func names() []string {
	all := make([]string, len(kinds))
	for i, k := range kinds {
		all[i] = k.name
	}
	return all
}

// report prints everything.
func report(p plan, all []*result, missing []error) {
	latency := measure.Table{
		Title: fmt.Sprintf("From a write until a connected sidecar decides by it, in ms (%d objects)", p.objects),
		Head: []string{"store, written by", "changes", "write p50", "p99", "bare watch p50", "p99", "decision p50", "p99",
			"decision − bare p50", "p99", "max"},
	}
	quiet := measure.Table{
		Title: fmt.Sprintf("The service's start with %d objects, and what it asks of the store at rest, per minute (of %s)", p.objects, p.rest),
		Head:  []string{"store", "ready ms", "RSS MiB", "requests", "connections", "sends", "B sent", "B received"},
	}
	for _, r := range all {
		for _, s := range r.series {
			latency.Add(s.row(r.name)...)
		}
		quiet.Add(r.row(p.rest)...)
	}
	latency.Print(os.Stdout)
	fmt.Println("Each from the moment before the write is sent: until it returned, until the bare watcher had the new value, until the sidecar")
	fmt.Println("decided by it; and of each change the difference of the last two. \"isthmus apply\" returns when lookups follow.")
	quiet.Print(os.Stdout)
	fmt.Println("Requests are as the server counts them; sends, segments with data from the service to the server, heartbeats among them.")
	for _, r := range all {
		for _, s := range r.series {
			if extra := s.extra(); len(extra) > 0 {
				p99 := measure.Quantile(extra, .99)
				fmt.Printf("%s, %s: at most %s after the bare watch (p99 %s ms): %s\n", r.name, s.by, aimExtra, measure.Millis(p99), measure.Verdict(p99 <= aimExtra))
			}
		}
	}
	for _, err := range missing {
		fmt.Println(err)
	}
}
