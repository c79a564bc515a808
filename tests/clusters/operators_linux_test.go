package clusters

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// operators have RBAC let a person read, and not write: through the API server, the kubelet and
// containerd, to a port on the loopback of a pod.
func (m *mesh) operators(t *testing.T) {
	for _, c := range m.all() {
		c.well(t)
	}
	c := m.west
	c.kubectl(t, "create clusterrolebinding isthmus-readers --clusterrole=isthmus-operator-read --user=ann")
	c.kubectl(t, "create rolebinding isthmus-operators -n isthmus-system --clusterrole=isthmus-operator-connect --user=ann")
	if out := c.must(t, "", "isthmus", c.as("ann", "status")...); !strings.Contains(out, "cluster     west") {
		t.Errorf("status: %s", out)
	}
	export := meshtest.Export("shop", "checkout", "east")
	if out, err := c.command(meshtest.Within(t, patience), export, "isthmus", c.as("ann", "apply", "-f", "-")...); err == nil || !strings.Contains(err.Error(), `user "ann" may not write in cluster west`) {
		t.Errorf("a reader writes: %v %s", err, out)
	}
	if log := c.kubectl(t, "logs -n isthmus-system --tail=-1 -l app.kubernetes.io/name=isthmus"); !strings.Contains(log, "caller=ann") {
		t.Errorf("the log does not name who was refused:\n%s", log)
	}
}

// well has the service check itself, as docs/how-to/install.md says. Who installs the chart as it is
// lets nobody write objects by the service, which it warns of.
func (c *cluster) well(t *testing.T) {
	t.Helper()
	out, err := c.command(meshtest.Within(t, patience), "", "isthmus", c.as("admin", "check")...)
	if !strings.Contains(out, " 0 failed") || strings.Count(out, "WARN") > 1 || strings.Count(out, "WARN") == 1 && !strings.Contains(out, "WARN  store-writes") {
		t.Errorf("isthmus check in %s: %v\n%s", c.name, err, out)
	}
}

// as are the arguments by which a user of the cluster runs isthmus.
func (c *cluster) as(user string, args ...string) []string {
	return append(args, "--kubeconfig", c.kubeconfig(user), "--context", "sandbox")
}
