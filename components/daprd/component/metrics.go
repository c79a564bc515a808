package component

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opencensus.io/metric/metricdata"
	"go.opencensus.io/metric/metricproducer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// ExportMetrics adds the component's metrics to the metrics that daprd exports. daprd reads them at
// each scrape, with its own prefix "dapr_", so lookups and calls pay nothing for them. There are
// none without a resolver.
func (c *Component) ExportMetrics() { metricproducer.GlobalManager().AddProducer(c) }

// refusals counts the lookups that were refused, by app and outcome. Apps that the view lacks are
// counted as one without a name, since callers may ask for any name.
type refusals struct {
	mu     sync.Mutex
	counts map[refusedApp]int64
}

type refusedApp struct {
	app     catalog.App
	outcome string
}

// Outcomes that are no [catalog.Outcome].
const (
	notStarted = "not started" // after Init has failed
	relayed    = "relayed"     // for a call that is meant for another app
)

func (r *refusals) add(err error, app catalog.App, view *catalog.View) {
	outcome := notStarted
	var refusal *catalog.Refusal
	if errors.As(err, &refusal) {
		outcome = refusal.Outcome.String()
	} else if status.Code(err) == codes.PermissionDenied {
		outcome = relayed
	}
	key := refusedApp{named(app, view), outcome}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[refusedApp]int64{}
	}
	r.counts[key]++
}

// named returns the app if the view has it, and no app otherwise.
func named(app catalog.App, view *catalog.View) catalog.App {
	if view != nil {
		if _, ok := view.Entries.Get(app); ok {
			return app
		}
	}
	return catalog.App{}
}

// read returns the counts, and takes the names of apps that have left the view out of them.
func (r *refusals) read(view *catalog.View) map[refusedApp]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, n := range r.counts {
		if app := named(key.app, view); app != key.app {
			delete(r.counts, key)
			r.counts[refusedApp{app, key.outcome}] += n
		}
	}
	return maps.Clone(r.counts)
}

// Read returns the metrics of now. daprd calls it at each scrape.
func (c *Component) Read() []*metricdata.Metric {
	now := time.Now()
	used := c.newest()
	var view *catalog.View
	if used != nil {
		view, _ = used.View()
	}
	refused := c.refusals.read(view)
	if used == nil && len(refused) == 0 {
		return nil
	}
	metrics := append(callMetrics(c.dialer.Calls(), now), refusedMetric(refused, now))
	if g := c.guard.Load(); g != nil && g.of != nil {
		metrics = append(metrics, guardMetrics(g.of.Calls(), now)...)
	}
	if used == nil {
		return metrics
	}
	var revision uint64
	if view != nil {
		revision = view.Revision
	}
	return append(metrics,
		gauge("isthmus_view_revision", "Revision of the view that lookups read; 0 if there is no view yet.", now, float64(revision)),
		gauge("isthmus_view_age_seconds", "Time since the view's source was last heard; 0 while it is heard.", now, used.Away().Seconds()),
	)
}

// counter is a metric with labels.
func counter(name, description string, labels ...string) *metricdata.Metric {
	m := &metricdata.Metric{Descriptor: metricdata.Descriptor{
		Name: name, Description: description, Unit: metricdata.UnitDimensionless, Type: metricdata.TypeCumulativeInt64,
	}}
	for _, label := range labels {
		m.Descriptor.LabelKeys = append(m.Descriptor.LabelKeys, metricdata.LabelKey{Key: label})
	}
	return m
}

// addSeries adds a series with the values of the labels.
func addSeries(m *metricdata.Metric, point metricdata.Point, values ...string) {
	series := &metricdata.TimeSeries{Points: []metricdata.Point{point}}
	for _, value := range values {
		series.LabelValues = append(series.LabelValues, metricdata.NewLabelValue(value))
	}
	m.TimeSeries = append(m.TimeSeries, series)
}

func gauge(name, description string, now time.Time, value float64) *metricdata.Metric {
	m := counter(name, description)
	m.Descriptor.Type = metricdata.TypeGaugeFloat64
	addSeries(m, metricdata.NewFloat64Point(now, value))
	return m
}

// guardMetrics are the calls that came in. Callers beyond those that are counted each by itself have
// no name.
func guardMetrics(all []nameresolution.Calls, now time.Time) []*metricdata.Metric {
	calls := counter("isthmus_inbound_calls_total", "Calls to this app, by caller and by what the guard did with them.",
		"caller_namespace", "caller", "cluster", "outcome")
	took := counter("isthmus_inbound_call_milliseconds_total", "Time that the app took for calls by HTTP, by caller.",
		"caller_namespace", "caller", "cluster")
	for i := range all {
		c := &all[i]
		for outcome, n := range c.Count {
			if n > 0 {
				addSeries(calls, metricdata.NewInt64Point(now, int64(n)), c.App.Namespace, c.App.ID, c.Cluster, nameresolution.CallOutcome(outcome).String())
			}
		}
		if c.Traffic.Micros > 0 {
			addSeries(took, metricdata.NewInt64Point(now, int64(c.Traffic.Micros/1000)), c.App.Namespace, c.App.ID, c.Cluster)
		}
	}
	return []*metricdata.Metric{calls, took}
}

func callMetrics(all []dial.Calls, now time.Time) []*metricdata.Metric {
	begun := counter("isthmus_calls_total", "Calls to other apps, by app and cluster.",
		"callee_namespace", "callee", "cluster")
	failed := counter("isthmus_calls_failed_total", "Calls to other apps that ended with an error, by gRPC code.",
		"callee_namespace", "callee", "cluster", "code")
	for _, calls := range all {
		addSeries(begun, metricdata.NewInt64Point(now, int64(calls.Begun)), calls.App.Namespace, calls.App.ID, calls.Cluster)
		for code, n := range calls.Failed {
			addSeries(failed, metricdata.NewInt64Point(now, int64(n)), calls.App.Namespace, calls.App.ID, calls.Cluster, code.String())
		}
	}
	return []*metricdata.Metric{begun, failed}
}

func refusedMetric(counts map[refusedApp]int64, now time.Time) *metricdata.Metric {
	m := counter("isthmus_lookups_refused_total", "Lookups that were refused, by outcome; without a name for apps that the view lacks.",
		"callee_namespace", "callee", "outcome")
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b refusedApp) int {
		return cmp.Or(cmp.Compare(a.app.String(), b.app.String()), cmp.Compare(a.outcome, b.outcome))
	}) {
		addSeries(m, metricdata.NewInt64Point(now, counts[key]), key.app.Namespace, key.app.ID, key.outcome)
	}
	return m
}
