package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// A store that can't be read is not an empty one: a service that starts without it knows
// nothing, and says so to everyone in the same way.
func TestAServiceWhoseStoreIsAwayIsNotReady(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "config")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "checkout.yaml", selection("shop", "checkout", "app: orders"))
	m := ownMesh(t, meshOptions{westSettings: map[string]any{"store": map[string]any{"file": map[string]any{"path": dir}}}})
	m.app(t, m.west, "shop", "orders")
	before := m.app(t, m.west, "shop", "checkout")
	answers(t, before, "orders", "west")

	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	answers(t, before, "orders", "west")
	m.leadsTo(t, m.west, "shop/checkout", "orders", "west") // the service has its last good state
	ctx := meshtest.Within(t, meshtest.Patience)
	if err := m.west.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.west.Start(); err != nil {
		t.Fatal(err)
	}
	var d decision
	meshtest.Eventually(t, meshtest.Patience, func() (err error) {
		d, err = m.explain(t, m.west, "shop/late", "orders")
		return err
	})
	if d.Outcome != "not ready" || d.Address != "" {
		t.Errorf("isthmus explain: %+v, want not ready", d)
	}
	if _, complaint, err := m.isthmus(t, m.west, "", "resolve", "--from", "shop/late", "orders"); err == nil || !strings.Contains(complaint, "not ready: "+d.Reason) {
		t.Errorf("isthmus resolve: %v, %s, want %q", err, complaint, d.Reason)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if ready := m.page(t, m.west.Admin, "/readyz"); !strings.Contains(ready, "not ready: store file") || !strings.Contains(ready, dir) {
			return fmt.Errorf("/readyz: %s, want the store and its place", ready)
		}
		return nil
	})
	late := m.app(t, m.west, "shop", "late")
	reached := "resolver service " + m.west.Resolver + " was reached and has sent no view yet"
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if _, err := late.Invoke(meshtest.Within(t, meshtest.Patience), "orders", "hello", untraced); err == nil || !strings.Contains(err.Error(), "not ready: ") || !strings.Contains(err.Error(), reached) {
			return fmt.Errorf("a new sidecar: %w, want not ready, and %q", err, reached)
		}
		return nil
	})
	answers(t, before, "orders", "west") // one of before has its last view

	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	answers(t, late, "orders", "west")
	m.leadsTo(t, m.west, "shop/checkout", "orders", "west")
}
