package stream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// metrics are the counters of the streams.
type metrics struct {
	open    prometheus.Gauge
	updates prometheus.Counter
	bytes   prometheus.Counter
	entries prometheus.Counter
	resumed prometheus.Counter
	refused *prometheus.CounterVec

	refusedCalls *refusedCalls
	delivery     map[topology.Cause]prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "isthmus_stream_open", Help: "Streams of sidecars that are open.",
		}),
		updates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isthmus_stream_updates_total", Help: "Messages sent to sidecars.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isthmus_stream_bytes_total", Help: "Bytes of the messages sent to sidecars, before TLS.",
		}),
		entries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isthmus_stream_entries_total", Help: "Entries and removals in the messages sent to sidecars.",
		}),
		resumed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isthmus_stream_resumed_total", Help: "Streams of sidecars that came back with a view.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_stream_refused_total", Help: "Streams ended by the service, by gRPC status.",
		}, []string{"code"}),
		refusedCalls: newRefusedCalls(), delivery: map[topology.Cause]prometheus.Observer{},
	}
	delivery := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "isthmus_stream_delivery_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), // to 65 s
		Help: "From the moment that the service learns of a change until the message about it has left for a sidecar, by what changed.",
	}, []string{"change"})
	for _, cause := range topology.Causes() {
		m.delivery[cause] = delivery.WithLabelValues(string(cause))
	}
	instances := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "isthmus_stream_instances", Help: "Instances registered by streams, those of before a restart included.",
	}, func() float64 { return float64(s.registry.count.Load()) })
	var errs []error
	for _, c := range []prometheus.Collector{m.open, m.updates, m.bytes, m.entries, m.resumed, m.refused, instances, m.refusedCalls, delivery, (*sidecarVersions)(s.evidence)} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("stream: register metrics: %w", err)
	}
	return m, nil
}

// deliveryOf returns what to do once a message about a view has left, for one that changes a view
// that the client has; nil for others, of which nobody waits for a change.
func (w *watch) deliveryOf(view *catalog.View) func() {
	if w.sent == nil {
		return nil
	}
	cause, since, ok := w.s.topology.Origin(view.Revision)
	if !ok {
		return nil
	}
	return func() { w.s.metrics.delivery[cause].Observe(time.Since(since).Seconds()) }
}

// maxVersions is how many pairs of versions sidecars are counted by.
const maxVersions = 20

// sidecarVersions counts the sidecars of now by their versions, as a [prometheus.Collector].
type sidecarVersions evidence

var sidecarsDesc = prometheus.NewDesc("isthmus_stream_sidecars",
	"Sidecars connected to this replica, by the version of Isthmus in them and of what they run.", []string{"version", "runtime"}, nil)

// Describe implements [prometheus.Collector].
func (v *sidecarVersions) Describe(to chan<- *prometheus.Desc) { to <- sidecarsDesc }

// Collect implements [prometheus.Collector].
func (v *sidecarVersions) Collect(to chan<- prometheus.Metric) {
	type pair struct{ version, runtime string }
	count := map[pair]int{}
	for _, c := range (*evidence)(v).all() {
		count[pair{c.watch.hello.version, c.watch.hello.runtime}]++
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b pair) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.version, b.version), cmp.Compare(a.runtime, b.runtime))
	})
	others := 0
	for i, p := range most {
		if i >= maxVersions {
			others += count[p]
			continue
		}
		to <- prometheus.MustNewConstMetric(sidecarsDesc, prometheus.GaugeValue, float64(count[p]), p.version, p.runtime)
	}
	if others > 0 {
		to <- prometheus.MustNewConstMetric(sidecarsDesc, prometheus.GaugeValue, float64(others), "other", "other")
	}
}
