package traffic

import (
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/series"
)

// maxMetricEdges is how many edges have metrics of their own, and maxAppMetricEdges those that sidecars
// of one app tell of: an app that makes up names takes no place of others. Further edges have metrics
// together, as "other".
const (
	maxMetricEdges    = 500
	maxAppMetricEdges = 50
)

// otherEdge stands for all edges without metrics of their own.
var otherEdge = Edge{Caller: catalog.App{ID: "other"}, Callee: catalog.App{ID: "other"}}

// total is what an edge has counted since the service started.
type total struct {
	traffic.Counts
	exemplars traffic.Exemplars
	last      time.Time
}

// totals are those of the edges that have metrics. It is a [prometheus.Collector].
type totals struct {
	series.Bounded[Edge, total]
}

func (t *totals) add(e Edge, c *traffic.Counts, exemplars *traffic.Exemplars, now time.Time) {
	if c.All()+c.Retries == 0 {
		return
	}
	t.Use(e, func(all *total) {
		all.Add(c)
		all.exemplars.Take(exemplars)
		all.last = now
	})
}

var (
	edgeLabels  = []string{"caller_namespace", "caller", "caller_cluster", "callee_namespace", "callee", "cluster", "seen_by"}
	resultsDesc = prometheus.NewDesc("isthmus_call_results_total",
		"Calls by caller, callee and the cluster that they went to, by how they ended; seen_by tells whether the caller's sidecar counted them, or the callee's guard.",
		append(edgeLabels[:len(edgeLabels):len(edgeLabels)], "result"), nil)
	retriesDesc  = prometheus.NewDesc("isthmus_call_retries_total", "Attempts of calls beyond the first.", edgeLabels, nil)
	durationDesc = prometheus.NewDesc("isthmus_call_duration_seconds", "Time until the first answer of calls, or until they ended without one.", edgeLabels, nil)
	lostDesc     = prometheus.NewDesc("isthmus_call_results_lost_total", "Calls that the service has no history of, since there are too many pairs of apps.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (s *Store) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{resultsDesc, retriesDesc, durationDesc, lostDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (s *Store) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(s.Lost()))
	now := time.Now()
	s.totals.Remove(func(_ Edge, t *total) bool { return now.Sub(t.last) > Kept }, func(other, from *total) { other.Add(&from.Counts) })
	var rest total
	s.totals.Each(func(e Edge, other bool, t *total) {
		if other || e == otherEdge {
			rest.Add(&t.Counts)
			rest.exemplars.Take(&t.exemplars)
			return
		}
		send(to, e, t)
	})
	send(to, otherEdge, &rest)
}

func send(to chan<- prometheus.Metric, e Edge, c *total) {
	if c.All()+c.Retries == 0 {
		return
	}
	by := "caller"
	if e.ByCallee {
		by = "guard"
	}
	labels := []string{e.Caller.Namespace, e.Caller.ID, e.CallerCluster, e.Callee.Namespace, e.Callee.ID, e.Cluster, by}
	for end, n := range c.Ends {
		if n > 0 {
			m := prometheus.MustNewConstMetric(resultsDesc, prometheus.CounterValue, float64(n), append(labels[:len(labels):len(labels)], traffic.End(end).String())...)
			if x := c.exemplars[end]; x != nil {
				m = prometheus.MustNewMetricWithExemplars(m, exemplarOf(x, 1))
			}
			to <- m
		}
	}
	if c.Retries > 0 {
		to <- prometheus.MustNewConstMetric(retriesDesc, prometheus.CounterValue, float64(c.Retries), labels...)
	}
	to <- durationsOf(c, labels)
}

// exemplarOf names the trace of a call.
func exemplarOf(x *traffic.Exemplar, value float64) prometheus.Exemplar {
	return prometheus.Exemplar{Value: value, Timestamp: x.At, Labels: prometheus.Labels{"trace_id": hex.EncodeToString(x.TraceID[:])}}
}

// durations is a histogram in both forms that Prometheus knows.
type durations struct {
	prometheus.Metric // the native one
	classic           prometheus.Metric
}

// Classic buckets double each time, from 2^-10 s, which is a millisecond or so, to 2^4 s.
const (
	firstClassic = 10<<traffic.Schema - 1
	lastClassic  = 24<<traffic.Schema - 1
)

func durationsOf(c *total, labels []string) prometheus.Metric {
	native, classic := map[int]int64{}, map[float64]uint64{}
	var timed uint64
	for i, n := range c.Buckets {
		if timed += n; n > 0 {
			native[traffic.Native(i)] = int64(n)
		}
		if i >= firstClassic && i <= lastClassic && (i+1)%(1<<traffic.Schema) == 0 {
			classic[traffic.Upper(i).Seconds()] = timed
		}
	}
	sum := float64(c.Micros) / 1e6
	d := durations{
		prometheus.MustNewConstNativeHistogram(durationDesc, timed, sum, native, nil, 0, traffic.Schema, 0, time.Time{}, labels...),
		prometheus.MustNewConstHistogram(durationDesc, timed, sum, classic, labels...),
	}
	var exemplars []prometheus.Exemplar
	for _, x := range c.exemplars {
		if x != nil {
			exemplars = append(exemplars, exemplarOf(x, x.Took.Seconds()))
		}
	}
	if len(exemplars) > 0 { // of two in one bucket, the newer one stays
		slices.SortFunc(exemplars, func(a, b prometheus.Exemplar) int { return a.Timestamp.Compare(b.Timestamp) })
		d.classic = prometheus.MustNewMetricWithExemplars(d.classic, exemplars...)
	}
	return d
}

// Write implements [prometheus.Metric].
func (d durations) Write(m *dto.Metric) error {
	var classic dto.Metric
	if err := errors.Join(d.Metric.Write(m), d.classic.Write(&classic)); err != nil {
		return err
	}
	m.Histogram.Bucket = classic.GetHistogram().GetBucket()
	for _, b := range m.GetHistogram().GetBucket() {
		if b.GetExemplar() != nil {
			m.Histogram.Exemplars = append(m.Histogram.Exemplars, b.GetExemplar())
		}
	}
	return nil
}
