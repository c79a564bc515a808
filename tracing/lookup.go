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

// Lookups makes the spans of lookups. The nil Lookups makes none.
type Lookups struct {
	cluster attribute.KeyValue
	parent  func(context.Context) trace.Span
}

// NewLookups makes spans that say they are from cluster. spanFromContext finds the
// span that a lookup is part of and may return nil: [trace.SpanFromContext], or
// daprd's own function, since daprd keeps its span under a key of its own.
func NewLookups(cluster string, spanFromContext func(context.Context) trace.Span) *Lookups {
	return &Lookups{cluster: OriginCluster.String(cluster), parent: spanFromContext}
}

// Start begins the span of a lookup of app by caller. Unless the lookup is part of a
// sampled trace that is being recorded there is none, and Start costs what it takes
// to see that: it allocates nothing.
func (l *Lookups) Start(ctx context.Context, caller, app catalog.App) Lookup {
	if l == nil {
		return Lookup{}
	}
	parent := l.parent(ctx)
	if parent == nil || !parent.IsRecording() || !parent.SpanContext().IsSampled() {
		return Lookup{}
	}
	return l.start(ctx, parent, caller, app)
}

// start asks the parent for the tracer, so that a span leaves with its parent's, by
// whatever provider that came from.
func (l *Lookups) start(ctx context.Context, parent trace.Span, caller, app catalog.App) Lookup {
	_, span := parent.TracerProvider().Tracer(scope).Start(trace.ContextWithSpan(ctx, parent), lookupSpan,
		trace.WithAttributes(l.cluster, Caller.String(caller.String()), App.String(app.String())))
	return Lookup{span}
}

// Lookup is the span of one lookup. The zero Lookup is none.
type Lookup struct {
	span trace.Span
}

// Recording tells whether there is a span. Only then is it worth putting a decision
// together.
func (s Lookup) Recording() bool { return s.span != nil }

// End records how the lookup ended and ends the span. A refusal counts as an error.
func (s Lookup) End(d *catalog.Decision) {
	if s.span == nil {
		return
	}
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
