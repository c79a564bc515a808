package tracing

import (
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// ServerOption has a gRPC server take W3C trace context from its callers and make a
// span for each call that says it is from cluster.
func ServerOption(provider trace.TracerProvider, cluster string) grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(options(provider, cluster)...))
}

// DialOption has a gRPC client hand W3C trace context on and make a span for each
// call that says it is from cluster.
func DialOption(provider trace.TracerProvider, cluster string) grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(options(provider, cluster)...))
}

// options leave nothing to OpenTelemetry's globals, which inside daprd are daprd's.
func options(provider trace.TracerProvider, cluster string) []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(provider),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithPropagators(Propagator()),
		otelgrpc.WithSpanAttributes(OriginCluster.String(cluster)),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return !untraced(info.FullMethodName) }),
	}
}

// untraced tells which calls make no span: health checks, and the streams that live
// as long as a sidecar or a peer does.
func untraced(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || method == pb.Resolver_Watch_FullMethodName || method == pb.Peering_Exports_FullMethodName
}

// Propagator reads and writes W3C trace context and baggage.
func Propagator() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}
