package otlp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a running collector.
func receiver(t *testing.T) *collector.Collector {
	t.Helper()
	c, err := collector.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// clearEnv keeps the variables of whoever runs the test out of it.
func clearEnv(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

// send makes one span per parent context and returns what the collector then has.
func send(t *testing.T, c *collector.Collector, cfg otlp.Config, parents ...context.Context) []collector.Span {
	t.Helper()
	p, err := otlp.New(t.Context(), cfg, "west", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i, ctx := range parents {
		_, span := p.Tracer("test").Start(ctx, fmt.Sprint("span ", i))
		span.End()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	return c.Trace("")
}

func ratio(r float64) *float64 { return &r }

func TestSpansArrive(t *testing.T) {
	clearEnv(t)
	c := receiver(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	spans := send(t, c, otlp.Config{OTLP: &otlp.Exporter{Endpoint: c.Endpoint()}, SampleRatio: ratio(1)}, t.Context())
	if len(spans) != 1 || spans[0].Name != "span 0" || spans[0].End < spans[0].Start || len(spans[0].TraceID) != 32 {
		t.Fatalf("spans %+v; want one", spans)
	}
	for name, want := range map[string]string{"service.name": "isthmus", "k8s.cluster.name": "west", "deployment.environment.name": "test", "telemetry.sdk.language": "go"} {
		if got := spans[0].Resource[name]; got != want {
			t.Errorf("resource: %s is %q; want %q", name, got, want)
		}
	}
}

func TestSampling(t *testing.T) {
	remote := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(
			trace.SpanContextConfig{TraceID: trace.TraceID{0xff, 15: 0xff}, SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true}))
	}
	begun, sampled, dropped := context.Background(), remote(trace.FlagsSampled), remote(0)
	tests := []struct {
		name  string
		ratio *float64
		env   string
		want  int // of: begun here, sampled elsewhere, not sampled elsewhere
	}{
		{"all", ratio(1), "", 2},
		{"none begun here", ratio(0), "", 1},
		{"nothing said", nil, "", 2},
		{"by the environment", nil, "always_off", 0},
		{"the configuration goes first", ratio(1), "always_off", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clearEnv(t)
			if tt.env != "" {
				t.Setenv("OTEL_TRACES_SAMPLER", tt.env)
			}
			c := receiver(t)
			spans := send(t, c, otlp.Config{OTLP: &otlp.Exporter{Endpoint: "http://" + c.Endpoint()}, SampleRatio: tt.ratio}, begun, sampled, dropped)
			if len(spans) != tt.want {
				t.Errorf("%d spans; want %d", len(spans), tt.want)
			}
		})
	}
}

func TestEnvironmentAlone(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string // %s is the collector
		cfg  bool
		want int
	}{
		{name: "nothing", want: 0},
		{name: "endpoint", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://%s"}, want: 1},
		{name: "endpoint for traces", env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://%s"}, want: 1},
		{name: "no exporter", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://%s", "OTEL_TRACES_EXPORTER": "none"}, want: 0},
		{name: "configured", cfg: true, env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, want: 1},
		{name: "switched off", cfg: true, env: map[string]string{"OTEL_SDK_DISABLED": "true"}, want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clearEnv(t)
			c := receiver(t)
			for name, value := range tt.env {
				t.Setenv(name, strings.ReplaceAll(value, "%s", c.Endpoint()))
			}
			var cfg otlp.Config
			if tt.cfg {
				cfg.OTLP = &otlp.Exporter{Endpoint: c.Endpoint()}
			}
			if spans := send(t, c, cfg, t.Context()); len(spans) != tt.want {
				t.Errorf("%d spans; want %d", len(spans), tt.want)
			}
		})
	}
}

// keyed is a receiver that remembers a header.
type keyed struct {
	collectorpb.UnimplementedTraceServiceServer
	keys chan []string
}

func (k *keyed) Export(ctx context.Context, _ *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	k.keys <- md.Get("x-api-key")
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func TestHeadersFile(t *testing.T) {
	clearEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &keyed{keys: make(chan []string, 1)}
	g := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(g, k)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	defer func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("# for the receiver\n\nX-API-Key = s=cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := otlp.New(t.Context(), otlp.Config{OTLP: &otlp.Exporter{Endpoint: l.Addr().String(), HeadersFile: file}}, "west", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "span")
	span.End()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-k.keys; len(got) != 1 || got[0] != "s=cret" {
		t.Errorf("header %q; want s=cret", got)
	}
}

func TestBadHeadersFile(t *testing.T) {
	clearEnv(t)
	file := filepath.Join(t.TempDir(), "headers")
	for text, want := range map[string]string{
		"X-API-Key: hunter2\n":     "line 1: want name=value",
		"a=b\nhunter2\n":           "line 2: want name=value",
		"=hunter2":                 "line 1: want name=value",
		"x api key=hunter2":        "line 1: want name=value",
		"\n\n# x\nname: a=hunter2": "line 4: want name=value",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := otlp.New(t.Context(), otlp.Config{OTLP: &otlp.Exporter{Endpoint: "127.0.0.1:1", HeadersFile: file}}, "west", slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error %v; want one with %q and without the secret", text, err, want)
		}
	}
	_, err := otlp.New(t.Context(), otlp.Config{OTLP: &otlp.Exporter{Endpoint: "127.0.0.1:1", HeadersFile: "/nowhere/headers"}}, "west", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "headersFile: open /nowhere/headers") {
		t.Errorf("error %v; want one that names the file", err)
	}
}

// A receiver that is away holds up neither start nor end.
func TestReceiverIsAway(t *testing.T) {
	clearEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var log logged.Buffer // the exporter tells of its last failure after the end, too
	p, err := otlp.New(t.Context(), otlp.Config{OTLP: &otlp.Exporter{Endpoint: address}}, "west", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "span")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = p.Shutdown(ctx)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("the end took %s", took)
	}
	if err == nil || !strings.Contains(err.Error(), "tracing: send the last spans") {
		t.Errorf("error %v; want it to say that spans were lost", err)
	}
	otel.Handle(fmt.Errorf("an error of OpenTelemetry's own"))
	if !strings.Contains(log.String(), "an error of OpenTelemetry's own") {
		t.Errorf("log %q lacks OpenTelemetry's errors", log.String())
	}
}

func TestConfigCheck(t *testing.T) {
	at := func(endpoint string) otlp.Config { return otlp.Config{OTLP: &otlp.Exporter{Endpoint: endpoint}} }
	nan := 0.0
	nan /= nan
	tests := []struct {
		cfg  otlp.Config
		want string // empty: good
	}{
		{otlp.Config{}, ""},
		{at("127.0.0.1:4317"), ""},
		{at("[::1]:4317"), ""},
		{at("localhost:4317"), ""},
		{at("http://otlp.example:4317"), ""},
		{at("https://otlp.example:4317/"), ""},
		{at(""), "otlp.endpoint: is missing"},
		{at("otlp.example:4317"), "write http://otlp.example:4317 for plain text or https://otlp.example:4317 for TLS"},
		{at("127.0.0.1"), "write host:port"},
		{at("https://otlp.example"), "write host:port"},
		{at("https://otlp.example:4317/v1/traces"), "write host:port"},
		{at("grpc://otlp.example:4317"), "write host:port"},
		{otlp.Config{SampleRatio: ratio(0.25)}, ""},
		{otlp.Config{SampleRatio: ratio(1.5)}, "sampleRatio: 1.5 is out of bounds"},
		{otlp.Config{SampleRatio: ratio(-1)}, "sampleRatio: -1 is out of bounds"},
		{otlp.Config{SampleRatio: &nan}, "sampleRatio: NaN is out of bounds"},
	}
	for _, tt := range tests {
		err := tt.cfg.Check()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: error %v; want %q", tt.cfg.OTLP, err, tt.want)
		}
	}
}

// TestMetricsAreOffUnlessAskedFor has a protocol that is refused where metrics are to be exported.
func TestMetricsAreOffUnlessAskedFor(t *testing.T) {
	for _, tt := range []struct {
		exporters, disabled string
		on                  bool
	}{{"", "", false}, {"none", "", false}, {"prometheus", "", false}, {"otlp", "true", false}, {"otlp", "", true}, {"prometheus,otlp", "", true}} {
		clearEnv(t)
		t.Setenv("OTEL_METRICS_EXPORTER", tt.exporters)
		t.Setenv("OTEL_SDK_DISABLED", tt.disabled)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := otlp.RunMetrics(ctx, prometheus.NewRegistry(), "west", slog.New(slog.DiscardHandler))
		if on := err != nil && strings.Contains(err.Error(), `"http/json"`); on != tt.on || !on && err != nil {
			t.Errorf("OTEL_METRICS_EXPORTER=%s, OTEL_SDK_DISABLED=%s: %v", tt.exporters, tt.disabled, err)
		}
	}
}
