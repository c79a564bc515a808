package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
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
	debug    http.Handler
	status   *v1alpha1.StatusResponse
	stopping live.Value[bool]
	view     *catalog.View
	metrics  *Metrics
	events   *events.Ring
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{status: ready(), events: events.New()}
	registry := prometheus.NewRegistry()
	status := func() *v1alpha1.StatusResponse { return f.status }
	var err error
	if f.metrics, err = NewMetrics(registry, status, func() time.Duration { return 12 * time.Second }); err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Status: status, Registry: registry, Stopping: &f.stopping,
		Events: f.events,
		Apps:   func() []catalog.App { return []catalog.App{checkout} },
		View:   func(catalog.App) (*catalog.View, bool) { return f.view, f.view != nil },
	}, quiet)
	f.Handler, f.debug = s.Handler(), s.DebugHandler()
	return f
}

func (f *fake) get(path string, header ...string) (code int, body string) {
	pages := f.Handler
	if strings.HasPrefix(path, "/debug") {
		pages = f.debug
	}
	return ask(pages, path, header...)
}

func ask(pages http.Handler, path string, header ...string) (code int, body string) {
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Host = "localhost:7480"
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

// atNoon runs a test where no time passes, and no day ends.
func atNoon(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 1, 5, 12, 0, 0, 0, time.Local)))
		test(t)
	})
}

func TestReadinessSaysWhatItWaitsFor(t *testing.T) { atNoon(t, readinessSays) }

func readinessSays(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	clock := func(d time.Duration) string { return now.Add(-d).Format(time.TimeOnly) }
	for _, c := range []struct {
		what string
		set  func(*v1alpha1.StatusResponse)
		code int
		want string
	}{
		{"all is well", func(*v1alpha1.StatusResponse) {}, 200, "ok\n"},
		{"the store has not answered", func(s *v1alpha1.StatusResponse) { s.Store.Ready = false }, 503,
			"not ready: store embedded: its full set has not arrived yet\n"},
		{"the store is away from the start", func(s *v1alpha1.StatusResponse) {
			s.Store.Ready, s.Store.Error, s.Store.FailingUnixMs = false, "store embedded: connection refused", ago(12*time.Second)
		}, 503, "not ready: store embedded: away for 12s, since " + clock(12*time.Second) + ": connection refused; nothing was read of it yet\n"},
		{"the store is away later", func(s *v1alpha1.StatusResponse) {
			s.Store.Error, s.Store.FailingUnixMs, s.Objects = "disk on fire", ago(12*time.Second), 3
		}, 200, "ok\nnote: store embedded: away for 12s, since " + clock(12*time.Second) + ": disk on fire; serving revision 41, 3 objects\n"},
		{"no identity yet", func(s *v1alpha1.StatusResponse) { s.Identity, s.IdentityError = "", "sentry not reached" }, 503,
			"not ready: no identity: sentry not reached\n"},
		{"the identity is not renewed", func(s *v1alpha1.StatusResponse) { s.IdentityError = "sentry not reached" }, 200,
			"ok\nnote: identity not renewed: sentry not reached\n"},
		{"an object is refused", func(s *v1alpha1.StatusResponse) {
			s.Refused = []*v1alpha1.RefusedObject{{Source: "a.yaml", Error: "a.yaml:3:1: bad"}}
		}, 200, "ok\nnote: object refused: a.yaml:3:1: bad\n"},
		{"an error that would command a terminal", func(s *v1alpha1.StatusResponse) {
			s.Refused = []*v1alpha1.RefusedObject{{Error: "bad\x1b[2J\u202e\r\nok"}}
		}, 200, "ok\nnote: object refused: bad?[2J???ok\n"},
		{"certificates are not renewed", func(s *v1alpha1.StatusResponse) {
			s.Trust = []*v1alpha1.TrustStatus{
				{Use: identity.PeerRoot, Cluster: "east", Error: "no PEM"}, {Use: identity.DNSCertificate, Error: "no PEM"},
				{Use: identity.ConsulCertificate, Error: "no key"}, {Use: identity.ConsulCertificate},
			}
		}, 200, "ok\nnote: dns certificate not renewed: no PEM\nnote: consul certificate not renewed: no key\n"},
		{"two things", func(s *v1alpha1.StatusResponse) { s.Store.Ready, s.Identity = false, "" }, 503,
			"not ready: store embedded: its full set has not arrived yet\nnot ready: no identity: \n"},
	} {
		f := newFake(t)
		c.set(f.status)
		if code, body := f.get("/readyz"); code != c.code || inTime(body) != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.what, code, body, c.code, c.want)
		}
		code, body := f.get("/readyz?format=json")
		var r readiness
		if err := json.Unmarshal([]byte(body), &r); err != nil || code != c.code || r.Ready != (code == 200) || r.Reasons == nil || r.Notes == nil {
			t.Errorf("%s: as JSON %d %s (%v)", c.what, code, body, err)
		}
	}
}

// inTime is what a service says of the last twelve seconds, however slow the test is.
func inTime(body string) string {
	return regexp.MustCompile(`away for (1[2-9]|[2-9]\d|\dm\d+)s`).ReplaceAllString(body, "away for 12s")
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

func TestMetricsTellTheStatus(t *testing.T) { atNoon(t, metricsTell) }

func metricsTell(t *testing.T) {
	f := newFake(t)
	f.metrics.Lookup("ok")
	f.status.Peers[0].Version = "v1.2.3"
	f.status.Peers[0].Gateways = []*v1alpha1.GatewayStatus{{State: "refused"}, {State: "refused"}}
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
		`isthmus_peer_info{peer="east",version="v1.2.3"} 1`,
		`isthmus_peer_gateways{peer="east",state="refused"} 2`,
		`isthmus_peer_gateways{peer="east",state="connected"} 0`,
		`go_goroutines`, `process_open_fds`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestSinceWhenAStoreIsAway(t *testing.T) {
	now := time.Date(2026, 11, 20, 14, 3, 23, 0, time.Local)
	for want, away := range map[string]time.Duration{
		"away for 12s, since 14:03:11: refused; serving revision 41, 0 objects":                 12 * time.Second,
		"away for 26h0m0s, since 2026-11-19 12:03:23: refused; serving revision 41, 0 objects":  26 * time.Hour,
		"away for 14h10m0s, since 2026-11-19 23:53:23: refused; serving revision 41, 0 objects": 14*time.Hour + 10*time.Minute,
		"away for 0s, since 14:03:24: refused; serving revision 41, 0 objects":                  -time.Second, // clocks differ
	} {
		s := ready()
		s.Store.Error, s.Store.FailingUnixMs = "store embedded: refused", now.Add(-away).UnixMilli()
		if got := show.Away(s, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := show.Away(ready(), now); got != "" {
		t.Errorf("a store that is there: %q", got)
	}
}

func TestTheStoreHasAPage(t *testing.T) { atNoon(t, storeHasAPage) }

func storeHasAPage(t *testing.T) {
	f := newFake(t)
	f.status.Refused = []*v1alpha1.RefusedObject{{Source: "isthmus/v1alpha1/Cluster/east", Error: "bad"}}
	var page storePage
	code, body := f.get("/debug/store")
	if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 || page.Name != "embedded" || !page.Ready || page.Away != "" ||
		page.Since != nil || page.Revision != 41 || len(page.Refused) != 1 || page.Refused[0].Error != "bad" {
		t.Errorf("%d %s (%v)", code, body, err)
	}
	f.status.Store.Error, f.status.Store.FailingUnixMs = "refused", time.Now().UnixMilli()
	_, body = f.get("/debug/store")
	if err := json.Unmarshal([]byte(body), &page); err != nil || page.Since == nil || !strings.HasPrefix(page.Away, "away for 0s, since ") || page.Error != "refused" {
		t.Errorf("away: %s (%v)", body, err)
	}
}

func TestAViewIsShownWhole(t *testing.T) {
	f := newFake(t)
	if code, _ := f.get("/debug/views?app=shop/checkout"); code != 503 {
		t.Errorf("before there is one: %d", code)
	}
	orders := catalog.NewEntry(catalog.App{Namespace: "shop", ID: "orders"}, catalog.TextRule("the rule"), []catalog.Route{
		{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, State: catalog.Empty, Local: true},
		{RouteSpec: catalog.RouteSpec{Cluster: "east", Priority: 1, Weight: 1}, Gateway: true, Ready: 2, Addresses: []string{"orders.shop.east.isthmus.internal:15443"}},
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

func TestEventsAreShown(t *testing.T) {
	f := newFake(t)
	f.events.Logger().Warn("lease ended", "cluster", "east")
	for query, want := range map[string]int{"": 1, "?since=1h": 1, "?since=0s": 0} {
		code, body := f.get("/debug/events" + query)
		var list struct {
			Items []struct {
				Count          int
				Level, Message string
				Fields         map[string]string
			}
		}
		err := json.Unmarshal([]byte(body), &list)
		page := list.Items
		if err != nil || code != 200 || len(page) != want {
			t.Fatalf("%q: %d, %v; want %d events:\n%s", query, code, err, want, body)
		}
		if want > 0 && (page[0].Level != "warn" || page[0].Message != "lease ended" || page[0].Fields["cluster"] != "east" || page[0].Count != 1) {
			t.Errorf("%q: %+v", query, page[0])
		}
	}
	if code, _ := f.get("/debug/events?since=yesterday"); code != 400 {
		t.Errorf("a time that is none: %d", code)
	}
}

func TestEveryPageOfTheIndexIsThere(t *testing.T) {
	f := newFake(t)
	var pages []string
	for _, handler := range []http.Handler{f.Handler, f.debug} {
		_, body := ask(handler, "/")
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "/") {
				pages = append(pages, strings.Fields(line)[0])
			}
		}
	}
	if !slices.Contains(pages, "/metrics") || !slices.Contains(pages, "/debug/views") {
		t.Fatalf("the indexes have only %v", pages)
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

// TestHealthAndDebugPagesAreApart so that probes and Prometheus reach no view.
func TestHealthAndDebugPagesAreApart(t *testing.T) {
	f := newFake(t)
	for _, page := range []string{"/debug/events", "/debug/store", "/debug/views", "/debug/pprof/", "/debug/pprof/heap"} {
		if code, _ := ask(f.Handler, page); code != 404 {
			t.Errorf("%s among the pages of health: %d", page, code)
		}
	}
	if code, _ := ask(f.debug, "/metrics"); code != 404 {
		t.Errorf("metrics among the pages for debugging: %d", code)
	}
}

func TestPagesAreForKnownHosts(t *testing.T) {
	f := newFake(t)
	for _, pages := range []http.Handler{f.Handler, f.debug} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Host = "rebound.example"
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, req)
		if w.Code != http.StatusMisdirectedRequest {
			t.Errorf("a host that is not known: %d %s", w.Code, w.Body)
		}
	}
}

func TestEdgesHaveAPartInReadyz(t *testing.T) {
	s := New(Config{
		Status: func() *v1alpha1.StatusResponse { return ready() },
		Ready: func() (reasons, notes []string) {
			return []string{"xds: no snapshot"}, []string{"dns: forward to 1.1.1.1:53: timeout"}
		},
		Stopping: &live.Value[bool]{},
	}, quiet)
	w := httptest.NewRecorder()
	s.readyz(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if want := "not ready: xds: no snapshot\nnote: dns: forward to 1.1.1.1:53: timeout\n"; w.Code != 503 || w.Body.String() != want {
		t.Errorf("%d %q", w.Code, w.Body)
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
	go func() { done <- s.serve(ctx, l, s.Handler()) }()
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

// TestAPeerAtRestHasFewSeries, since there may be a thousand of them.
func TestAPeerAtRestHasFewSeries(t *testing.T) {
	f := newFake(t)
	f.status.Peers = append(f.status.Peers, &v1alpha1.PeerStatus{Cluster: "north", State: catalog.PeerResting, Exports: 3, Version: "v1", LastWordUnixMs: time.Now().UnixMilli()})
	_, text := f.get("/metrics")
	var got []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, `peer="north"`) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if want := []string{`isthmus_peer_lapses_total{peer="north"} 0`, `isthmus_peer_state{peer="north",state="resting"} 1`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := strings.Count(text, `peer="east"`); n < 10 {
		t.Errorf("%d series of a peer that does not rest", n)
	}
}
