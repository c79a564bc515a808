package clusters

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// mesh is two clusters with Dapr and Isthmus, each with a root of its own that the other knows.
type mesh struct {
	network    *network.Network
	west, east *cluster
	strangers  bool // neither knows the other's root at first
	roots      map[string]*sandbox.Authority
	archives   []string
}

// registry and version are of the images of Dapr's control plane and of the tests' app.
const (
	registry = "isthmus.test"
	version  = "v1" // also a label, which no number may be
)

// newMesh starts the clusters, with Dapr in them.
func newMesh(t *testing.T, strangers bool) *mesh {
	t.Helper()
	n := network.New(1)
	ends(t, n.Close)
	app := compile(t, "./app")
	m := &mesh{network: n, strangers: strangers, roots: map[string]*sandbox.Authority{}, archives: []string{pack(t, pauseImage, app, "/app", "pause"), pack(t, image("app"), app, "/app")}}
	for _, program := range []string{"operator", "sentry", "injector"} {
		m.archives = append(m.archives, pack(t, image(program), binary(t, program)))
	}
	for _, name := range []string{"west", "east"} {
		root, err := sandbox.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		m.roots[name] = root
	}
	if strangers { // apps have Dapr's own sidecar, before Isthmus comes
		stock := filepath.Join(t.TempDir(), "daprd")
		if err := os.Symlink(binary(t, "daprd-stock"), stock); err != nil {
			t.Fatal(err)
		}
		m.archives = append(m.archives, pack(t, image("daprd"), stock))
	}
	m.west, m.east = m.cluster(t, n, "west", 1), m.cluster(t, n, "east", 2)
	return m
}

func image(name string) string { return registry + "/" + name + ":" + version }

// other is the cluster that a cluster calls.
func (m *mesh) other(c *cluster) *cluster {
	if c == m.west {
		return m.east
	}
	return m.west
}

// all are both clusters.
func (m *mesh) all() []*cluster { return []*cluster{m.west, m.east} }

func (m *mesh) cluster(t *testing.T, n *network.Network, name string, number byte) *cluster {
	t.Helper()
	c := newCluster(t, n, name, number)
	for _, archive := range m.archives {
		c.load(t, archive)
	}
	m.installDapr(t, c)
	return c
}

// trust is the text of Dapr's trust bundle: both roots, as docs/how-to/trust.md says, unless the clusters
// are strangers.
func (m *mesh) trust(c *cluster) string {
	own := string(m.roots[c.name].Anchors())
	if m.strangers {
		return own
	}
	return own + string(m.roots[map[string]string{"west": "east", "east": "west"}[c.name]].Anchors())
}

// installDapr does so by Dapr's chart. Placement and scheduler are left out: no app has actors.
func (m *mesh) installDapr(t *testing.T, c *cluster) {
	t.Helper()
	cert, key, err := m.roots[c.name].Issuer(c.name)
	if err != nil {
		t.Fatal(err)
	}
	values, err := yaml.Marshal(map[string]any{
		"global": map[string]any{
			"registry": registry, "tag": version, "actors": map[string]any{"enabled": false}, "scheduler": map[string]any{"enabled": false},
			"mtls": map[string]any{"workloadCertTTL": certificateLife.String(), "allowedClockSkew": "5s"},
		},
		"dapr_sentry": map[string]any{"tls": map[string]any{"root": map[string]any{"certPEM": m.trust(c)}, "issuer": map[string]any{"certPEM": string(cert), "keyPEM": string(key)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, string(values), "helm", "install", "dapr", serverstest.DaprChart(t, "../.."), "-n", "dapr-system", "--create-namespace", "-f", "-")
	for _, name := range []string{"sentry", "operator", "sidecar-injector"} {
		c.kubectl(t, "rollout status -n dapr-system --timeout=5m deployment/dapr-"+name)
	}
}

// release has the images of a commit: a directory with a bin, such as this repository.
type release struct{ root, version string }

// sidecar is the image of the release's sidecar.
func (r release) sidecar() string { return "ghcr.io/isthmus-mesh/daprd-isthmus:" + r.version }

// tags are the values by which a chart takes the images of the release.
func (r release) tags() string { return "image.tag=" + r.version + ",sidecars.image.tag=" + r.version }

// load has the nodes take the images of a release, as tools/release makes them.
func (m *mesh) load(t *testing.T, r release) {
	t.Helper()
	dir, on := t.TempDir(), "linux/"+runtime.GOARCH+":"
	cmd := exec.CommandContext(meshtest.Within(t, patience), "go", "run", "./release", "-root", "..", "-out", dir, "-version", "v"+r.version, "-time", "1760000000",
		"isthmus="+on+filepath.Join(r.root, "bin/isthmus"), "daprd-isthmus="+on+filepath.Join(r.root, "bin/daprd"))
	cmd.Dir = "../../tools"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"isthmus", "daprd-isthmus"} {
		for _, c := range m.all() {
			c.load(t, filepath.Join(dir, "images", name+".tar"))
		}
	}
}

// install brings Isthmus into both clusters, as docs/how-to/install.md says.
func (m *mesh) install(t *testing.T, r release) {
	t.Helper()
	for _, c := range m.all() {
		charts := filepath.Join(r.root, "deploy/chart")
		c.must(t, "", "helm", "install", "isthmus-crds", filepath.Join(charts, "isthmus-crds"), "-n", "isthmus-system", "--create-namespace")
		c.kubectl(t, "label namespace isthmus-system pod-security.kubernetes.io/enforce=restricted")
		c.kubectl(t, "create namespace shop")
		c.must(t, "", "helm", "install", "isthmus", filepath.Join(charts, "isthmus"), "-n", "isthmus-system",
			"--set", "cluster="+c.name, "--set", r.tags(), "--set", "sidecars.namespaces={shop}")
		c.balance(t, "isthmus-system", "isthmus-gateway")
		other := m.other(c)
		c.apply(t, peer(other, string(m.roots[other.name].Anchors())))
	}
	for _, c := range m.all() {
		c.served(t)
	}
}

// balance does for a Service what the load balancer of a cloud does.
func (c *cluster) balance(t *testing.T, namespace, service string) {
	t.Helper()
	c.kubectl(t, "patch -n "+namespace+" service/"+service+` --subresource=status --type=merge -p {"status":{"loadBalancer":{"ingress":[{"ip":"`+c.balancer.String()+`"}]}}}`)
}

// peer is the object Cluster that the other cluster has of one.
func peer(c *cluster, roots string) string {
	return meshtest.Cluster(c.name, c.balancer.String()+":15443") + `  trust: {roots: "` + strings.ReplaceAll(roots, "\n", `\n`) + "\"}\n"
}

// deploy makes the pods of an app, of which Dapr is told as in any cluster, with annotations more.
func (c *cluster) deploy(t *testing.T, id string, replicas int, annotations ...string) {
	t.Helper()
	c.apply(t, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: shop}
spec:
  replicas: %[2]d
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {dapr.io/enabled: "true", dapr.io/app-id: %[1]s, dapr.io/app-port: "8080"%[5]s}
    spec:
      containers:
      - name: app
        image: %[3]s
        env: [{name: CLUSTER, value: %[4]s}]
        readinessProbe: {httpGet: {path: /who, port: 8080}, periodSeconds: 2}
`, id, replicas, image("app"), c.name, strings.Join(append([]string{""}, annotations...), ", ")))
}

// available waits until all pods of an app are.
func (c *cluster) available(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		c.kubectl(t, "rollout status -n shop --timeout=5m deployment/"+id)
	}
}

// callers are the apps that call, each known to reach both others.
func (m *mesh) callers(t *testing.T) map[string]*caller {
	t.Helper()
	all := map[string]*caller{}
	for _, c := range m.all() {
		one := c.caller(t, "checkout")
		for _, at := range m.all() {
			one.reaches(t, callees[at.name], at)
		}
		all[c.name] = one
	}
	return all
}

// caller is a pod that calls others by its sidecar.
type caller struct {
	client *http.Client
	url    string
}

// caller is the one pod of an app, once those before it are gone.
func (c *cluster) caller(t *testing.T, id string) *caller {
	t.Helper()
	var at []string
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if at = strings.Fields(c.kubectl(t, "get pods -n shop -l app="+id+" -o jsonpath={.items[*].status.podIP}")); len(at) != 1 {
			return fmt.Errorf("%d pods of %s, want one", len(at), id)
		}
		return nil
	})
	return &caller{c.client(t), "http://" + net.JoinHostPort(at[0], "8080") + "/call/"}
}

// call has the app call another, and returns the cluster and the pod that answered.
func (c *caller) call(ctx context.Context, id string) (cluster, pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, meshtest.Attempt)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+id, nil)
	if err != nil {
		return "", "", err
	}
	response, err := c.client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	cluster, pod, _ = strings.Cut(string(text), " ")
	return cluster, pod, err
}

// reaches waits until calls of an app are answered in a cluster.
func (c *caller) reaches(t *testing.T, id string, in *cluster) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		from, _, err := c.call(t.Context(), id)
		if err == nil && from != in.name {
			err = fmt.Errorf("%s answers from %q, want %s", id, from, in.name)
		}
		return err
	})
}

// repository is the directory of this repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
