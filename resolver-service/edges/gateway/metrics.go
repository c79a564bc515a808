package gateway

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// metrics are a gateway's own; docs/reference/gateway.md says what they mean.
type metrics struct {
	open     atomic.Int64
	hellos   atomic.Int64
	accepted prometheus.Counter
	retries  prometheus.Counter
	refusals *prometheus.CounterVec

	instances prometheus.Counter
}

const (
	metricSpace  = "isthmus"
	metricSystem = "gateway"
)

// newMetrics registers a gateway's metrics, unless there is nowhere to.
func newMetrics(cfg *Config, e *trafficByExport, t *exportTraffic) (*metrics, error) {
	m := &metrics{
		accepted:  prometheus.NewCounter(prometheus.CounterOpts(named("connections_accepted_total", "Connections accepted, those refused later included."))),
		retries:   prometheus.NewCounter(prometheus.CounterOpts(named("instance_retries_total", "Further instances tried because one could not be reached."))),
		instances: prometheus.NewCounter(prometheus.CounterOpts(named("instances_refused_total", "Instances not connected to because their address is not allowed."))),
		refusals:  prometheus.NewCounterVec(prometheus.CounterOpts(named("refusals_total", "Connections refused, and accepts that failed, by reason.")), []string{"reason"}),
	}
	if cfg.Metrics == nil {
		return m, nil
	}
	for _, c := range m.collectors(cfg, e, t) {
		if err := cfg.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("gateway: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) collectors(cfg *Config, e *trafficByExport, t *exportTraffic) []prometheus.Collector {
	bytes := func(direction string, of func(*relay.Traffic) *atomic.Uint64) prometheus.Collector {
		o := named("bytes_total", "Bytes passed on after the first flight of a connection, by direction.")
		o.ConstLabels = prometheus.Labels{"direction": direction}
		return prometheus.NewCounterFunc(prometheus.CounterOpts(o), func() float64 { return float64(e.sum(of)) })
	}
	tunnelled := func(direction string, of func(*relay.Traffic) *atomic.Uint64) prometheus.Collector {
		o := named("tunnelled_bytes_total", "Bytes passed on to and from apps of clusters that dial this one, by direction.")
		o.ConstLabels = prometheus.Labels{"direction": direction}
		return prometheus.NewCounterFunc(prometheus.CounterOpts(o), func() float64 { return float64(of(&t.Traffic).Load()) })
	}
	gauge := func(name, help string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(named(name, help)), func() float64 { return float64(n.Load()) })
	}
	return []prometheus.Collector{
		gauge("tunnelled_open", "Connections open now to apps of clusters that dial this one.", &t.open),
		tunnelled("to_backend", toBackend),
		tunnelled("to_client", toClient),
		gauge("connections_open", "Connections open now, half-open ones included.", &m.open),
		gauge("hellos_pending", "Connections open now that have yet to name an app.", &m.hellos),
		bytes("to_backend", toBackend),
		bytes("to_client", toClient),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(named("connections_max", "Connections to apps that may be open at once.")), func() float64 { return float64(cfg.MaxConnections) }), e,
		m.accepted, m.retries, m.refusals, m.instances,
	}
}

func named(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: metricSpace, Subsystem: metricSystem, Name: name, Help: help}
}
