package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The resolver service is killed, and a sidecar's lookups go on for ten minutes by a
// clock that jumps: whatever a sidecar does of its own accord with the time that passes, it
// does here. The service is a real one, and the network is loopback.
func TestTenMinutesWithoutAService(t *testing.T) {
	needsBinaries(t)
	west, stop := oneService(t)
	lookups := []catalog.App{app("orders"), app("stock")}
	before := newResolver(t, west, "checkout", 50001)
	meshtest.Eventually(t, meshtest.Patience, func() error { _, err := addresses(t, before, lookups); return err })
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	kill, killed := make(chan struct{}), make(chan error)
	go func() {
		<-kill
		killed <- stop()
	}()
	synctest.Test(t, func(t *testing.T) {
		r := newResolver(t, west, "checkout", 50001)
		known, err := addresses(t, r, lookups)
		if err != nil {
			t.Fatal(err)
		}
		kill <- struct{}{}
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		const lasts = 10 * time.Minute
		start, count := time.Now(), 0
		for time.Since(start) < lasts {
			time.Sleep(time.Second)
			got, err := addresses(t, r, lookups)
			if err != nil || got != known {
				t.Fatalf("%s after the service is gone: %s, %v; want %s", time.Since(start), got, err, known)
			}
			count += len(lookups)
		}
		t.Logf("%d lookups in %s without a service, 0 failed: %s", count, time.Since(start), known)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// oneService runs west with two apps, in plain text: a fake clock starts in 2000, when no
// certificate is valid. It returns west's address and what kills its service.
func oneService(t *testing.T) (west string, kill func() error) {
	t.Helper()
	box, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	objects := t.TempDir()
	w, err := box.Service(meshtest.Within(t, meshtest.Patience), sandbox.ServiceOptions{
		Cluster: "west", Store: map[string]any{"file": map[string]any{"path": objects}},
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, objects, selection("checkout", "orders: local", "stock: local"))
	for id, port := range map[string]int{"orders": 50002, "stock": 50003} {
		r := newResolver(t, w.Resolver, id, port)
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return w.Resolver, w.Kill
}

// write puts objects into the directory of a file store.
func write(t *testing.T, dir string, objects ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(strings.Join(objects, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newResolver is what a sidecar of an app has.
func newResolver(t *testing.T, service, id string, port int) *nameresolution.Resolver {
	t.Helper()
	r := nameresolution.New(nameresolution.Options{Logger: quiet})
	configuration := map[string]any{"resolver": service, "cluster": "west", "identity": map[string]any{"insecure": true}}
	if err := r.Init(t.Context(), configuration, nameresolution.Instance{App: app(id), Address: "127.0.0.1", Port: port}); err != nil {
		t.Fatal(err)
	}
	return r
}

// addresses are the answers to lookups, one after the other.
func addresses(t *testing.T, r *nameresolution.Resolver, apps []catalog.App) (string, error) {
	all := make([]string, len(apps))
	for i, a := range apps {
		var err error
		if all[i], err = r.ResolveID(t.Context(), a); err != nil {
			return "", err
		}
	}
	return strings.Join(all, " "), nil
}
