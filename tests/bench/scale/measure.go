package main

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// result is what was measured with one fleet.
type result struct {
	Ready    time.Duration // from the first change to its views' publication
	Memory   measure.Memory
	P50, P99 time.Duration // from an instance's change to its views' publication

	// Of the mean change:
	Views       float64 // published, that of apps without a selection included
	Bytes       uint64
	Allocations uint64

	Callers int // of app 0
}

const source = "bench"

// A row measures so many changes, or fewer where they take longer than patience.
const (
	changes  = 3000
	atLeast  = 50
	patience = 2 * time.Second
)

var config = topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}

func measureFleet(ctx context.Context, f fleet.Fleet) (r result, err error) {
	if r, err = published(ctx, f); err != nil {
		return r, err
	}
	runtime.GC()
	work(f, &r)
	for _, object := range f.Objects() {
		for _, e := range object.(*catalog.AppEndpoints).Endpoints {
			if e.App == fleet.App(0) {
				r.Callers++
			}
		}
	}
	return r, nil
}

// published measures a running topology.
func published(ctx context.Context, f fleet.Fleet) (r result, err error) {
	ctx, stop := context.WithCancel(ctx)
	t := topology.New(config, slog.New(slog.DiscardHandler))
	var owner sync.WaitGroup
	owner.Go(func() { _ = t.Run(ctx) }) // ends with ctx, without an error
	defer owner.Wait()
	defer stop()

	all := f.Change(source)
	start := time.Now()
	if _, err := t.Apply(ctx, all); err != nil {
		return r, err
	}
	r.Ready = time.Since(start)
	all = topology.Change{}
	r.Memory = measure.Settled()

	took := make([]time.Duration, 0, changes)
	for began := time.Now(); more(len(took), began); {
		change := fleet.Flip(source, chosen(f, len(took)), len(took))
		start := time.Now()
		if _, err := t.Apply(ctx, change); err != nil {
			return r, err
		}
		took = append(took, time.Since(start))
	}
	r.P50, r.P99 = measure.Median(took), measure.Quantile(took, .99)
	return r, nil
}

// work measures the graph alone, which does the same work in the caller's goroutine.
func work(f fleet.Fleet, r *result) {
	g := topology.NewGraph(config)
	g.Apply(f.Change(source))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	views, n := 0, 0
	for began := time.Now(); more(n, began); n++ {
		u := g.Apply(fleet.Flip(source, chosen(f, n), n))[0]
		views += len(u.Views)
		if u.Open != nil {
			views++
		}
	}
	runtime.ReadMemStats(&after)
	r.Views = float64(views) / float64(n)
	r.Bytes = (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	r.Allocations = (after.Mallocs - before.Mallocs) / uint64(n)
}

// more tells whether to measure another change after n.
func more(n int, began time.Time) bool {
	return n < atLeast || n < changes && time.Since(began) < patience
}

// chosen is the instance that the n-th change is about: twice the same, of an app that
// goes round, or of app 0 where that is called by others than the rest.
func chosen(f fleet.Fleet, n int) catalog.Instance {
	if f.Popular > 0 {
		return fleet.Instance(0, 3)
	}
	return fleet.Instance(n/2%f.Apps, 3)
}
