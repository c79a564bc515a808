package clusters

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/page"
)

// reader is somebody at a desk, in neither cluster, whose kubeconfig has both.
type reader struct {
	place    *network.Place
	dir      string // a clone
	programs string
}

// reader sits down where both API servers can be reached.
func (m *mesh) reader(t *testing.T) *reader {
	t.Helper()
	r := &reader{dir: t.TempDir(), programs: t.TempDir()}
	var err error
	if r.place, err = m.network.Place(netip.AddrFrom4([4]byte{10, 77, 9, 1})); err != nil {
		t.Fatal(err)
	}
	for at, to := range map[string]string{
		filepath.Join(r.dir, "deploy"): filepath.Join(repository(t), "deploy"), filepath.Join(r.programs, "helm"): binary(t, "helm"),
		filepath.Join(r.programs, "kubectl"): binary(t, "kubectl"), filepath.Join(r.programs, "isthmus"): binary(t, "isthmus"),
	} {
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range m.all() {
		if err := os.WriteFile(r.kubeconfig(c), []byte(m.contexts(c)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// kubeconfig is the reader's, with the context of a cluster as the current one.
func (r *reader) kubeconfig(c *cluster) string {
	return filepath.Join(r.programs, c.name+".kubeconfig")
}

// contexts is the text of a kubeconfig with a context for each cluster.
func (m *mesh) contexts(current *cluster) string {
	var clusters, users, contexts strings.Builder
	for _, c := range m.all() {
		fmt.Fprintf(&clusters, "- {name: kind-%s, cluster: {server: %q, certificate-authority: %q}}\n", c.name, c.api.URL(), c.api.CA())
		fmt.Fprintf(&users, "- {name: kind-%s, user: {token: %q}}\n", c.name, c.token("admin"))
		fmt.Fprintf(&contexts, "- {name: kind-%[1]s, context: {cluster: kind-%[1]s, user: kind-%[1]s}}\n", c.name)
	}
	return "apiVersion: v1\nkind: Config\nclusters:\n" + clusters.String() + "users:\n" + users.String() + "contexts:\n" + contexts.String() + "current-context: kind-" + current.name + "\n"
}

// ground is where the reader types, with the context of a cluster as the current one.
func (r *reader) ground(c *cluster) *page.Ground {
	return &page.Ground{
		Dir: r.dir, Do: r.place.Do,
		Env: append(os.Environ(), "PATH="+r.programs+":"+os.Getenv("PATH"), "HOME="+r.programs, "KUBECONFIG="+r.kubeconfig(c)),
	}
}

// types runs a command that must go well, and returns what it prints.
func (r *reader) types(t *testing.T, c *cluster, command page.Command) string {
	t.Helper()
	out, _, err := r.ground(c).Type(meshtest.Within(t, patience), command)
	if err != nil {
		t.Fatalf("typed for %s: %v", c.name, err)
	}
	t.Logf("typed for %s: %s", c.name, command.Text)
	return out
}

// installPage are the commands of docs/how-to/install.md, by their sections.
func installPage(t *testing.T) map[string][]page.Command {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), "docs/how-to/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]page.Command{}
	for _, c := range page.Console(string(text)) {
		sections[c.Section] = append(sections[c.Section], c)
	}
	return sections
}

// section types the commands of a section in each cluster, "with another name in each".
func (m *mesh) section(t *testing.T, r *reader, commands []page.Command) {
	t.Helper()
	if len(commands) == 0 {
		t.Fatal("the page has no such section, or no commands in it")
	}
	for _, c := range m.all() {
		for _, command := range commands {
			command.Text = strings.ReplaceAll(command.Text, "west", c.name)
			if strings.HasPrefix(command.Text, "kubectl rollout restart") {
				time.Sleep(10 * time.Second) // as the page says
			}
			r.types(t, c, command)
			if strings.HasPrefix(command.Text, "helm install isthmus ") {
				c.balance(t, "isthmus-system", "isthmus-gateway")
			}
		}
	}
}

// untouched is a pod that has Dapr's own sidecar and is not restarted, in a namespace of Isthmus.
const untouched = `apiVersion: v1
kind: Pod
metadata: {name: untouched, namespace: finance, annotations: {dapr.io/enabled: "true", dapr.io/app-id: untouched, dapr.io/app-port: "8080"}}
spec: {containers: [{name: app, image: %s}]}
`

// TestTheInstallPage types docs/how-to/install.md, as it stands there, for two clusters that know
// nothing of each other. Apps run there with Dapr's own sidecar. Then they call each other.
func TestTheInstallPage(t *testing.T) {
	need(t)
	m := newMesh(t, true)
	m.load(t, release{repository(t), "0.0.0"}) // which the charts name
	for _, c := range m.all() {
		c.kubectl(t, "create service loadbalancer ingress --tcp=80") // of something else in the cluster
		c.balance(t, "default", "ingress")
		c.kubectl(t, "create namespace shop")
		c.kubectl(t, "create namespace finance")
		c.deploy(t, callees[c.name], 2)
		c.deploy(t, "checkout", 1)
		c.apply(t, fmt.Sprintf(untouched, image("app")))
	}
	for _, c := range m.all() {
		c.available(t, callees[c.name], "checkout")
		c.kubectl(t, "wait -n finance --timeout=5m --for=condition=Ready pod/untouched")
	}
	r, typed := m.reader(t), installPage(t)
	m.section(t, r, typed["Install"])
	m.section(t, r, typed["Operators"])
	m.section(t, r, typed["Sidecars"])
	for _, c := range m.all() {
		c.available(t, callees[c.name], "checkout")
		c.injected(t, callees[c.name], release{version: "0.0.0"})
		c.apply(t, meshtest.Export("shop", callees[c.name], m.other(c).name))
		c.apply(t, meshtest.Selection("shop", "checkout", "app: orders", "app: invoices"))
	}
	m.links(t, r, typed["Connect the clusters"])
	m.section(t, r, typed["Upgrade and remove"])
	for _, c := range m.all() {
		c.served(t)
		if restarts := c.kubectl(t, "get pod untouched -n finance -o jsonpath={.status.containerStatuses[*].restartCount}"); restarts != "0 0" {
			t.Errorf("a sidecar of Dapr's own in %s ended because Isthmus came: %s", c.name, restarts)
		}
		c.kubectl(t, "delete pod untouched -n finance")
		c.well(t)
	}
	if out := r.types(t, m.west, typed["Without Helm"][0]); !strings.Contains(out, "cluster: north") {
		t.Error("the manifests are for no cluster north")
	}
}
