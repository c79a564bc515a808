package actors

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// direction is the way of a call through a bridge.
type direction string

const (
	outward direction = "out" // from an app here to another cluster
	inward  direction = "in"  // from another cluster to an actor here
)

type metrics struct {
	bridge   *Bridge
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newMetrics(b *Bridge) *metrics {
	m := &metrics{bridge: b, registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isthmus_actor_calls_total", Help: "Calls of actors that the bridge passed on, or refused."}, []string{"direction", "type", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "isthmus_actor_call_duration_seconds", Help: "How long calls of actors took, with the actor's turn.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100}, []string{"direction"}),
	}
	m.registry.MustRegister(m.calls, m.took,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "isthmus_actor_types", Help: "Actor types of other clusters that the bridge hosts."}, func() float64 {
			return float64(len(b.placement.wanted()))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "isthmus_actor_bridge_ready", Help: "Whether calls can be passed on, as /readyz says."}, func() float64 {
			if b.ready() == nil {
				return 1
			}
			return 0
		}),
	)
	return m
}

// ended counts a call. The type is a label where objects name it: a caller may write any.
func (m *metrics) ended(way direction, typ string, err error, took time.Duration) {
	if view, _ := m.bridge.view.Load(); view == nil || way == outward && view.Import(typ) == nil || way == inward && view.Owns(typ) == nil {
		typ = ""
	}
	outcome := "ok"
	if err != nil {
		outcome = "failed"
		for _, o := range []catalog.Outcome{catalog.Denied, catalog.Stale, catalog.Unavailable, catalog.NotFound} {
			if strings.HasPrefix(status.Convert(err).Message(), errorName(o)) {
				outcome = o.String()
			}
		}
	}
	m.calls.WithLabelValues(string(way), typ, outcome).Inc()
	m.took.WithLabelValues(string(way)).Observe(took.Seconds())
}

// ready is why calls can't be passed on yet; nil: they can.
func (b *Bridge) ready() error {
	if _, known := b.view.Load(); !known {
		return errors.New("the resolver service has not answered yet")
	}
	if err := b.identity.Ready(); err != nil {
		return err
	}
	if err, known := b.placement.problem.Load(); !known {
		return errors.New("the placement service has not answered yet")
	} else if err != nil {
		return fmt.Errorf("the placement service is not connected: %w", err)
	}
	return nil
}

// observe serves metrics and health until ctx ends.
func (b *Bridge) observe(ctx context.Context) error {
	if b.cfg.Metrics == noMetrics {
		return nil
	}
	listener, err := net.Listen("tcp", b.cfg.Metrics)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w; name another address in metrics, or off", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(b.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := b.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
