package otlp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/sdk/metric"
)

// lastMetrics bounds the last export, at the end.
const lastMetrics = time.Second

// RunMetrics exports the metrics of the service of a cluster until ctx ends, if OTEL_METRICS_EXPORTER
// is otlp. Where to, and how often, are in OpenTelemetry's other variables. A receiver that is not
// reached is no error, and the log says so: the next export has all again. Like [New], it is for a
// program's main.
func RunMetrics(ctx context.Context, from prometheus.Gatherer, cluster string, log *slog.Logger) error {
	if !metricsEnabled() {
		<-ctx.Done()
		return nil
	}
	if protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol != "" && protocol != "grpc" {
		return fmt.Errorf("metrics: OTEL_EXPORTER_OTLP_PROTOCOL is %q; set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL to grpc, which is all that is spoken here", protocol)
	}
	exporter, err := otlpmetricgrpc.New(ctx)
	if err != nil {
		return fmt.Errorf("metrics: otlp: %w", err)
	}
	res, err := newResource(ctx, cluster)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	logErrors(log)
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(res))
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMetrics)
	defer cancel()
	if err := provider.Shutdown(last); err != nil {
		log.Warn("the last metrics are lost", "err", err)
	}
	return nil
}

// metricsEnabled tells whether metrics are to be exported.
func metricsEnabled() bool {
	exporters := strings.Split(os.Getenv("OTEL_METRICS_EXPORTER"), ",")
	return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") && slices.Contains(exporters, "otlp")
}
