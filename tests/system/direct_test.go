package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/dapr"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// redisComponent is a Dapr component as its users have it: nothing in it is Isthmus'.
const redisComponent = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata:
  name: configuration
spec:
  type: configuration.redis
  version: v1
  metadata:
  - name: redisHost
    value: %s
  - name: redisPassword
    value: hunter2
  - name: enableTLS
    value: "false"
`

// redisStore starts a Redis, and returns it with the file of the component on it and the
// store in it.
func redisStore(t *testing.T) (server *servers.Redis, component string, store *dapr.Store) {
	t.Helper()
	server, err := servers.StartRedis(meshtest.Within(t, meshtest.Patience), t.TempDir(), servers.RedisOptions{Config: []string{"requirepass hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	component = filepath.Join(t.TempDir(), "redis.yaml")
	if err := os.WriteFile(component, fmt.Appendf(nil, redisComponent, server.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	if store, err = dapr.Open(dapr.Config{Component: component}, configstore.Scope{}, quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return server, component, store
}

// putObjects writes objects into a store, past every service.
func putObjects(t *testing.T, s configstore.Writer, yaml ...string) {
	t.Helper()
	objects, mistakes := api.DecodeYAML("test.yaml", []byte(strings.Join(yaml, "---\n")))
	if err := mistakes.Err(); err != nil {
		t.Fatal(err)
	}
	writes := make([]configstore.Write, len(objects))
	for i, o := range objects {
		writes[i].Object = o
	}
	if _, err := s.Write(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
}

// A sidecar without a service follows its selection in the Dapr configuration store that
// the user has, and outlives it.
func TestWithoutAServiceASidecarFollowsADaprConfigurationStore(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	const namespace = "direct"
	m.apply(t, m.east, export(namespace, "orders", "west"), export(namespace, "invoices", "west"))
	m.app(t, m.east, namespace, "orders")
	m.app(t, m.east, namespace, "invoices")
	server, component, store := redisStore(t)
	inEast := func(apps ...string) string {
		endpoints := make([]string, len(apps))
		for i, app := range apps {
			endpoints[i] = "app: " + app + ", routes: [{cluster: east}]"
		}
		return selection(namespace, "checkout", endpoints...)
	}
	putObjects(t, store, meshtest.Cluster("east", m.east.Gateway), inEast("orders"))
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{
		App: catalog.App{Namespace: namespace, ID: "checkout"},
		Component: map[string]any{
			"resolver": nil, "identity": nil,
			"store": map[string]any{"dapr": map[string]any{"component": component}},
			"local": map[string]any{"component": "mdns", "version": "v1"},
		},
	})
	answers(t, checkout, "orders", "east")
	refused := func() error {
		_, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "invoices", "hello", untraced)
		if want := "denied: the caller's selection does not hold direct/invoices"; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got %v, want %q", err, want)
		}
		return nil
	}
	if err := refused(); err != nil {
		t.Error(err)
	}
	l := startLoad(t, "the store of a sidecar comes and goes", calling(checkout, "orders"))
	l.onlyFrom("east")

	putObjects(t, store, inEast("orders", "invoices"))
	follows(t, "a change of the selection", func() error {
		_, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "invoices", "hello", untraced)
		return err
	})

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	l.answersFrom("east")
	answers(t, checkout, "invoices", "east")
	if err := server.Start(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	putObjects(t, store, inEast("orders"))
	follows(t, "the first change after the store was away", refused)
	l.answersFrom("east")
	l.noneFailed()
}

// follows waits until calls follow what was just written.
func follows(t *testing.T, what string, try func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := try()
		took := time.Since(begin).Round(time.Millisecond)
		if err == nil {
			t.Logf("%s was followed by a call that ended %s later", what, took)
			return
		}
		if took > meshtest.Patience {
			t.Fatalf("%s is not followed after %s: %v", what, took, err)
		}
	}
}
