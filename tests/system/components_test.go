package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The files that a user copies, as they are but for the places where things are.
func TestConfigurationsThatAUserCopies(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	plain := ownMesh(t, meshOptions{plain: true})
	m.apply(t, m.east, export("copies", "orders", "west"))
	m.app(t, m.east, "copies", "orders")
	plain.app(t, plain.west, "copies", "orders") // without certificates there are no peers
	dir := t.TempDir()
	write(t, dir, "east.yaml", meshtest.Cluster("east", m.east.Gateway))

	files, err := filepath.Glob("../../components/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %q (%v), want the files in components/", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			m, in := m, "east"
			if name == "isthmus-insecure" {
				m, in = plain, "west"
			}
			write(t, dir, name+".yaml", selection("copies", name, "app: orders"))
			m.apply(t, m.west, selection("copies", name, "app: orders"))
			s := m.copied(t, file, name, dir)
			answers(t, s, "orders", in)
			callsItself(t, s, "west")
			if name != "isthmus-tracing" {
				return
			}
			trace, traceparent := newTrace(true)
			if _, err := s.Invoke(meshtest.Within(t, meshtest.Patience), "orders", "hello", map[string][]string{"Traceparent": {traceparent}}); err != nil {
				t.Fatal(err)
			}
			m.completeTrace(t, trace, "west", "east")
		})
	}
}

// copied starts a sidecar in west with a file of components/.
func (m *mesh) copied(t *testing.T, file, id, store string) *sandbox.Sidecar {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{"127.0.0.1:7400", m.west.Resolver, "127.0.0.1:4317", m.traces.Endpoint(), "./config", store}
	if m.west.Sentry != nil {
		places = append(places, "127.0.0.1:50001", m.west.Sentry.Address)
	}
	app := catalog.App{Namespace: "copies", ID: id}
	behind, err := m.App(sandbox.AppOptions{Cluster: "west", App: app})
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.Daprd(meshtest.Within(t, meshtest.Patience), sandbox.DaprdOptions{
		Cluster: "west", App: app, AppAddress: behind.Address, Sentry: m.west.Sentry,
		Configuration: strings.NewReplacer(places...).Replace(string(text)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", d.Name(), d.Tail(15))
		}
		_ = d.Kill()
	})
	return &sandbox.Sidecar{Daprd: d, Behind: behind}
}
