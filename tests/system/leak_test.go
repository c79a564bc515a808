package system

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Sidecars that are killed say no good-bye. Nothing of them may stay: no stream, no
// instance, no connection through the gateway, and no goroutine that served them.
func TestNothingStaysOfSidecarsThatAreGone(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "orders", "west"))
	round := func() {
		var all []*sandbox.Sidecar
		all = append(all, m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "orders"}}))
		for i := range 6 {
			id := fmt.Sprintf("caller-%d", i)
			m.apply(t, m.west, selection("shop", id, "app: orders"))
			s := m.app(t, m.west, "shop", id)
			answers(t, s, "orders", "east")
			all = append(all, s)
		}
		for _, s := range all {
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*sandbox.Cluster{m.west, m.east} {
			meshtest.Eventually(t, meshtest.Patience, func() error { return m.deserted(t, c) })
		}
	}
	round()
	first := m.goroutines(t)
	for range 2 {
		round()
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		for name, n := range m.goroutines(t) {
			if n > first[name]+2 { // what a question to the admin server itself takes
				return fmt.Errorf("the service of %s has %d goroutines, and had %d after the first round", name, n, first[name])
			}
		}
		return nil
	})
	t.Logf("goroutines after the first round %v, after the third %v", first, m.goroutines(t))
}

// deserted wants a cluster's service to have no sidecar left.
func (m *mesh) deserted(t *testing.T, c *sandbox.Cluster) error {
	page := m.page(t, c.Admin, "/metrics")
	for name, want := range map[string]string{
		`isthmus_instances{state="ready"}`: "0", `isthmus_instances{state="draining"}`: "0", "isthmus_stream_open": "0",
		// The other cluster's service stays connected: with its exports, and to renew the lease.
		"isthmus_gateway_connections_open": "2",
	} {
		if got := value(page, name); got != want {
			return fmt.Errorf("%s of %s is %q, want %s", name, c.Name, got, want)
		}
	}
	return nil
}

// goroutines are how many each service has.
func (m *mesh) goroutines(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, c := range []*sandbox.Cluster{m.west, m.east} {
		var err error
		if n[c.Name], err = strconv.Atoi(strings.TrimSpace(value(m.page(t, c.Admin, "/metrics"), "go_goroutines"))); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
