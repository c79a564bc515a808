package system

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

var suggestedApps = flag.Int("suggested-apps", 5, "apps of the cluster in TestTheLeastObjectsOfAWholeCluster")

// TestTheLeastObjectsOfAWholeCluster observes, takes what is suggested, and has the guard enforce it.
// Nothing that was called is refused then, and what was not called is.
func TestTheLeastObjectsOfAWholeCluster(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "stock", "west"))
	m.app(t, m.east, "shop", "stock")
	var apps []*sandbox.Sidecar // each calls the next
	for i := range *suggestedApps {
		apps = append(apps, m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: fmt.Sprint("app-", i)}, Guard: true}))
	}
	m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "finance", ID: "ledger"}, Guard: true})
	m.apply(t, m.west,
		selection("shop", "app-0", "app: app-1", "app: app-3", "app: stock, whenStale: serve", "app: ledger, namespace: finance"),
		strings.Replace(meshtest.Export("finance", "ledger", "local"), "cluster: local", "cluster: local, namespace: shop", 1))

	called := map[*sandbox.Sidecar][]string{apps[0]: {"stock", "ledger.finance"}}
	for i, from := range apps[:len(apps)-1] {
		called[from] = append(called[from], fmt.Sprint("app-", i+1))
	}
	callAll := func() {
		t.Helper()
		for from, ids := range called {
			for _, id := range ids {
				meshtest.Eventually(t, meshtest.Patience, func() error {
					_, err := from.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", untraced)
					return err
				})
			}
		}
	}
	callAll()
	dir := t.TempDir()
	suggest := func(args ...string) string {
		out, errs, err := m.isthmus(t, m.west, "", append([]string{"suggest", "--all"}, args...)...)
		if err != nil {
			t.Fatalf("isthmus suggest --all: %v\n%s%s", err, out, errs)
		}
		return out + errs
	}
	// Sidecars report every few seconds.
	want := []string{"cut off: shop/app-0 does not call shop/app-3", "cut off: AppExport finance/ledger allows shop/* of local, of whom 1 called and are named now"}
	for i := range len(apps) - 2 {
		want = append(want, fmt.Sprintf("new: shop/app-%d calls shop/app-%d in west", i+1, i+2))
	}
	var said string
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if said = suggest("-o", dir); strings.Contains(said, "does not call shop/stock") {
			return fmt.Errorf("the call to another cluster is not told yet:\n%s", said)
		}
		for _, line := range want {
			if !slices.Contains(strings.Split(said, "\n"), line) {
				return fmt.Errorf("isthmus suggest --all does not say %q:\n%s", line, said)
			}
		}
		return nil
	})
	if text, err := os.ReadFile(filepath.Join(dir, "shop", "app-0.appendpoints.yaml")); err != nil || strings.Contains(string(text), "app-3") || !strings.Contains(string(text), "whenStale: serve") {
		t.Errorf("%v\n%s", err, text)
	}
	if out, errs, err := m.isthmus(t, m.west, "", "apply", "-f", dir); err != nil {
		t.Fatalf("%v\n%s%s\n%s", err, out, errs, said)
	}
	if said := suggest(); strings.Contains(said, "new: ") || strings.Contains(said, "cut off: ") {
		t.Errorf("once it is applied, there is more to say:\n%s", said)
	}
	if out, errs, err := m.isthmus(t, m.west, "", "guard", "check"); err != nil {
		t.Errorf("isthmus guard check: %v\n%s%s", err, out, errs)
	}
	callAll()
	_, err := apps[0].Invoke(meshtest.Within(t, meshtest.Attempt), "app-3", "hello", untraced)
	if err == nil || !strings.Contains(err.Error(), "denied") && !strings.Contains(err.Error(), "DENIED") {
		t.Errorf("a call that was not seen before ends with %v, want a refusal", err)
	}
}
