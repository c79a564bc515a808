package stream

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of the streams.
type metrics struct {
	open    prometheus.Gauge
	updates prometheus.Counter
	bytes   prometheus.Counter
	entries prometheus.Counter
	resumed prometheus.Counter
	refused *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, r *registry) (*metrics, error) {
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
	}
	instances := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "isthmus_stream_instances", Help: "Instances registered by streams, those of before a restart included.",
	}, func() float64 { return float64(r.count.Load()) })
	var errs []error
	for _, c := range []prometheus.Collector{m.open, m.updates, m.bytes, m.entries, m.resumed, m.refused, instances} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("stream: register metrics: %w", err)
	}
	return m, nil
}
