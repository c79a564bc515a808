package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// alone is a sidecar's component without a service: it reads files itself.
func alone(dir string) map[string]any {
	return map[string]any{
		"resolver": nil, "identity": nil,
		"store": map[string]any{"file": map[string]any{"path": dir}},
		"local": map[string]any{"component": "mdns", "version": "v1"},
	}
}

// write puts a file into a directory as a user's tools do: whole, by a rename.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name)
	if err := errors.Join(os.WriteFile(temporary, []byte(content), 0o600), os.Rename(temporary, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutAServiceASidecarReadsFilesAndLeavesLocalAppsToDapr(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	// mDNS knows no namespaces, and reaches whoever else runs on this network.
	orders := fmt.Sprintf("orders-%d", os.Getpid())
	const namespace = "alone"
	m.apply(t, m.east, export(namespace, orders, "west"), export(namespace, "invoices", "west"))
	m.app(t, m.east, namespace, orders)
	m.app(t, m.east, namespace, "invoices")
	dir := t.TempDir()
	write(t, dir, "east.yaml", meshtest.Cluster("east", m.east.Gateway))
	write(t, dir, "checkout.yaml", selection(namespace, "checkout", "app: "+orders, "app: invoices"))
	start := func(id string) *sandbox.Sidecar {
		return m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: namespace, ID: id}, Component: alone(dir)})
	}
	start(orders)
	checkout, open := start("checkout"), start("open")
	callsItself(t, checkout, "west")

	t.Run("local apps come first", func(t *testing.T) {
		answers(t, checkout, orders, "west")
		answers(t, open, orders, "west")
	})
	t.Run("what is not here is sought in the other cluster", func(t *testing.T) { answers(t, checkout, "invoices", "east") })
	t.Run("the selection holds", func(t *testing.T) {
		_, err := checkout.Invoke(meshtest.Within(t, meshtest.Patience), "payments", "hello", untraced)
		if want := "denied: the caller's selection does not hold alone/payments"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	})
	t.Run("an app without a selection stays in its cluster", func(t *testing.T) {
		_, err := open.Invoke(meshtest.Within(t, meshtest.Patience), "invoices", "hello", untraced)
		if want := "not found: this cluster has no app alone/invoices"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	})
	t.Run("a change of a file takes effect, and no call fails", func(t *testing.T) {
		l := startLoad(t, "files change", calling(checkout, orders))
		l.onlyFrom("west")
		for _, cluster := range []string{"east", "west"} {
			write(t, dir, "checkout.yaml", selection(namespace, "checkout", "app: "+orders+", routes: [{cluster: "+cluster+"}]"))
			l.onlyFrom(cluster)
		}
		write(t, dir, "checkout.yaml", "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: alone, name: checkout}\nspec: {endpoint: []}\n")
		l.answersFrom("west") // what stood before a mistake goes on
		write(t, dir, "checkout.yaml", selection(namespace, "checkout", "app: "+orders+", routes: [{cluster: east}]"))
		l.onlyFrom("east")
		l.noneFailed()
	})
	t.Run("a gateway's address changes, and no call fails", func(t *testing.T) {
		l := startLoad(t, "a file changes a gateway", calling(checkout, orders))
		l.onlyFrom("east")
		next := newRelay(t, m.east.Gateway)
		write(t, dir, "east.yaml", meshtest.Cluster("east", next.address))
		l.uses(next)
		write(t, dir, "east.yaml", meshtest.Cluster("east", m.east.Gateway))
		l.leaves(next)
		l.noneFailed()
	})
}

func TestAnEmbeddedStoreHasOneHolder(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	component := alone("")
	component["store"] = map[string]any{"embedded": map[string]any{"path": filepath.Join(t.TempDir(), "objects.db")}}
	component["resolveTimeout"] = "500ms"
	start := func(id string) *sandbox.Sidecar {
		return m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "embedded", ID: id}, Component: component})
	}
	start("first")
	second := start("second")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		log := second.Tail(200)
		for line := range strings.Lines(log) {
			if strings.Contains(line, "objects.db") {
				t.Log(line)
				return nil
			}
		}
		return fmt.Errorf("the second sidecar does not say which file another process has:\n%s", log)
	})
}
