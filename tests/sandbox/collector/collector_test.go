package collector_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a collector and a client of it.
func running(t *testing.T) (*collector.Collector, collectorpb.TraceServiceClient) {
	t.Helper()
	c, err := collector.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	conn, err := grpc.NewClient("passthrough:///"+c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c, collectorpb.NewTraceServiceClient(conn)
}

// spans are n spans of the trace with the given last byte.
func spans(trace byte, n int) *collectorpb.ExportTraceServiceRequest {
	all := make([]*tracepb.Span, n)
	for i := range all {
		all[i] = &tracepb.Span{
			TraceId: []byte{15: trace}, SpanId: binary.BigEndian.AppendUint64(nil, uint64(i+1)), Name: "span",
			Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "denied"},
			Attributes: []*commonpb.KeyValue{
				{Key: "text", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "x"}}},
				{Key: "number", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: 41}}},
				{Key: "flag", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}},
				{Key: "share", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.5}}},
			},
		}
	}
	return &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: all}}}}}
}

func TestSpansOfATrace(t *testing.T) {
	c, client := running(t)
	for trace := range byte(2) {
		if _, err := client.Export(t.Context(), spans(trace, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.Trace("")); n != 2 {
		t.Errorf("%d spans in all; want 2", n)
	}
	got := c.Trace("00000000000000000000000000000001")
	if len(got) != 1 {
		t.Fatalf("%d spans of the trace; want 1", len(got))
	}
	if s := got[0]; s.ID != "0000000000000001" || s.Parent != "" || !s.Failed || s.Message != "denied" {
		t.Errorf("span %+v", s)
	}
	for name, want := range map[string]string{"text": "x", "number": "41", "flag": "true", "share": "0.5"} {
		if got := got[0].Attributes[name]; got != want {
			t.Errorf("attribute %s is %q; want %q", name, got, want)
		}
	}
}

func TestWait(t *testing.T) {
	c, client := running(t)
	complete := func(s []collector.Span) bool { return len(s) >= 3 }
	done := make(chan error, 1)
	go func() {
		_, err := c.Wait(t.Context(), "", complete)
		done <- err
	}()
	for range 3 {
		select {
		case err := <-done:
			t.Fatalf("done too early: %v", err)
		default:
		}
		if _, err := client.Export(t.Context(), spans(1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	got, err := c.Wait(ctx, "", func([]collector.Span) bool { return false })
	if !errors.Is(err, context.DeadlineExceeded) || len(got) != 3 {
		t.Errorf("%d spans, %v; want the 3 that there are and the context's error", len(got), err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c, client := running(t)
	const batch, most = 5_000, 20_000
	for trace := range byte(most/batch + 2) {
		if _, err := client.Export(t.Context(), spans(trace, batch)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.Trace("")); n != most {
		t.Errorf("%d spans are kept; want %d", n, most)
	}
	if n := len(c.Trace("00000000000000000000000000000000")); n != 0 {
		t.Errorf("%d spans of the first trace are kept; want the oldest to go first", n)
	}
}
