package tracing_test

import (
	"context"
	"net"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/isthmus-mesh/isthmus/tracing"
)

// connect runs a gRPC server of a cluster and connects a client of another.
func connect(t *testing.T, server grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(server)
	reflection.Register(g)
	healthpb.RegisterHealthServer(g, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.GracefulStop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return conn
}

// talk is one call, from its first message to its end.
func talk(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Fatal("the stream goes on")
	}
}

func byKind(spans tracetest.SpanStubs, kind trace.SpanKind) tracetest.SpanStub {
	for _, s := range spans {
		if s.SpanKind == kind {
			return s
		}
	}
	return tracetest.SpanStub{}
}

func TestOneTraceThroughGRPC(t *testing.T) {
	west, fromWest := recorded(t, sdktrace.AlwaysSample())
	east, fromEast := recorded(t, sdktrace.ParentBased(sdktrace.NeverSample()))
	t.Run("call", func(t *testing.T) {
		conn := connect(t, tracing.ServerOption(east, "east"), tracing.DialOption(west, "west"))
		ctx, root := west.Tracer("test").Start(t.Context(), "root")
		talk(ctx, t, conn)
		root.End()
	})
	client, server := byKind(fromWest.GetSpans(), trace.SpanKindClient), byKind(fromEast.GetSpans(), trace.SpanKindServer)
	if client.Name == "" || server.Name == "" {
		t.Fatalf("client %q, server %q; want a span of each", client.Name, server.Name)
	}
	if server.Parent.SpanID() != client.SpanContext.SpanID() || server.SpanContext.TraceID() != client.SpanContext.TraceID() {
		t.Errorf("the server's span is no child of the client's")
	}
	if got := attributes(client)["k8s.cluster.name"]; got != "west" {
		t.Errorf("the client's span is from %q; want west", got)
	}
	if got := attributes(server)["k8s.cluster.name"]; got != "east" {
		t.Errorf("the server's span is from %q; want east", got)
	}
}

func TestTraceparentIsTaken(t *testing.T) {
	east, fromEast := recorded(t, sdktrace.ParentBased(sdktrace.NeverSample()))
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	t.Run("calls", func(t *testing.T) {
		conn := connect(t, tracing.ServerOption(east, "east"))
		talk(t.Context(), t, conn) // not sampled: it has no parent
		talk(metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent), t, conn)
	})
	spans := fromEast.GetSpans()
	if len(spans) != 1 || spans[0].SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || spans[0].Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("spans %v; want one, of %s", spans, traceparent)
	}
}

func TestHealthChecksAreNotTraced(t *testing.T) {
	east, fromEast := recorded(t, sdktrace.AlwaysSample())
	t.Run("call", func(t *testing.T) {
		conn := connect(t, tracing.ServerOption(east, "east"), tracing.DialOption(east, "east"))
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	})
	if spans := fromEast.GetSpans(); len(spans) != 0 {
		t.Errorf("%d spans; want none", len(spans))
	}
}
