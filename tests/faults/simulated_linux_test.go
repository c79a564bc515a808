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
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// The resolver service is killed, and a sidecar's lookups go on for ten minutes by a
// clock that jumps: whatever a sidecar does of its own accord with the time that passes, it
// does here. The services are real ones, and the network is loopback.
func TestTenMinutesWithoutAService(t *testing.T) {
	needsBinaries(t)
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	west, stop := twoServices(t, authority)
	lookups := []catalog.App{app("orders"), app("stock")}
	before := newResolver(t, authority, west, "checkout", 50001)
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
		r := newResolver(t, authority, west, "checkout", 50001)
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

// twoServices runs west with the app stock and east with the app orders, and returns west's
// address and what kills its service.
func twoServices(t *testing.T, authority *sandbox.Authority) (west string, kill func() error) {
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
	run := func(cluster string) (s *sandbox.Service, objects string) {
		objects = t.TempDir()
		s, err := box.Service(meshtest.Within(t, meshtest.Patience), sandbox.ServiceOptions{
			Cluster: cluster, Store: map[string]any{"file": map[string]any{"path": objects}},
			Authority: authority,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s, objects
	}
	w, westObjects := run("west")
	e, eastObjects := run("east")
	write(t, westObjects, selection("checkout", "orders: east", "stock: local"), meshtest.Cluster("east", e.Gateway))
	write(t, eastObjects, export("orders"), meshtest.Cluster("west", w.Gateway))
	for id, in := range map[string]string{"orders": e.Resolver, "stock": w.Resolver} {
		r := newResolver(t, authority, in, id, 50002)
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
func newResolver(t *testing.T, authority *sandbox.Authority, service, id string, port int) *nameresolution.Resolver {
	t.Helper()
	cert, key, err := authority.Leaf("public", app(id))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]any{}
	for name, text := range map[string][]byte{"cert": cert, "key": key, "ca": authority.Anchors()} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		files[name] = path
	}
	r := nameresolution.New(nameresolution.Options{Logger: quiet})
	cluster := "west"
	if id == "orders" {
		cluster = "east"
	}
	configuration := map[string]any{"resolver": service, "cluster": cluster, "identity": map[string]any{"files": files}}
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
