package system

import (
	"fmt"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// versioned starts an instance of an app that says its version, by which it answers: "east 2.0 b".
func (m *mesh) versioned(t *testing.T, c *sandbox.Cluster, app catalog.App, version, instance string) *sandbox.Sidecar {
	t.Helper()
	o := sandbox.SidecarOptions{App: app, Instance: strings.TrimSpace(version + " " + instance)}
	if version != "" {
		o.Component = map[string]any{"version": map[string]any{"env": "APP_VERSION"}}
		o.Env = map[string]string{"APP_VERSION": version}
	}
	return m.sidecar(t, c, o)
}

// In both clusters run two versions, and an instance that says none. Nine calls of ten go to 1.x here,
// and one to 2.x there. Then 2.x ends there, and comes back at the address of 1.x.
func TestACanaryByVersionAndWeight(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	orders := catalog.App{Namespace: "canary", ID: "orders"}
	m.apply(t, m.east, export("canary", "orders", "west"))
	m.apply(t, m.west, selection("canary", "checkout", `app: orders, routes: [{cluster: local, weight: 90, versions: ["1.*"]}, {cluster: east, weight: 10, versions: ["2.*"]}]`))
	for _, c := range []*sandbox.Cluster{m.west, m.east} {
		m.versioned(t, c, orders, "1.9", "")
		m.versioned(t, c, orders, "", "unversioned")
	}
	m.versioned(t, m.west, orders, "2.0", "")
	canary := m.versioned(t, m.east, orders, "2.0", "a")
	m.versioned(t, m.east, orders, "2.1", "")
	checkout := m.app(t, m.west, "canary", "checkout")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, _, err := m.isthmus(t, m.west, "", "explain", "--from", "canary/checkout", "orders")
		for _, want := range []string{"VERSIONS", "1.* of 1.9: 1, 2.0: 1, unknown: 1", "2.* of 1.9: 1, 2.0: 1, 2.1: 1, unknown: 1"} {
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("explain does not say %q:\n%s", want, out)
			}
		}
		return err
	})
	calls := func(n int) (by map[string]int) {
		t.Helper()
		by = map[string]int{}
		for range n {
			reply, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced)
			if err != nil {
				t.Fatal(err)
			}
			by[reply.Instance]++
		}
		return by
	}
	var by map[string]int
	meshtest.Eventually(t, meshtest.Patience, func() error { // routes that have just come take their part in steps
		by = calls(1000)
		there := by["east 2.0 a"] + by["east 2.1"]
		if by["west 1.9"]+there != 1000 {
			t.Fatalf("of 1,000 calls: %v, want all at 1.9 in west and 2.x in east", by)
		}
		if math.Abs(float64(there)-100) > 15 || len(by) != 3 {
			return fmt.Errorf("of 1,000 calls: %v, want 900 at 1.9 in west and 100 at 2.x in east", by)
		}
		return nil
	})
	t.Logf("of 1,000 calls: %v", by)
	if err := canary.Kill(); err != nil {
		t.Fatal(err)
	}
	by = calls(300) // none fails
	if by["west 1.9"]+by["east 2.1"] != 300 {
		t.Errorf("one of two has gone, and calls are answered by %v", by)
	}

	// The same place, with another version: no call may go there any more.
	_, port, err := net.SplitHostPort(canary.Internal)
	if err != nil {
		t.Fatal(err)
	}
	m.sidecar(t, m.east, sandbox.SidecarOptions{
		App: orders, Instance: "1.0", Args: []string{"--dapr-internal-grpc-port", port}, Component: map[string]any{"version": "1.0"},
	})
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, _, err := m.isthmus(t, m.west, "", "explain", "--from", "canary/checkout", "orders")
		if err == nil && !strings.Contains(out, "2.* of 1.0: 1, 1.9: 1, 2.1: 1, unknown: 1") {
			err = fmt.Errorf("explain does not say that the instance has another version:\n%s", out)
		}
		return err
	})
	if by := calls(300); by["west 1.9"]+by["east 2.1"] != 300 || by["east 2.1"] == 0 {
		t.Errorf("an instance has another version, and calls are answered by %v", by)
	}
}
