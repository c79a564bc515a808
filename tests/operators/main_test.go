package operators

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// users are known by tokens; ann has a client certificate.
var shared = serverstest.Kubernetes{Users: []string{"service", "bob", "carl", "dora"}}

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// rights are those of the service's account in the chart, and of people: ann reads by her group, bob
// writes and links, carl may do nothing but find the pod, and dora not even that.
var rights = []string{
	"create namespace isthmus-system",
	"create clusterrolebinding isthmus-reviewer --clusterrole=isthmus-reviewer --user=service",
	"create rolebinding isthmus-authentication-reader -n kube-system --role=extension-apiserver-authentication-reader --user=service",
	"create clusterrolebinding platform-reads --clusterrole=isthmus-operator-read --group=platform",
	"create clusterrolebinding bob-writes --clusterrole=isthmus-operator-write --user=bob",
	"create clusterrolebinding bob-links --clusterrole=isthmus-operator-link --user=bob",
	"create rolebinding operators -n isthmus-system --clusterrole=isthmus-operator-connect --group=platform --user=bob --user=carl",
	"create role view -n isthmus-system --verb=get,list --resource=events,pods/log", // as the ClusterRole of that name, which a controller fills
	"create rolebinding bob-views -n isthmus-system --role=view --user=bob",
}

// cluster is a Kubernetes cluster with a service of the cluster west in it.
type cluster struct {
	*testing.T
	*kubelet
	service *sandbox.Service
	dir     string
	link    serverstest.Link // the service's, to the API server
}

// start starts a service whose pod is called so, and a kubelet that leads to it. Without an authority
// it has no identity.
func start(t *testing.T, pod string, authority *sandbox.Authority) *cluster {
	t.Helper()
	isthmus := programstest.Path(t, "isthmus")
	shared.Need(t, func() error {
		if err := shared.Kubectl("apply", "-f", "../../deploy/kubernetes/rbac.yaml"); err != nil {
			return err
		}
		for _, args := range rights {
			if err := shared.Kubectl(strings.Fields(args)...); err != nil {
				return err
			}
		}
		return nil
	})
	c := &cluster{T: t, kubelet: startKubelet(t), dir: t.TempDir()}
	var err error
	if c.link.Proxy, err = servers.NewProxy(shared.API.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.link.Close() })
	kubeconfig := filepath.Join(c.dir, "service.kubeconfig")
	if err := servers.Kubeconfig(kubeconfig, c.link.Addr(), shared.API.CA(), serverstest.TokenOf("service")); err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.New(c.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c.service, err = box.Service(meshtest.Within(t, meshtest.Patience), sandbox.ServiceOptions{
		Cluster: "west", Authority: authority, Listen: map[string]any{"kubernetes": net.JoinHostPort("127.0.0.1", strconv.Itoa(port))},
		Settings: map[string]any{
			"kubernetes":  map[string]any{"kubeconfig": kubeconfig},
			"development": map[string]any{"loopback": false},
			"tracing":     map[string]any{"otlp": map[string]any{"endpoint": "http://anna:correct-horse@127.0.0.1:1"}, "sampleRatio": 0},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.makePod(pod, port)
	kubectl := programstest.Path(t, "kubectl")
	for name, binary := range map[string]string{"isthmus": isthmus, "kubectl-isthmus": isthmus, "kubectl": kubectl} {
		if err := os.Symlink(binary, filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// makePod writes what a kubelet would: its node, and a pod that is ready.
func (c *cluster) makePod(name string, port int) {
	c.Helper()
	node := fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: node-of-%s}, status: {addresses: [{type: InternalIP, address: 127.0.0.1}], daemonEndpoints: {kubeletEndpoint: {Port: %d}}}}`, name, c.kubelet.port())
	pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: isthmus-system, labels: {app.kubernetes.io/name: isthmus}, annotations: {note: "password: hunter22"}},
spec: {nodeName: node-of-%[1]s, containers: [{name: isthmus, image: isthmus, env: [{name: SECRET, value: swordfish}], ports: [{name: kubernetes, containerPort: %d}]}]}}`, name, port)
	for _, object := range []string{node, pod} {
		if _, err := shared.Run(object, "create", "-f", "-"); err != nil {
			c.Fatal(err)
		}
	}
	c.Cleanup(func() {
		if err := errors.Join(shared.Kubectl("delete", "pod", "-n", "isthmus-system", "--force", "--grace-period=0", name), shared.Kubectl("delete", "node", "node-of-"+name)); err != nil {
			c.Error(err)
		}
	})
	status := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	if err := shared.Kubectl("patch", "pod", "-n", "isthmus-system", name, "--subresource=status", "-p", status); err != nil {
		c.Fatal(err)
	}
}

// kubeconfig is the file of somebody: ann has a certificate, and also the token that is named.
func (c *cluster) kubeconfig(user, token string) string {
	c.Helper()
	path := filepath.Join(c.TempDir(), user+".kubeconfig")
	var err error
	if user == "ann" {
		var cert, key []byte
		if cert, key, err = shared.API.Clients.Client(user, "platform"); err == nil {
			err = servers.ClientKubeconfig(path, shared.API.Addr(), shared.API.CA(), cert, key, token)
		}
	} else {
		err = servers.Kubeconfig(path, shared.API.Addr(), shared.API.CA(), serverstest.TokenOf(user))
	}
	if err != nil {
		c.Fatal(err)
	}
	return path
}

// run runs a program as somebody, and returns what it prints and its exit code.
func (c *cluster) run(program, kubeconfig string, args ...string) (output string, code int) {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), filepath.Join(c.dir, program), args...)
	cmd.Dir = c.TempDir()
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "ISTHMUS_CONTEXTS=" + filepath.Join(c.dir, "contexts.yaml"), "PATH=" + c.dir, "HOME=" + c.dir}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return out.String(), exit.ExitCode()
	} else if err != nil {
		c.Fatal(err)
	}
	return out.String(), 0
}

// log is what the service has logged.
func (c *cluster) log() string {
	c.Helper()
	text, err := os.ReadFile(c.service.LogFile())
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}
