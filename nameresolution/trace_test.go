package nameresolution

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/tracing"
)

func TestALookupInASampledTraceHasASpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	// daprd keeps its span where OpenTelemetry does not find it.
	_, call := provider.Tracer("daprd").Start(context.Background(), "CallLocal")
	r, apps := following(3, 2, func(context.Context) trace.Span { return call })

	address, err := r.ResolveID(t.Context(), apps[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ResolveID(t.Context(), ledger); err == nil {
		t.Error("ledger is not in the selection")
	}
	if own, err := r.ResolveID(t.Context(), checkout); own != "10.0.0.9:50001" || err != nil {
		t.Errorf("its own id: %s, %v", own, err)
	}
	spans := recorder.Ended()
	if len(spans) != 3 {
		t.Fatalf("%d spans of 3 lookups", len(spans))
	}
	for i, want := range []map[attribute.Key]string{
		{tracing.Outcome: "ok", tracing.Address: address, tracing.Cluster: "west"},
		{tracing.Outcome: "denied"},
		{tracing.Outcome: "ok", tracing.Address: "10.0.0.9:50001", tracing.Cluster: "west"},
	} {
		has := map[attribute.Key]string{}
		for _, a := range spans[i].Attributes() {
			has[a.Key] = a.Value.AsString()
		}
		for key, value := range want {
			if has[key] != value {
				t.Errorf("span %d: %s is %q, want %q", i, key, has[key], value)
			}
		}
		if spans[i].Parent().SpanID() != call.SpanContext().SpanID() {
			t.Errorf("span %d is no child of daprd's", i)
		}
	}
}
