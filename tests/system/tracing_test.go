package system

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

// newTrace is a trace context of a caller that records, or does not.
func newTrace(recorded bool) (id, traceparent string) {
	flags := "00"
	if recorded {
		flags = "01"
	}
	id = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	return id, fmt.Sprintf("00-%s-%016x-%s", id, rand.Uint64(), flags)
}

// tracedApps are a caller in west and two apps in east, one of which speaks gRPC. The
// calls go by either API of daprd, with a trace context.
func (m *mesh) tracedApps(t *testing.T, namespace string) map[string]func(ctx context.Context, traceparent string) error {
	m.apply(t, m.east, export(namespace, "orders", "west"), export(namespace, "quotes", "west"))
	m.apply(t, m.west, selection(namespace, "checkout", "app: orders", "app: quotes"))
	m.app(t, m.east, namespace, "orders")
	m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: namespace, ID: "quotes"}, GRPC: true})
	checkout := m.app(t, m.west, namespace, "checkout")
	conn := dial(t, checkout)
	calls := map[string]func(ctx context.Context, traceparent string) error{
		"orders": func(ctx context.Context, traceparent string) error {
			_, err := checkout.Invoke(ctx, "orders", "hello", http.Header{"Traceparent": {traceparent}})
			return err
		},
		"quotes": func(ctx context.Context, traceparent string) error {
			_, err := sandbox.Proxy(ctx, conn, "quotes", map[string]string{"traceparent": traceparent})
			return err
		},
		"payments": func(ctx context.Context, traceparent string) error {
			_, err := checkout.Invoke(ctx, "payments", "hello", http.Header{"Traceparent": {traceparent}})
			if err == nil {
				return fmt.Errorf("a call outside the selection went through")
			}
			return nil
		},
	}
	for _, id := range []string{"orders", "quotes"} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			_, unrecorded := newTrace(false)
			return calls[id](meshtest.Within(t, meshtest.Attempt), unrecorded)
		})
	}
	return calls
}

func TestOneTraceHasSpansFromBothClusters(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	calls := m.tracedApps(t, "trace")
	for id, api := range map[string]string{"orders": "HTTP", "quotes": "gRPC"} {
		t.Run("over "+api, func(t *testing.T) {
			trace, traceparent := newTrace(true)
			if err := calls[id](meshtest.Within(t, meshtest.Patience), traceparent); err != nil {
				t.Fatal(err)
			}
			spans := m.completeTrace(t, trace, "west", "east")
			draw(t, spans)
			for _, s := range spans {
				if origin(s) != "west" && origin(s) != "east" {
					t.Errorf("span %q does not say which cluster it is from: %v, %v", s.Name, s.Attributes, s.Resource)
				}
			}
			m.lookupIsExplained(t, spans, "trace/"+id)
			endpointIsNamed(t, spans, id)
			m.metricsLeadTo(t, trace, id)
		})
	}
}

// metricsLeadTo wants the metrics of both clusters to name a trace beside the calls of its app.
func (m *mesh) metricsLeadTo(t *testing.T, trace, id string) {
	t.Helper()
	for _, c := range []*sandbox.Cluster{m.west, m.east} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Service.Admin+"/metrics", nil)
			if err != nil {
				return err
			}
			req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
			answer, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				return err
			}
			for _, metric := range []string{"isthmus_call_duration_seconds_bucket", "isthmus_call_results_total"} {
				if !regexp.MustCompile(`(?m)^` + metric + `\{[^}]*callee="` + id + `",callee_namespace="trace"[^}]*\} \S+ # \{trace_id="` + trace + `"\} `).Match(body) {
					return fmt.Errorf("%s of cluster %s names no trace %s; %s", metric, c.Name, trace, answer.Header.Get("Content-Type"))
				}
			}
			return nil
		})
	}
}

// lookupIsExplained wants the caller's lookup to be a child of a span of daprd's, and
// to tell what a person asks who reads the trace.
func (m *mesh) lookupIsExplained(t *testing.T, spans []collector.Span, app string) {
	t.Helper()
	host := strings.TrimPrefix(app, "trace/") + ".trace.east.isthmus.internal"
	found := 0
	for _, s := range spans {
		if s.Name != "isthmus.lookup" || s.Attributes["isthmus.caller"] != "trace/checkout" {
			continue
		}
		found++
		for attribute, want := range map[string]string{
			"isthmus.app": app, "isthmus.outcome": "ok", "isthmus.cluster": "east", "k8s.cluster.name": "west",
		} {
			if got := s.Attributes[attribute]; got != want {
				t.Errorf("the lookup's %s is %q, want %q", attribute, got, want)
			}
		}
		if got := s.Attributes["isthmus.gateway"]; !strings.HasPrefix(got, host) {
			t.Errorf("the lookup's gateway is %q, want %s", got, host)
		}
		if rule := s.Attributes["isthmus.rule"]; !strings.Contains(rule, "AppEndpoints trace/checkout, spec.endpoints[") || !strings.Contains(rule, "line ") {
			t.Errorf("the lookup's rule is %q, want the object and the line of it", rule)
		}
		if r := s.Attributes["isthmus.revision"]; r == "" || r == "0" {
			t.Errorf("the lookup's revision is %q", r)
		}
		parent := slices.IndexFunc(spans, func(p collector.Span) bool { return p.ID == s.Parent })
		if parent < 0 || origin(spans[parent]) != "west" || spans[parent].Name == s.Name {
			t.Errorf("the lookup's parent %s is no span of daprd's in west", s.Parent)
		}
	}
	if found == 0 {
		t.Errorf("the trace has no lookup by the caller")
	}
}

// endpointIsNamed wants daprd's span of the call to say where it went.
func endpointIsNamed(t *testing.T, spans []collector.Span, id string) {
	t.Helper()
	for _, s := range spans {
		for _, e := range s.Events {
			if e.Name == "isthmus.endpoint" && origin(s) == "west" && e.Attributes["isthmus.cluster"] == "east" && e.Attributes["isthmus.address"] != "" &&
				strings.HasSuffix(e.Attributes["isthmus.gateway"], "."+id+".trace.east.isthmus.internal") {
				return
			}
		}
	}
	t.Error("no span of the caller says which endpoint the call went to")
}

func TestARefusedLookupsSpanSaysOutcomeAndRule(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	calls := m.tracedApps(t, "refused")
	trace, traceparent := newTrace(true)
	if err := calls["payments"](meshtest.Within(t, meshtest.Patience), traceparent); err != nil {
		t.Fatal(err)
	}
	var lookups []lookupSpan
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if lookups = m.lookupSpans(trace, "refused/checkout"); len(lookups) == 0 {
			return fmt.Errorf("no span of the lookup")
		}
		return nil
	})
	s := lookups[0]
	if s.attributes["isthmus.outcome"] != "denied" || !s.failed || !strings.Contains(s.attributes["isthmus.rule"], "AppEndpoints refused/checkout") {
		t.Errorf("%+v, want denied by the selection, as an error", s)
	}
	if s.attributes["isthmus.address"] != "" || s.attributes["isthmus.cluster"] != "" || s.attributes["isthmus.gateway"] != "" {
		t.Errorf("%+v tells of where the app is", s)
	}
}

func TestATraceThatIsNotRecordedHasNoSpans(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	calls := m.tracedApps(t, "quiet")
	var unrecorded []string
	for range 20 {
		for _, id := range []string{"orders", "quotes", "payments"} {
			trace, traceparent := newTrace(false)
			unrecorded = append(unrecorded, trace)
			if err := calls[id](meshtest.Within(t, meshtest.Patience), traceparent); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What is recorded after them has arrived, so they would have too.
	trace, traceparent := newTrace(true)
	if err := calls["orders"](meshtest.Within(t, meshtest.Patience), traceparent); err != nil {
		t.Fatal(err)
	}
	m.completeTrace(t, trace, "west", "east")
	for _, id := range unrecorded {
		if spans := m.traces.Trace(id); len(spans) > 0 {
			t.Errorf("a trace that is not recorded has %d spans, such as %q", len(spans), spans[0].Name)
		}
	}
}

// completeTrace waits until a trace has a lookup and spans of these clusters, and no
// parent is missing but that of the caller.
func (m *mesh) completeTrace(t *testing.T, id string, clusters ...string) []collector.Span {
	t.Helper()
	spans, err := m.traces.Wait(meshtest.Within(t, meshtest.Patience), id, func(spans []collector.Span) bool {
		ids := map[string]bool{}
		var from []string
		orphans, lookup := 0, false
		for _, s := range spans {
			ids[s.ID] = true
			from = append(from, origin(s))
			lookup = lookup || s.Name == "isthmus.lookup"
		}
		for _, s := range spans {
			if !ids[s.Parent] {
				orphans++
			}
		}
		for _, c := range clusters {
			if !slices.Contains(from, c) {
				return false
			}
		}
		return lookup && orphans == 1
	})
	if err != nil {
		draw(t, spans)
		t.Fatalf("trace %s is not complete: %v", id, err)
	}
	return spans
}

// origin is the cluster that a span is from, by the span or by its process.
func origin(s collector.Span) string {
	if c := s.Attributes["k8s.cluster.name"]; c != "" {
		return c
	}
	return s.Resource["k8s.cluster.name"]
}

// draw prints a trace.
func draw(t *testing.T, spans []collector.Span) {
	t.Helper()
	for _, s := range spans {
		t.Logf("%-5s %s < %s %-50s %v", origin(s), s.ID, s.Parent, s.Name, s.Attributes["isthmus.outcome"])
	}
}
