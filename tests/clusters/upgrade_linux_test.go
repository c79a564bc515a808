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

// upgrades goes from the release before to this one, back, and there again, while both clusters call
// each other. In between, each part meets the other release of each other part.
func (m *mesh) upgrades(t *testing.T, before, now release) {
	l := steadily(t, m.callers(t)) // whose sidecars stay as they are
	for _, step := range []struct {
		take func(*cluster, *testing.T, release)
		to   release
	}{{(*cluster).upgrade, now}, {(*cluster).rollBack, before}, {(*cluster).upgrade, now}} {
		for _, c := range m.all() {
			step.take(c, t, step.to)
			c.sidecars(t, callees[c.name], step.to)
		}
	}
	l.lossless(t)
}
