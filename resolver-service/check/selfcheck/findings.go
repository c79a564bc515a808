// Package selfcheck looks again and again for faults of its own service that stop nothing yet:
// findings of checks, directories and stores that lack something, and files that can't be used any
// more.
package selfcheck

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// How often the service checks itself for its metrics, and which part of the time it spends on that
// at most, where it has much to look at.
const (
	findingsPause = 10 * time.Second
	findingsShare = 50
)

// Findings are what the checks found that only read what the service publishes, for alerts. It is a
// [prometheus.Collector].
type Findings struct {
	found atomic.Pointer[[]check.Result]
}

var findingsDesc = prometheus.NewDesc("isthmus_check_findings",
	"What the checks of isthmus check find that this replica makes by itself, by check and level.", []string{"check", "level"}, nil)

// Run makes the checks again and again until ctx ends.
func (f *Findings) Run(ctx context.Context, facts func(context.Context) (*check.Facts, error)) error {
	for ctx.Err() == nil {
		start := time.Now()
		if facts, err := facts(ctx); err == nil { // otherwise what was found before stands
			found := check.Look(facts)
			f.found.Store(&found)
		}
		live.Sleep(ctx, max(findingsPause, findingsShare*time.Since(start)))
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (f *Findings) Describe(to chan<- *prometheus.Desc) { to <- findingsDesc }

// Collect implements [prometheus.Collector]. Before the first round there is nothing.
func (f *Findings) Collect(to chan<- prometheus.Metric) {
	found := f.found.Load()
	if found == nil {
		return
	}
	type kind struct {
		check string
		level check.Level
	}
	count := map[kind]int{}
	for _, r := range *found {
		count[kind{r.Check, r.Level}]++
	}
	for _, name := range check.Looks() {
		for _, level := range []check.Level{check.Warn, check.Fail} {
			to <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(count[kind{name, level}]), name, string(level))
		}
	}
}
