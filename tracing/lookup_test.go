package tracing_test

import (
	"context"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tracing"
)

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
)

// daprdKey is a context key that is not OpenTelemetry's, as daprd has one.
type daprdKey struct{}

func daprdSpan(ctx context.Context) trace.Span {
	span, _ := ctx.Value(daprdKey{}).(trace.Span)
	return span
}

// recorded is a provider whose spans a test can read.
func recorded(t *testing.T, sampler sdktrace.Sampler) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sampler))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return provider, exporter
}

// attributes are a span's, as text.
func attributes(s tracetest.SpanStub) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

func TestLookupSpan(t *testing.T) {
	tests := []struct {
		name     string
		decision catalog.Decision
		status   codes.Code
		message  string
		want     map[string]string // beside those that every span has
	}{
		{
			name: "an instance in this cluster",
			decision: catalog.Decision{Outcome: catalog.OK, Address: "10.0.0.7:50002", Cluster: "west",
				Rule: "AppEndpoints shop/checkout, line 7", Revision: 41, Reason: "local"},
			want: map[string]string{"isthmus.outcome": "ok", "isthmus.address": "10.0.0.7:50002", "isthmus.cluster": "west",
				"isthmus.rule": "AppEndpoints shop/checkout, line 7", "isthmus.revision": "41"},
		},
		{
			name: "another cluster's gateway",
			decision: catalog.Decision{Outcome: catalog.OK, Address: "orders.shop.east.isthmus.internal:15443", Cluster: "east",
				Gateway: "orders.shop.east.isthmus.internal", Rule: "AppEndpoints shop/checkout, line 7", Revision: 42},
			want: map[string]string{"isthmus.outcome": "ok", "isthmus.address": "orders.shop.east.isthmus.internal:15443", "isthmus.cluster": "east",
				"isthmus.gateway": "orders.shop.east.isthmus.internal", "isthmus.rule": "AppEndpoints shop/checkout, line 7", "isthmus.revision": "42"},
		},
		{
			name:     "denied",
			decision: catalog.Decision{Outcome: catalog.Denied, Rule: "default selection none", Revision: 3, Reason: "the selection does not hold shop/orders"},
			status:   codes.Error, message: "the selection does not hold shop/orders",
			want: map[string]string{"isthmus.outcome": "denied", "isthmus.rule": "default selection none", "isthmus.revision": "3"},
		},
		{
			name:     "no view yet",
			decision: catalog.Decision{Outcome: catalog.NotReady, Reason: "no view after 2s"},
			status:   codes.Error, message: "no view after 2s",
			want: map[string]string{"isthmus.outcome": "not ready", "isthmus.revision": "0"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			provider, exporter := recorded(t, sdktrace.AlwaysSample())
			_, parent := provider.Tracer("daprd").Start(t.Context(), "CallLocal")
			ctx := context.WithValue(t.Context(), daprdKey{}, parent)

			lookups := tracing.NewLookups("west", checkout, daprdSpan)
			found := lookups.Parent(ctx)
			if found == nil {
				t.Fatal("no span in a sampled trace")
			}
			lookup := lookups.Start(ctx, found, orders)
			lookup.End(&tt.decision)

			spans := exporter.GetSpans()
			if len(spans) != 1 {
				t.Fatalf("%d spans; want one", len(spans))
			}
			got := spans[0]
			if got.Name != "isthmus.lookup" || got.Parent.SpanID() != parent.SpanContext().SpanID() || got.SpanContext.TraceID() != parent.SpanContext().TraceID() {
				t.Errorf("span %q of parent %s; want isthmus.lookup of daprd's span %s", got.Name, got.Parent.SpanID(), parent.SpanContext().SpanID())
			}
			if got.Status.Code != tt.status || got.Status.Description != tt.message {
				t.Errorf("status %v; want %v %q", got.Status, tt.status, tt.message)
			}
			tt.want["k8s.cluster.name"], tt.want["isthmus.caller"], tt.want["isthmus.app"] = "west", "shop/checkout", "shop/orders"
			if a := attributes(got); !maps.Equal(a, tt.want) {
				t.Errorf("attributes %v\nwant %v", a, tt.want)
			}
		})
	}
}

// unsampled are the contexts in which a lookup has no span.
func unsampled(t testing.TB) map[string]context.Context {
	dropping := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	_, dropped := dropping.Tracer("daprd").Start(context.Background(), "CallLocal")
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	ended := sdktrace.NewTracerProvider()
	_, over := ended.Tracer("daprd").Start(context.Background(), "CallLocal")
	over.End()
	_, nowhere := noop.NewTracerProvider().Tracer("").Start(context.Background(), "CallLocal")
	with := func(span trace.Span) context.Context {
		return context.WithValue(context.Background(), daprdKey{}, span)
	}
	t.Cleanup(func() {
		_ = dropping.Shutdown(context.Background())
		_ = ended.Shutdown(context.Background())
	})
	return map[string]context.Context{
		"no trace":                      context.Background(),
		"a trace that is not sampled":   with(dropped),
		"tracing switched off":          with(nowhere),
		"a span that has ended":         with(over),
		"a sampled span in a neighbour": with(trace.SpanFromContext(trace.ContextWithRemoteSpanContext(context.Background(), remote))),
	}
}

func TestUnsampledLookupCostsNothing(t *testing.T) {
	lookups := tracing.NewLookups("west", checkout, daprdSpan)
	for name, ctx := range unsampled(t) {
		t.Run(name, func(t *testing.T) {
			if lookups.Parent(ctx) != nil {
				t.Error("there is a span")
			}
			if n := testing.AllocsPerRun(1000, func() { lookups.Parent(ctx) }); n != 0 {
				t.Errorf("%v allocations; want none", n)
			}
		})
	}
	var none *tracing.Lookups
	if none.Parent(t.Context()) != nil {
		t.Error("the nil Lookups makes spans")
	}
}

func BenchmarkUnsampledLookup(b *testing.B) {
	none := func(context.Context) trace.Span { return nil }
	dropped := daprdSpan(unsampled(b)["a trace that is not sampled"])
	b.Run("the search for a span alone", func(b *testing.B) {
		find := none
		for b.Loop() {
			if find(context.Background()) != nil {
				b.Fatal("there is a span")
			}
		}
	})
	for name, find := range map[string]func(context.Context) trace.Span{
		"no trace":    none,
		"not sampled": func(context.Context) trace.Span { return dropped },
	} {
		b.Run(name, func(b *testing.B) {
			lookups := tracing.NewLookups("west", checkout, find)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if lookups.Parent(ctx) != nil {
					b.Fatal("there is a span")
				}
			}
		})
	}
}
