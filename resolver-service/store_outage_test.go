package resolverservice

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// everywhere is every page and answer that tells of the store.
func (r *running) everywhere() string {
	r.t.Helper()
	var all strings.Builder
	for _, page := range []string{"/readyz", "/readyz?format=json", "/debug/store", "/metrics"} {
		_, body := r.get(page)
		all.WriteString(body)
	}
	answer, err := v1alpha1.NewStatusClient(r.connect(identity.CLIApp(""))).Status(r.t.Context(), &v1alpha1.StatusRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	return all.String() + answer.String()
}

// put writes an object past the service.
func put(t *testing.T, s configstore.Writer, yaml string) {
	t.Helper()
	objects, mistakes := api.DecodeYAML("test.yaml", []byte(yaml))
	if err := mistakes.Err(); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if _, err := s.Write(t.Context(), configstore.Write{Object: o}); err != nil {
			t.Fatal(err)
		}
	}
}

// A service outlives its store, at its start as well as later, and says so.
func TestAStoreThatComesAndGoes(t *testing.T) {
	server := serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ISTHMUS_TEST_TOKEN", "hunter2")
	cfg := configOf(t, "west", nil)
	cfg.Store = Store{Consul: &consul.Config{Address: server.URL(), Token: &settings.Secret{Env: "ISTHMUS_TEST_TOKEN"}}}
	behind, err := consul.Open(consul.Config{Address: server.URL()}, configstore.Scope{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { behind.Close() })

	west := launch(t, cfg, nil)
	away := `store consul: away for \d+s, since \d\d:\d\d:\d\d: .*` + regexp.QuoteMeta(server.Addr()) + `.*connection refused.*; `
	west.within("not ready, and why", func() bool {
		code, body := west.get("/readyz")
		return code == http.StatusServiceUnavailable && regexp.MustCompile(`^not ready: `+away+`nothing was read of it yet\n$`).MatchString(body)
	})
	if code, _ := west.get("/livez"); code != http.StatusOK {
		t.Errorf("livez %d while the store is away", code)
	}
	if got := west.resolve(checkout, orders); got != "not ready" {
		t.Errorf("a lookup while nothing was read: %s", got)
	}
	tell(t, west, "hunter2")

	returned := comeBack(t, server)
	west.within("ready, with no restart", func() bool { code, _ := west.get("/readyz"); return code == http.StatusOK })
	t.Logf("ready %s after the store came", time.Since(returned).Round(time.Millisecond))
	west.apply(selectsOrders)
	if got := west.resolve(checkout, orders); got != "unavailable" {
		t.Fatalf("as the store has it: %s", got)
	}

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	west.within("a note that the store is away", func() bool {
		code, body := west.get("/readyz")
		return code == http.StatusOK && regexp.MustCompile(`\nnote: `+away+`serving revision \d+, 1 objects\n$`).MatchString(body)
	})
	if got := west.resolve(checkout, orders); got != "unavailable" {
		t.Errorf("a lookup while the store is away: %s", got)
	}
	tell(t, west, "hunter2")

	comeBack(t, server)
	put(t, behind, strings.ReplaceAll(selectsOrders, "orders", "ledger"))
	written := time.Now()
	west.within("the first change after the store is back", func() bool { return west.resolve(checkout, orders) == "denied" })
	t.Logf("the first change was seen after %s", time.Since(written).Round(time.Millisecond))
	west.within("/readyz says that all is well again", func() bool { _, body := west.get("/readyz"); return body == "ok\n" })
}

// comeBack starts the server again and returns when it answered.
func comeBack(t *testing.T, server *servers.Consul) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// tell checks that nothing that the service tells has a secret in it.
func tell(t *testing.T, r *running, secret string) {
	t.Helper()
	if all := r.everywhere(); strings.Contains(all, secret) || !strings.Contains(all, "connection refused") {
		t.Errorf("with a secret, or without the reason:\n%s", all)
	}
}

// Credentials that do not suffice are said to be the reason, and are not tried all the time.
func TestAStoreThatRefusesOurCredentials(t *testing.T) {
	server := serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{Management: serverstest.ConsulManagement})
	link := serverstest.NewLink(t, server.Addr())
	token := t.TempDir() + "/token"
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(serverstest.ConsulStranger + "\n")
	cfg := configOf(t, "west", nil)
	cfg.Store = Store{Consul: &consul.Config{Address: "http://" + link.Addr(), Token: &settings.Secret{File: token}}}
	west := launch(t, cfg, nil)
	west.within("not ready because of the token", func() bool {
		code, body := west.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "store consul: away for") && strings.Contains(body, "403") && !strings.Contains(body, serverstest.ConsulStranger[:8])
	})
	before, began := link.Traffic().Requests, time.Now()
	time.Sleep(3 * time.Second)
	n, took := link.Traffic().Requests-before, time.Since(began)
	if float64(n) > 5*took.Seconds()/3 {
		t.Errorf("%d requests in %s with a token that is refused", n, took)
	}
	write(serverstest.ConsulManagement + "\n")
	west.within("ready once the token was mended", func() bool { code, _ := west.get("/readyz"); return code == http.StatusOK })
}
