package consulapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// fuzzed is a server that nobody runs: its checks do not ask anybody. It has views.
func fuzzed(t testing.TB) *Server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain}, log)
	s, err := New(Config{Settings: Settings{Anonymous: "shop/checkout"}, Cluster: "west", Address: "127.0.0.1:8500", Topology: top, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- top.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	if _, err := top.Apply(ctx, topology.Change{Objects: &topology.ObjectChange{Full: true}}); err != nil { // so that there are views
		t.Fatal(err)
	}
	s.registry.to = &counting{}
	close(s.stopping) // so that nobody waits
	return s
}

// FuzzRegistration: whatever the body, the answer is one of Consul's, and what is
// registered can be read, saved, and taken over again.
func FuzzRegistration(f *testing.F) {
	for _, s := range steps() {
		if s.body != "" {
			f.Add(s.body)
		}
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/agent/service/register", "/v1/agent/check/update/x"} {
			q := requestOf(http.MethodPut, path, strings.NewReader(body))
			w := httptest.NewRecorder()
			s.ServeHTTP(w, q)
			switch w.Code {
			case 200, 400, 403, 404, 413, 429, 500:
			default:
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		all, _ := s.registry.own(shop("checkout")).roster.Load()
		for _, r := range all.services {
			s.registry.mu.Lock()
			own := s.registry.own(shop("checkout")).services[r.service.ID]
			s.registry.mu.Unlock()
			checkSaved(t, own)
			if err := s.registry.deregister(t.Context(), shop("checkout"), r.service.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// checkSaved holds what is saved of a service to be taken over again.
func checkSaved(t *testing.T, own *service) {
	t.Helper()
	content := saved{Version: storeVersion, Namespace: "shop", App: "checkout", Sender: own.sender, Service: own.def}
	for id, c := range own.checks {
		content.Checks = append(content.Checks, savedCheck{id, c.shown})
	}
	text, err := json.Marshal(&content)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseSaved(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if next, _ := json.Marshal(again); !bytes.Equal(next, text) {
		t.Errorf("saved as\n%s\nread as\n%s", text, next)
	}
}

// FuzzSaved: whatever stands in a file, it is refused or can be taken over.
func FuzzSaved(f *testing.F) {
	f.Add(`{"version":1,"namespace":"shop","app":"orders","sender":"10.0.0.1","service":{"ID":"x","Name":"orders","Port":1},"checks":[{"id":"c","fields":{"TTL":"1s"},"shown":{"Status":"passing"}}]}`)
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSaved([]byte(text))
		if err != nil {
			return
		}
		r := newRegistry(&counting{}, nil, newStore("", slog.New(slog.DiscardHandler)), newNode("n", "127.0.0.1", "west"), DefaultPortMeta, new(atomic.Uint64), slog.New(slog.DiscardHandler))
		if r.restore([]*saved{s}) > 1 {
			t.Error("two of one")
		}
	})
}

// FuzzQuery: whatever is asked for, it is answered soon, as Consul would.
func FuzzQuery(f *testing.F) {
	const soon = 5 * time.Second
	for _, s := range steps() {
		if path, query, ok := strings.Cut(s.path, "?"); ok && s.method == http.MethodGet {
			f.Add(path, query, "")
			if v, err := url.ParseQuery(query); err == nil && v.Get("filter") != "" {
				f.Add(path, "", v.Get("filter"))
			}
		}
	}
	f.Add("/v1/health/service/x", "", strings.Repeat("(", 16)+"a==b"+strings.Repeat(")", 16))
	f.Add("/v1/health/service/x", "", strings.Repeat("not ", 40)+"a==b")
	s := fuzzed(f)
	register := requestOf(http.MethodPut, "/v1/agent/service/register", strings.NewReader(`{"Name":"checkout","Address":"127.0.0.1","Port":1,"Tags":["a"],"Meta":{"k":"v"},"Check":{"TTL":"1h"}}`))
	s.ServeHTTP(httptest.NewRecorder(), register)
	f.Fuzz(func(t *testing.T, path, query, filter string) {
		if !strings.HasPrefix(path, "/v1/") {
			path = "/v1/health/service/checkout"
		}
		q := requestOf(http.MethodGet, "/", nil)
		q.URL.Path, q.URL.RawQuery = path, query
		if filter != "" {
			q.URL.RawQuery = "filter=" + url.QueryEscape(filter)
		}
		var w *httptest.ResponseRecorder
		least := time.Duration(math.MaxInt64)
		for try := 0; least > soon && try < stalls.Tries; try++ { // the machine may have stood still
			w = httptest.NewRecorder()
			start := time.Now()
			s.ServeHTTP(w, q)
			least = min(least, time.Since(start))
		}
		if least > soon {
			t.Errorf("answered after %s", least)
		}
		if w.Code == 200 && strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("no JSON: %s", w.Body)
		}
	})
}
