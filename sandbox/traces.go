package sandbox

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/live"
)

// maxSpans bounds what a receiver keeps; the oldest go first.
const maxSpans = 100_000

// Span is a span as a receiver got it. IDs are in hex; values are text.
type Span struct {
	Trace, ID, Parent string
	Name, Kind        string
	Service           string // the resource's service.name
	Cluster           string // the resource's k8s.cluster.name
	Start, End        time.Time
	Failed            bool
	Status            string
	Resource          map[string]string
	Attributes        map[string]string
}

// Traces is an OTLP/gRPC receiver in this process.
type Traces struct {
	Address string // host:port

	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []Span
	count live.Value[int] // how many have ever arrived; wakes those who wait
	total int
}

// Traces starts a receiver for traces on a free port.
func (s *Sandbox) Traces() (*Traces, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a receiver for traces: %w", err)
	}
	t := &Traces{Address: lis.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(lis); err != nil {
			s.log.Error("receiver for traces stopped serving", "err", err)
		}
	}()
	s.onClose(func() {
		server.Stop()
		<-served
	})
	return t, nil
}

// Export takes spans from an exporter. It is OTLP's, and not for other callers.
func (t *Traces) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	var got []Span
	for _, resource := range req.GetResourceSpans() {
		of := texts(resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				got = append(got, newSpan(of, span))
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, got...)
	t.spans = slices.Delete(t.spans, 0, max(0, len(t.spans)-maxSpans))
	t.total += len(got)
	t.count.Store(t.total)
	return &collector.ExportTraceServiceResponse{}, nil
}

func newSpan(resource map[string]string, s *trace.Span) Span {
	return Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Kind: s.GetKind().String(),
		Service: resource["service.name"], Cluster: resource["k8s.cluster.name"],
		Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR, Status: s.GetStatus().GetMessage(),
		Resource: resource, Attributes: texts(s.GetAttributes()),
	}
}

func texts(attributes []*common.KeyValue) map[string]string {
	m := make(map[string]string, len(attributes))
	for _, a := range attributes {
		m[a.GetKey()] = text(a.GetValue())
	}
	return m
}

func text(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *common.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *common.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	default:
		return v.(fmt.Stringer).String()
	}
}

// Trace returns the spans of a trace so far, by their start. An empty id means all.
func (t *Traces) Trace(id string) []Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []Span
	for _, s := range t.spans {
		if id == "" || s.Trace == id {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return found
}

// Await waits until enough says so of the spans of a trace and returns them. When ctx
// ends first it returns those there are, with an error.
func (t *Traces) Await(ctx context.Context, id string, enough func([]Span) bool) ([]Span, error) {
	for {
		_, _, changed := t.count.Follow()
		spans := t.Trace(id)
		if enough(spans) {
			return spans, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return spans, fmt.Errorf("wait for the spans of trace %s, with %d so far: %w", id, len(spans), ctx.Err())
		}
	}
}
