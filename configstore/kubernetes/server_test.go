package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
)

// The manifests that users apply.
const manifests = "../../deploy/kubernetes/"

// cluster is an API server with its etcd, that the tests of this package share.
type cluster struct {
	dir   string
	etcd  *servers.Etcd
	api   *servers.Kubernetes
	link  *servers.Proxy // that the stores under test use
	admin *apiServer     // by a way of its own, as system:masters
	keys  *clientv3.Client
}

// tokens of the users, by name. The roles of each are bound by name, too.
var tokens = map[string]string{
	"admin": "token-of-admin", "service": "token-of-service", "reader": "token-of-reader",
	"sidecar": "token-of-sidecar", "nobody": "token-of-nobody",
}

const wrongToken = "token-of-a-stranger"

// shared are the clusters: one whose definitions take anything, as those of another
// version may, and one with the definitions that users apply.
var shared = struct {
	lax, strict once
}{}

type once struct {
	sync.Once
	cluster *cluster
	err     error
}

func TestMain(m *testing.M) {
	result := m.Run()
	for _, o := range []*once{&shared.lax, &shared.strict} {
		o.Do(func() {})
		if o.cluster != nil {
			o.cluster.stop()
		}
	}
	if result == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			result = 1
		}
	}
	os.Exit(result)
}

// lax is the cluster that takes anything for an object.
func lax(t testing.TB) *cluster {
	return (&shared.lax).get(t, func(c *cluster) error { return c.kubectl("apply", "-f", c.laxDefinitions()) })
}

// strict is the cluster with what users apply.
func strict(t testing.TB) *cluster {
	return (&shared.strict).get(t, func(c *cluster) error {
		return c.kubectl("apply", "-f", manifests+"crds.yaml", "-f", manifests+"admission.yaml")
	})
}

func (o *once) get(t testing.TB, prepare func(*cluster) error) *cluster {
	t.Helper()
	o.Do(func() {
		o.cluster, o.err = startCluster(prepare)
	})
	if errors.Is(o.err, sandbox.ErrNoBinary) && testing.Short() {
		t.Skip(o.err)
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.cluster
}

func startCluster(prepare func(*cluster) error) (c *cluster, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c = &cluster{}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.dir, err = os.MkdirTemp("", "isthmus-kubernetes-"); err != nil {
		return nil, err
	}
	// What a kill of a process loses is not what fsync is for, and the tests write a lot.
	if c.etcd, err = servers.StartEtcd(ctx, c.dir, servers.EtcdOptions{Args: []string{"--unsafe-no-fsync"}}); err != nil {
		return nil, err
	}
	o := servers.KubernetesOptions{Etcd: c.etcd.URL(), Args: []string{"--request-timeout=15s"}} // which is how long a stop takes
	for name, token := range tokens {
		user := servers.KubernetesUser{Name: name, Token: token}
		if name == "admin" {
			user.Groups = []string{"system:masters"}
		}
		o.Users = append(o.Users, user)
	}
	if c.api, err = servers.StartKubernetes(ctx, c.dir, o); err != nil {
		return nil, err
	}
	if c.link, err = servers.NewProxy(c.api.Addr()); err != nil {
		return nil, err
	}
	if c.keys, err = clientv3.New(clientv3.Config{Endpoints: []string{c.etcd.URL()}, Logger: zap.NewNop()}); err != nil {
		return nil, err
	}
	if err := servers.Kubeconfig(c.adminConfig(), c.api.Addr(), c.api.CA(), tokens["admin"]); err != nil {
		return nil, err
	}
	if c.admin, err = newAPIServer(Config{Kubeconfig: c.adminConfig()}); err != nil {
		return nil, err
	}
	if err := errors.Join(prepare(c), c.bind()); err != nil {
		return nil, err
	}
	return c, c.kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=60s")
}

// bind gives the users the roles of the manifests.
func (c *cluster) bind() error {
	err := c.kubectl("apply", "-f", manifests+"rbac.yaml")
	for role, users := range map[string][]string{
		"isthmus-reader": {"service", "reader"}, "isthmus-status": {"service"}, "isthmus-writer": {"service"}, "isthmus-sidecar": {"sidecar"},
	} {
		args := []string{"create", "clusterrolebinding", role, "--clusterrole=" + role}
		for _, user := range users {
			args = append(args, "--user="+user)
		}
		err = errors.Join(err, c.kubectl(args...))
	}
	return err
}

func (c *cluster) stop() {
	if c.keys != nil {
		_ = c.keys.Close()
	}
	if c.link != nil {
		c.link.Close()
	}
	if c.admin != nil {
		c.admin.Close()
	}
	if c.api != nil {
		_ = c.api.Kill()
	}
	if c.etcd != nil {
		_ = c.etcd.Kill()
	}
	_ = os.RemoveAll(c.dir)
}

func (c *cluster) adminConfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// run runs kubectl as the administrator, with input if there is any.
func (c *cluster) run(input string, args ...string) (string, error) {
	binary, err := sandbox.Binary("kubectl")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(binary, append([]string{"--kubeconfig=" + c.adminConfig(), "--cache-dir=" + filepath.Join(c.dir, "cache")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (c *cluster) kubectl(args ...string) error {
	_, err := c.run("", args...)
	return err
}

// laxDefinitions is a file with definitions of the same kinds that take anything.
func (c *cluster) laxDefinitions() string {
	var text strings.Builder
	for kind, r := range kindsByName() {
		scope := "Cluster"
		if kind.Namespaced() {
			scope = "Namespaced"
		}
		fmt.Fprintf(&text, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: isthmus.dev
  scope: %s
  names: {kind: %s, listKind: %sList, plural: %s, singular: %s}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, r, scope, kind, kind, r.plural, strings.ToLower(string(kind)))
	}
	path := filepath.Join(c.dir, "lax.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return err.Error() // kubectl says that there is no such file
	}
	return path
}

// config is that of a store for a user, by the link.
func (c *cluster) config(t testing.TB, token string) Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := servers.Kubeconfig(path, c.link.Addr(), c.api.CA(), token); err != nil {
		t.Fatal(err)
	}
	return Config{Kubeconfig: path}
}

func openStore(t testing.TB, c Config, scope configstore.Scope) *Store {
	t.Helper()
	s, err := Open(c, scope, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wipe deletes every object, past the API server, which hears of it as it hears of its own
// writes.
func (c *cluster) wipe(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.link.Mend(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.keys.Delete(ctx, "/registry/isthmus.dev/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	for _, r := range kindsByName() {
		for {
			p, err := c.admin.Page(ctx, r.collection(), 1, "")
			if err == nil && len(p.Items) == 0 {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s are still there: %v", r, err)
			}
		}
	}
}

// namespaces makes namespaces, of which the API server wants every one.
type namespaces struct {
	*cluster
	mu   sync.Mutex
	made map[string]bool
}

func (n *namespaces) make(ctx context.Context, name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == "" || n.made[name] {
		return nil
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": name}})
	if err != nil {
		return err
	}
	_, err = n.admin.Call(ctx, apiserver.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", ContentType: "application/json", Body: body, Query: url.Values{}})
	if err != nil && apiserver.Code(err) != http.StatusConflict {
		return err
	}
	n.made[name] = true
	return nil
}
