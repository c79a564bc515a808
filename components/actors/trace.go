package actors

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/tracing"
)

// binaryHeader is how sidecars of Dapr hand the trace on to each other, in OpenCensus' binary form:
// https://github.com/census-instrumentation/opencensus-specs/blob/master/encodings/BinaryEncoding.md
const binaryHeader = "grpc-trace-bin"

// The parts of that form: a version, and three fields, each after its number.
const (
	binaryLength = 29
	atTraceID    = 2
	atSpanID     = 19
	atFlags      = 28
)

func spanFromBinary(b string) (_ trace.SpanContext) {
	if len(b) < binaryLength || b[0] != 0 || b[atTraceID-1] != 0 || b[atSpanID-1] != 1 || b[atFlags-1] != 2 {
		return trace.SpanContext{}
	}
	cfg := trace.SpanContextConfig{TraceFlags: trace.TraceFlags(b[atFlags]), Remote: true}
	copy(cfg.TraceID[:], b[atTraceID:])
	copy(cfg.SpanID[:], b[atSpanID:])
	return trace.NewSpanContext(cfg)
}

func binaryOf(s trace.SpanContext) string {
	b := make([]byte, binaryLength)
	traceID, spanID := s.TraceID(), s.SpanID()
	copy(b[atTraceID:], traceID[:])
	b[atSpanID-1] = 1
	copy(b[atSpanID:], spanID[:])
	b[atFlags-1] = 2
	b[atFlags] = byte(s.TraceFlags())
	return string(b)
}

// span is the bridge's of a call.
type span struct{ trace.Span }

// beginSpan begins the span of a call below its caller's, and has the trace go on.
func (b *Bridge) beginSpan(ctx context.Context, way direction, typ string) (context.Context, span) {
	if found := metadata.ValueFromIncomingContext(ctx, binaryHeader); len(found) > 0 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, spanFromBinary(found[0]))
	}
	ctx, s := b.tracer.Start(ctx, "actor "+string(way), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		tracing.OriginCluster.String(b.cfg.Cluster), attribute.String("isthmus.actor.type", typ)))
	if at := s.SpanContext(); at.IsValid() {
		ctx = metadata.AppendToOutgoingContext(ctx, binaryHeader, binaryOf(at))
	}
	return ctx, span{s}
}

func (s span) end(err error) {
	if err != nil {
		s.SetStatus(otelcodes.Error, status.Convert(err).Message())
	}
	s.End()
}
