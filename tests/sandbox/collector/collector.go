// Package collector is a small OTLP receiver that keeps spans in memory, for tests
// and for the demo, which draws a trace from it.
package collector

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// maxSpans bounds what is kept; the oldest go first.
const maxSpans = 20_000

// Span is a span that was received.
type Span struct {
	TraceID    string // in hex, as in traceparent
	ID         string
	Parent     string // empty for a root
	Name       string
	Start, End uint64 // nanoseconds since 1970
	Failed     bool
	Message    string            // of the status
	Attributes map[string]string // values as text
	Resource   map[string]string
	Events     []Event
}

// Event is one that a span has.
type Event struct {
	Name       string
	Attributes map[string]string
}

// Collector receives spans from its Run on.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer

	listener net.Listener
	mu       sync.Mutex
	spans    []Span
	changed  chan struct{} // closed at the next change
}

// Listen opens a listener, such as on "127.0.0.1:0". The caller runs [Collector.Run],
// which closes it.
func Listen(address string) (*Collector, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	return &Collector{listener: l, changed: make(chan struct{})}, nil
}

// Endpoint is the address that exporters send to.
func (c *Collector) Endpoint() string { return c.listener.Addr().String() }

// Run serves until ctx ends, when it returns nil.
func (c *Collector) Run(ctx context.Context) error {
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(c.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("collector: %w", err)
	}
	return nil
}

// Export takes in what an exporter sends.
func (c *Collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	var received []Span
	for _, rs := range req.GetResourceSpans() {
		res := texts(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				received = append(received, read(s, res))
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, received...)
	if extra := len(c.spans) - maxSpans; extra > 0 {
		c.spans = append([]Span(nil), c.spans[extra:]...)
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// Trace returns the spans received so far of one trace, or of all for "".
func (c *Collector) Trace(id string) []Span {
	spans, _ := c.follow(id)
	return spans
}

// Wait returns the spans of a trace, or of all for "", once complete says that they
// are, or what there is and the context's error.
func (c *Collector) Wait(ctx context.Context, id string, complete func([]Span) bool) ([]Span, error) {
	for {
		spans, changed := c.follow(id)
		if complete(spans) {
			return spans, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return spans, ctx.Err()
		}
	}
}

func (c *Collector) follow(id string) ([]Span, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var spans []Span
	for _, s := range c.spans {
		if id == "" || s.TraceID == id {
			spans = append(spans, s)
		}
	}
	return spans, c.changed
}

func read(s *tracepb.Span, res map[string]string) Span {
	var events []Event
	for _, e := range s.GetEvents() {
		events = append(events, Event{e.GetName(), texts(e.GetAttributes())})
	}
	return Span{
		TraceID: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Start: s.GetStartTimeUnixNano(), End: s.GetEndTimeUnixNano(),
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Message: s.GetStatus().GetMessage(),
		Attributes: texts(s.GetAttributes()), Resource: res, Events: events,
	}
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	m := make(map[string]string, len(attributes))
	for _, a := range attributes {
		m[a.GetKey()] = text(a.GetValue())
	}
	return m
}

func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	default:
		return fmt.Sprint(v)
	}
}
