// Package otlp exports the spans and metrics of a program of Isthmus' own by OTLP over gRPC. The
// Dapr component has no use for it: its spans leave with daprd's.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/tracing"
)

// Provider makes tracers whose spans are exported, or dropped when nothing says
// where to. It needs [Provider.Shutdown].
type Provider struct {
	trace.TracerProvider
	sdk      *sdktrace.TracerProvider // nil when spans are dropped
	exporter sdktrace.SpanExporter
}

// New sets up the export of spans of the service of a cluster. What the
// configuration leaves open comes from OpenTelemetry's variables, OTEL_*. A receiver
// that can't be reached is no error: spans wait, then are dropped, and the log says
// so. New is for a program's main: it makes log the place of OpenTelemetry's own
// errors in the whole process.
func New(ctx context.Context, cfg Config, cluster string, log *slog.Logger) (*Provider, error) {
	if err := cfg.Check(); err != nil {
		return nil, strict.Below("tracing", err)
	}
	if !enabled(cfg) {
		return &Provider{TracerProvider: noop.NewTracerProvider()}, nil
	}
	exporter, err := newExporter(ctx, cfg.OTLP)
	if err != nil {
		return nil, fmt.Errorf("tracing: otlp: %w", err)
	}
	res, err := newResource(ctx, cluster)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tracing: %w", err), exporter.Shutdown(ctx))
	}
	logErrors(log)
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)}
	if cfg.SampleRatio != nil {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(*cfg.SampleRatio))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	return &Provider{provider, provider, exporter}, nil
}

// logErrors has OpenTelemetry's own errors logged.
func logErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("tracing: spans or metrics may be lost", "err", err)
	}))
}

// Shutdown sends the rest, until ctx ends, and stops.
func (p *Provider) Shutdown(ctx context.Context) error {
	if p.sdk == nil {
		return nil
	}
	err := p.sdk.Shutdown(ctx)
	if err == nil {
		return nil
	}
	// The SDK goes on trying in the background. Stopping the exporter ends that; its
	// error is that of ctx once more.
	_ = p.exporter.Shutdown(ctx)
	return fmt.Errorf("tracing: send the last spans: %w", err)
}

// enabled tells whether anything says where spans go.
func enabled(cfg Config) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if cfg.OTLP != nil {
		return true
	}
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	return endpoint != "" && os.Getenv("OTEL_TRACES_EXPORTER") != "none"
}

// newExporter connects in the background.
func newExporter(ctx context.Context, e *Exporter) (sdktrace.SpanExporter, error) {
	if e == nil {
		return otlptracegrpc.New(ctx)
	}
	endpoint, err := e.url()
	if err != nil {
		return nil, err
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}
	if e.HeadersFile != "" {
		headers, err := settings.Follow(0, e.readHeaders)
		if err != nil {
			return nil, err
		}
		options = append(options, otlptracegrpc.WithDialOption(grpc.WithPerRPCCredentials(sent{headers})))
	}
	return otlptracegrpc.New(ctx, options...)
}

// sent are the headers that each request has.
type sent struct{ *settings.Followed[*headers] }

// GetRequestMetadata is that of credentials.PerRPCCredentials.
func (s sent) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return s.Get().pairs, nil
}

// RequireTransportSecurity is that of credentials.PerRPCCredentials: endpoint says whether there is
// TLS.
func (sent) RequireTransportSecurity() bool { return false }

// newResource says who makes the spans. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES come last, so they win.
func newResource(ctx context.Context, cluster string) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(
			attribute.String("service.name", "isthmus"),
			attribute.String("service.version", version()),
			tracing.OriginCluster.String(cluster),
		),
		resource.WithFromEnv(),
	)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
