package resolverservice

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// metricsReceiver is a receiver of metrics by OTLP.
type metricsReceiver struct {
	metricspb.UnimplementedMetricsServiceServer
	exports chan *metricspb.ExportMetricsServiceRequest
	keys    chan []string
}

func (r *metricsReceiver) Export(ctx context.Context, m *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	select {
	case r.exports <- m:
		r.keys <- md.Get("x-api-key")
	default: // the test has all that it wants
	}
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

// TestMetricsGoToAReceiver has a service export its metrics by OpenTelemetry's variables.
func TestMetricsGoToAReceiver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &metricsReceiver{exports: make(chan *metricspb.ExportMetricsServiceRequest), keys: make(chan []string, 1)}
	server := grpc.NewServer()
	metricspb.RegisterMetricsServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for name, value := range map[string]string{
		"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://" + l.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=s3cret", "OTEL_METRIC_EXPORT_INTERVAL": "100",
	} {
		t.Setenv(name, value)
	}
	west := start(t, answering(t, "127.0.0.1:0", ""), nil)
	var c traffic.Counter
	for range 3 {
		c.Add(traffic.OK, 0)
	}
	counts := c.Read()
	report := &v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{{Callee: wireApp(orders), Cluster: "west", Traffic: counts.Wire()}}}
	if err := west.callReport(checkout, 1, report, time.Now()); err != nil {
		t.Fatal(err)
	}
	west.within("all metrics arrive", func() bool {
		var m *metricspb.ExportMetricsServiceRequest
		select {
		case m = <-r.exports:
		case <-time.After(time.Second):
			return false
		}
		keys := <-r.keys
		if len(keys) != 1 || keys[0] != "s3cret" {
			t.Fatalf("header %q", keys)
		}
		for _, rm := range m.GetResourceMetrics() {
			of := map[string]string{}
			for _, a := range rm.GetResource().GetAttributes() {
				of[a.GetKey()] = a.GetValue().GetStringValue()
			}
			if of["service.name"] != "isthmus" || of["k8s.cluster.name"] != "west" {
				t.Fatalf("resource %v", of)
			}
			var ready float64
			var answered uint64
			for _, sm := range rm.GetScopeMetrics() {
				for _, metric := range sm.GetMetrics() {
					switch metric.GetName() {
					case "isthmus_ready":
						ready = metric.GetGauge().GetDataPoints()[0].GetAsDouble()
					case "isthmus_call_duration_seconds":
						for _, p := range metric.GetExponentialHistogram().GetDataPoints() {
							answered += p.GetCount()
						}
					}
				}
			}
			if ready == 1 && answered == 3 {
				return true
			}
		}
		return false
	})
}

// TestMetricsAskForGRPC has a service that is to speak another protocol.
func TestMetricsAskForGRPC(t *testing.T) {
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	err := Run(t.Context(), answering(t, "127.0.0.1:0", ""), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL to grpc") {
		t.Errorf("%v", err)
	}
}
