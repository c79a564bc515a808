package clusters

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// upgrade brings a release into a cluster, as docs/how-to/install.md says: the definitions first, then
// the service. Sidecars stay as they are.
func (c *cluster) upgrade(t *testing.T, to release) {
	t.Helper()
	charts := filepath.Join(to.root, "deploy/chart")
	c.must(t, "", "helm", "upgrade", "isthmus-crds", filepath.Join(charts, "isthmus-crds"), "-n", "isthmus-system")
	c.must(t, "", "helm", "upgrade", "isthmus", filepath.Join(charts, "isthmus"), "-n", "isthmus-system", "--reset-then-reuse-values", "--set", to.tags())
	c.served(t)
}

// rollBack is the way back that docs/how-to/install.md has. The definitions stay.
func (c *cluster) rollBack(t *testing.T, _ release) {
	t.Helper()
	c.must(t, "", "helm", "rollback", "isthmus", "-n", "isthmus-system")
	c.served(t)
}

// served waits until the two pods of the service are those of its Deployment, and no others are left.
func (c *cluster) served(t *testing.T) {
	t.Helper()
	c.kubectl(t, "rollout status -n isthmus-system --timeout=5m deployment/isthmus")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if pods := strings.Fields(c.kubectl(t, "get pods -n isthmus-system -o name")); len(pods) != 2 {
			return fmt.Errorf("the pods in %s are %q, want two", c.name, pods)
		}
		return nil
	})
}

// sidecars has the pods of an app made anew, with the sidecar of a release.
func (c *cluster) sidecars(t *testing.T, id string, of release) {
	t.Helper()
	c.kubectl(t, "rollout restart -n shop deployment/"+id)
	c.available(t, id)
	c.injected(t, id, of)
}

// meets has a new pod in west start with the sidecar of a release where the service has the other, and
// call apps of both clusters.
func (m *mesh) meets(t *testing.T, sidecar release) {
	t.Helper()
	c := m.west
	c.apply(t, meshtest.Selection("shop", "visitor", "app: orders", "app: invoices"))
	c.deploy(t, "visitor", 1, "dapr.io/sidecar-image: "+sidecar.sidecar(), "dapr.io/config: isthmus")
	c.available(t, "visitor")
	visitor := c.caller(t, "visitor")
	for _, at := range m.all() {
		visitor.reaches(t, callees[at.name], at)
	}
	c.kubectl(t, "delete deployment visitor -n shop")
}

// apart checks that west and east have services of different releases, which hear each other.
func (m *mesh) apart(t *testing.T) {
	t.Helper()
	var status struct {
		Version string
		Peers   []struct{ State, Version string }
	}
	if err := m.west.isthmus(t, "status", &status); err != nil {
		t.Fatal(err)
	}
	t.Logf("west has %s, and its peer %v", status.Version, status.Peers)
	if len(status.Peers) != 1 || status.Peers[0].State != "connected" || status.Peers[0].Version == "" || status.Peers[0].Version == status.Version {
		t.Errorf("west has %s, and its peers %v; want another version, connected", status.Version, status.Peers)
	}
}

// upgrades goes from the release before to this one, back, and there again, while both clusters call
// each other. In between, each part meets the other release of each other part.
func (m *mesh) upgrades(t *testing.T, before, now release) {
	m.load(t, now)
	l := steadily(t, m.callers(t)) // whose sidecars stay as they are
	m.meets(t, now)
	for i, step := range []struct {
		take func(*cluster, *testing.T, release)
		to   release
	}{{(*cluster).upgrade, now}, {(*cluster).rollBack, before}, {(*cluster).upgrade, now}} {
		for _, c := range m.all() {
			step.take(c, t, step.to)
			if i == 0 && c == m.west {
				m.apart(t)
				m.meets(t, before)
			}
			c.sidecars(t, callees[c.name], step.to)
		}
	}
	l.lossless(t)
	for _, c := range m.all() { // which isthmus check asks for
		c.kubectl(t, "rollout restart -n shop deployment/checkout")
		c.available(t, "checkout")
	}
}
