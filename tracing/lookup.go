package tracing

import (
	"context"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// lookupSpan is the name of a lookup's span.
const lookupSpan = "isthmus.lookup"

// Lookups makes the spans of one caller's lookups. The nil Lookups makes none.
type Lookups struct {
	parent          func(context.Context) trace.Span
	cluster, caller attribute.KeyValue
}

// NewLookups makes spans that say they are from cluster and of lookups by caller.
// spanFromContext finds the span that a lookup is part of and may return nil:
// [trace.SpanFromContext], or daprd's own function, since daprd keeps its span under
// a key of its own.
func NewLookups(cluster string, caller catalog.App, spanFromContext func(context.Context) trace.Span) *Lookups {
	return &Lookups{parent: spanFromContext, cluster: OriginCluster.String(cluster), caller: Caller.String(caller.String())}
}

// Parent is the span that a lookup is part of, if that is to have one: the trace is sampled and
// being recorded. Otherwise it is nil, and cheap: Parent allocates nothing.
func (l *Lookups) Parent(ctx context.Context) trace.Span {
	if l == nil {
		return nil
	}
	if parent := l.parent(ctx); parent != nil && parent.IsRecording() && parent.SpanContext().IsSampled() {
		return parent
	}
	return nil
}

// Start begins the span of a lookup of app below what [Lookups.Parent] found. It asks the
// parent for the tracer, so that a span leaves with its parent's, by whatever provider that
// came from.
func (l *Lookups) Start(ctx context.Context, parent trace.Span, app catalog.App) Lookup {
	_, span := parent.TracerProvider().Tracer(scope).Start(trace.ContextWithSpan(ctx, parent), lookupSpan,
		trace.WithAttributes(l.cluster, l.caller, App.String(app.String())))
	return Lookup{span}
}

// Lookup is the span of one lookup.
type Lookup struct {
	span trace.Span
}

// End records how the lookup ended and ends the span. A refusal counts as an error.
func (s Lookup) End(d *catalog.Decision) {
	attributes := make([]attribute.KeyValue, 0, 6)
	attributes = append(attributes, Outcome.String(d.Outcome.String()), Revision.Int64(int64(min(d.Revision, math.MaxInt64))))
	for _, a := range []attribute.KeyValue{Address.String(d.Address), Cluster.String(d.Cluster), Gateway.String(d.Gateway), Rule.String(d.Rule)} {
		if a.Value.AsString() != "" {
			attributes = append(attributes, a)
		}
	}
	s.span.SetAttributes(attributes...)
	if d.Outcome != catalog.OK {
		s.span.SetStatus(codes.Error, d.Reason)
	}
	s.span.End()
}
