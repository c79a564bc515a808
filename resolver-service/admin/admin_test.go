package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

var checkout = catalog.App{Namespace: "shop", ID: "checkout"}

func ready() *v1alpha1.StatusResponse {
	return &v1alpha1.StatusResponse{
		Cluster: "west", Version: "v1", Revision: 41, Identity: "spiffe://public/ns/isthmus-system/isthmus-west",
		Store: &v1alpha1.StoreStatus{Name: "embedded", Ready: true}, Instances: 5, Draining: 2,
		Peers: []*v1alpha1.PeerStatus{{Cluster: "east", State: "stale", Exports: 3, LastWordUnixMs: time.Now().Add(-time.Minute).UnixMilli()}},
	}
}

// fake is a server whose facts a test sets.
type fake struct {
	http.Handler
	status   *v1alpha1.StatusResponse
	stopping live.Value[bool]
	view     *catalog.View
	metrics  *Metrics
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{status: ready()}
	registry := prometheus.NewRegistry()
	status := func() *v1alpha1.StatusResponse { return f.status }
	var err error
	if f.metrics, err = NewMetrics(registry, status, func() time.Duration { return 12 * time.Second }); err != nil {
		t.Fatal(err)
	}
	f.Handler = New(Config{
		Status: status, Registry: registry, Stopping: &f.stopping,
		Apps: func() []catalog.App { return []catalog.App{checkout} },
		View: func(catalog.App) (*catalog.View, bool) { return f.view, f.view != nil },
	}, quiet).Handler()
	return f
}

func (f *fake) get(path string, header ...string) (code int, body string) {
	req := httptest.NewRequest(http.MethodGet, path, nil)
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

func TestReadinessSaysWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		what string
		set  func(*v1alpha1.StatusResponse)
		code int
		want string
	}{
		{"all is well", func(*v1alpha1.StatusResponse) {}, 200, "ok\n"},
		{"the store has not answered", func(s *v1alpha1.StatusResponse) { s.Store.Ready = false }, 503,
			"not ready: store embedded: its full set has not arrived yet\n"},
		{"the store fails from the start", func(s *v1alpha1.StatusResponse) { s.Store.Ready, s.Store.Error = false, "connection refused" }, 503,
			"not ready: store embedded: connection refused\n"},
		{"the store fails later", func(s *v1alpha1.StatusResponse) {
			s.Store.Error, s.Store.FailingUnixMs = "disk on fire", time.Now().Add(-12*time.Second).UnixMilli()
		}, 200, "ok\nnote: store embedded failing for 12s: disk on fire; serving revision 41\n"},
		{"no identity yet", func(s *v1alpha1.StatusResponse) { s.Identity, s.IdentityError = "", "sentry not reached" }, 503,
			"not ready: no identity: sentry not reached\n"},
		{"the identity is not renewed", func(s *v1alpha1.StatusResponse) { s.IdentityError = "sentry not reached" }, 200,
			"ok\nnote: identity not renewed: sentry not reached\n"},
		{"an object is refused", func(s *v1alpha1.StatusResponse) {
			s.Refused = []*v1alpha1.RefusedObject{{Source: "a.yaml", Error: "a.yaml:3:1: bad"}}
		}, 200, "ok\nnote: object refused: a.yaml:3:1: bad\n"},
		{"two things", func(s *v1alpha1.StatusResponse) { s.Store.Ready, s.Identity = false, "" }, 503,
			"not ready: store embedded: its full set has not arrived yet\nnot ready: no identity: \n"},
	} {
		f := newFake(t)
		c.set(f.status)
		if code, body := f.get("/readyz"); code != c.code || body != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.what, code, body, c.code, c.want)
		}
		code, body := f.get("/readyz?format=json")
		var r readiness
		if err := json.Unmarshal([]byte(body), &r); err != nil || code != c.code || r.Ready != (code == 200) || r.Reasons == nil || r.Notes == nil {
			t.Errorf("%s: as JSON %d %s (%v)", c.what, code, body, err)
		}
	}
}

func TestAServiceThatStopsIsNotReadyButAlive(t *testing.T) {
	f := newFake(t)
	f.stopping.Store(true)
	if code, body := f.get("/readyz", "Accept", "application/json"); code != 503 || !strings.Contains(body, `"shutting down"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := f.get("/livez"); code != 200 {
		t.Errorf("livez %d", code)
	}
}

func TestMetricsTellTheStatus(t *testing.T) {
	f := newFake(t)
	f.metrics.Lookup("ok")
	f.status.Store.FailingUnixMs = time.Now().Add(-time.Hour).UnixMilli()
	_, body := f.get("/metrics")
	for _, want := range []string{
		`isthmus_build_info{cluster="west",version="v1"} 1`,
		`isthmus_revision 41`,
		`isthmus_revision_age_seconds 12`,
		`isthmus_instances{state="ready"} 3`,
		`isthmus_instances{state="draining"} 2`,
		`isthmus_lookups_total{outcome="ok"} 1`,
		`isthmus_lookups_total{outcome="denied"} 0`,
		`isthmus_store_ready{store="embedded"} 1`,
		`isthmus_store_failing_seconds{store="embedded"} 3600`,
		`isthmus_identity_ready 1`,
		`isthmus_peer_state{peer="east",state="stale"} 1`,
		`isthmus_peer_state{peer="east",state="connected"} 0`,
		`isthmus_peer_exports{peer="east"} 3`,
		`isthmus_peer_last_word_seconds{peer="east"} 60`,
		`go_goroutines`, `process_open_fds`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestAViewIsShownWhole(t *testing.T) {
	f := newFake(t)
	if code, _ := f.get("/debug/views?app=shop/checkout"); code != 503 {
		t.Errorf("before there is one: %d", code)
	}
	orders := catalog.NewEntry(catalog.App{Namespace: "shop", ID: "orders"}, catalog.Rule{Text: "the rule"}, []catalog.Route{
		{Cluster: "west", State: catalog.Empty, Weight: 1, Local: true},
		{Cluster: "east", Priority: 1, Weight: 1, Gateway: true, Ready: 2, Addresses: []string{"orders.shop.east.isthmus.internal:15443"}},
	})
	f.view = &catalog.View{Revision: 7, Gateways: &catalog.Gateways{Addresses: map[string][]string{"east": {"203.0.113.7:15443"}}}}
	f.view.Entries = f.view.Entries.With(catalog.Edit[*catalog.Entry]{App: orders.App, Value: orders})
	code, body := f.get("/debug/views?app=shop/checkout")
	var page viewPage
	if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 {
		t.Fatalf("%d %v", code, err)
	}
	e := page.Entries[0]
	if page.App != "shop/checkout" || page.Revision != 7 || page.Gateways["east"][0] != "203.0.113.7:15443" || e.App != "shop/orders" ||
		e.Outcome != "ok" || e.Rule != "the rule" || len(e.Routes) != 2 || !e.Routes[1].Gateway || e.Routes[0].Reason == "" {
		t.Errorf("page %s", body)
	}
	if code, body := f.get("/debug/views"); code != 200 || !strings.Contains(body, `"shop/checkout"`) {
		t.Errorf("the list: %d %s", code, body)
	}
	if code, _ := f.get("/debug/views?app=checkout"); code != 400 {
		t.Errorf("an app without a namespace: %d", code)
	}
}

func TestEveryPageOfTheIndexIsThere(t *testing.T) {
	f := newFake(t)
	_, body := f.get("/")
	var pages []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "/") {
			pages = append(pages, strings.Fields(line)[0])
		}
	}
	if !slices.Contains(pages, "/metrics") {
		t.Fatalf("index has only %v", pages)
	}
	for _, page := range append(pages, "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol") {
		if code, _ := f.get(page); code != 200 {
			t.Errorf("%s: %d", page, code)
		}
	}
	if code, _ := f.get("/nothing"); code != 404 {
		t.Errorf("a page that is not there: %d", code)
	}
}

func TestServingEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := New(Config{Registry: prometheus.NewRegistry()}, quiet)
	go func() { done <- s.Serve(ctx, l) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
