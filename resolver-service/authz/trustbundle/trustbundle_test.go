package trustbundle

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var shared = serverstest.Kubernetes{Users: []string{"service", "nobody"}}

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// prepare gives the user service what the manifest gives the service's account.
func prepare() error {
	for _, args := range []string{
		"create namespace dapr-system",
		"create role isthmus-trust-bundle -n dapr-system --verb=list,watch --resource=configmaps --resource-name=dapr-trust-bundle",
		"create rolebinding isthmus-trust-bundle -n dapr-system --role=isthmus-trust-bundle --user=service",
	} {
		if err := shared.Kubectl(strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

func write(t *testing.T, key, text string) {
	t.Helper()
	out, err := shared.Run(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dapr-trust-bundle, namespace: dapr-system}\ndata: {%s: %q}\n", key, text), "apply", "-f", "-")
	if err != nil {
		t.Fatal(err, out)
	}
}

func remove(t *testing.T) {
	t.Helper()
	if err := shared.Kubectl("delete", "configmap", "-n", "dapr-system", "dapr-trust-bundle", "--ignore-not-found"); err != nil {
		t.Fatal(err)
	}
}

func newBundle(t *testing.T, user string) *Bundle {
	t.Helper()
	shared.Need(t, prepare)
	b, err := New(Config{ConfigMap: "dapr-trust-bundle", Kubeconfig: shared.Kubeconfig(t, user)}, "dapr-system", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// is waits until the bundle has a text, and tells how long that took.
func is(t *testing.T, b *Bundle, want string) {
	t.Helper()
	began := time.Now()
	for {
		text, err := b.Read(t.Context())
		if string(text) == want && err == nil {
			t.Logf("%q after %s", want, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%q, %v; want %q", text, err, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRootsAreFollowed(t *testing.T) {
	b := newBundle(t, "service")
	remove(t)
	if _, err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap dapr-system/dapr-trust-bundle is not there") {
		t.Errorf("without the ConfigMap: %v", err)
	}
	write(t, "ca.crt", "one")
	is(t, b, "one") // without Run, as "isthmus check" asks

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	write(t, "ca.crt", "two")
	is(t, b, "two")
	remove(t)
	write(t, "root.pem", "three") // a key that nobody reads
	time.Sleep(200 * time.Millisecond)
	is(t, b, "two")
	mend := shared.Link.Cut(t)
	write(t, "ca.crt", "four")
	is(t, b, "two")
	mend()
	is(t, b, "four")
}

// An API server that takes connections and stays silent is named within the limit, and roots come once
// it answers.
func TestASilentServerIsNamed(t *testing.T) {
	defer func(was time.Duration) { listWithin = was }(listWithin)
	listWithin = 200 * time.Millisecond
	var answers atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers.Load() || r.URL.Query().Has("watch") {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"resourceVersion": "1"}, "data": {"ca.crt": "one"}}]}`)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}]}", api.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{ConfigMap: "dapr-trust-bundle", Kubeconfig: kubeconfig}, "dapr-system", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if _, err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap dapr-system/dapr-trust-bundle: the API server gave no answer within 200ms") {
		t.Errorf("silent: %v", err)
	}
	answers.Store(true)
	is(t, b, "one")
}

func TestAMissingRoleIsNamed(t *testing.T) {
	b := newBundle(t, "nobody")
	_, err := b.Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "give the account the verbs list and watch on it") {
		t.Errorf("without a role: %v", err)
	}
}
