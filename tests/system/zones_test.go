package system

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Calls stay in the caller's zone, here and in another cluster, and leave it for none that
// is lost.
func TestCallsStayInTheCallersZone(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.apply(t, m.east, export("zones", "ledger", "west"))
	m.apply(t, m.west, selection("zones", "checkout",
		"app: orders, locality: prefer", "app: ledger, locality: prefer, routes: [{cluster: east}]"))
	start := func(c *sandbox.Cluster, id, zone string) *sandbox.Sidecar {
		return m.sidecar(t, c, sandbox.SidecarOptions{
			App: catalog.App{Namespace: "zones", ID: id}, Instance: "in-" + zone,
			Component: map[string]any{"zone": map[string]any{"env": "RACK"}}, Env: map[string]string{"RACK": zone},
		})
	}
	checkout := start(m.west, "checkout", "a")
	for _, callee := range []struct {
		id      string
		cluster *sandbox.Cluster
	}{{"orders", m.west}, {"ledger", m.east}} {
		t.Run(callee.id, func(t *testing.T) {
			near := start(callee.cluster, callee.id, "a")
			start(callee.cluster, callee.id, "b")
			start(callee.cluster, callee.id, "c")
			const zones = "a: 1, b: 1, c: 1"
			meshtest.Eventually(t, meshtest.Patience, func() error {
				out, _, err := m.isthmus(t, m.west, "", "explain", "--from", "zones/checkout", callee.id)
				if err == nil && !(strings.Contains(out, "ZONES") && strings.Contains(out, zones)) {
					err = fmt.Errorf("explain does not say %q:\n%s", zones, out)
				}
				return err
			})
			calls := func(n int) (by map[string]int) {
				by = map[string]int{}
				for range n {
					reply, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), callee.id, "hello", untraced)
					if err != nil {
						t.Fatal(err)
					}
					by[reply.Instance]++
				}
				return by
			}
			here := callee.cluster.Name + " in-a"
			meshtest.Eventually(t, meshtest.Patience, func() error {
				if by := calls(100); by[here] != 100 {
					return fmt.Errorf("of 100 calls: %v", by)
				}
				return nil
			})
			if err := near.Kill(); err != nil {
				t.Fatal(err)
			}
			if by := calls(100); len(by) != 2 || by[here] > 0 { // none has failed
				t.Errorf("the zone's instance is lost, and calls are answered by %v", by)
			}
		})
	}
}
