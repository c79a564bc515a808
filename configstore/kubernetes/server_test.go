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
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// The manifests that users apply.
const manifests = "../../deploy/kubernetes/"

// cluster is an API server that the tests of this package share. The roles of each user are
// bound by name.
type cluster struct {
	serverstest.Kubernetes
	admin *apiserver.Server // by a way of its own, as system:masters
}

// shared are the clusters: one whose definitions take anything, as those of another
// version may, and one with the definitions that users apply.
var shared struct{ lax, strict cluster }

func TestMain(m *testing.M) { serverstest.Main(m, shared.lax.stop, shared.strict.stop) }

// lax is the cluster that takes anything for an object.
func lax(t testing.TB) *cluster {
	c := &shared.lax
	return c.need(t, func() error { return c.Kubectl("apply", "-f", c.laxDefinitions()) })
}

// strict is the cluster with what users apply.
func strict(t testing.TB) *cluster {
	c := &shared.strict
	return c.need(t, func() error {
		return c.Kubectl("apply", "-f", manifests+"crds.yaml", "-f", manifests+"admission.yaml")
	})
}

// need starts the cluster with definitions, the first time.
func (c *cluster) need(t testing.TB, define func() error) *cluster {
	t.Helper()
	c.Users = []string{"service", "reader", "sidecar", "nobody"}
	c.Need(t, func() (err error) {
		if c.admin, err = apiserver.New(apiserver.Config{Kubeconfig: c.AdminConfig()}); err != nil {
			return err
		}
		if err := errors.Join(define(), c.bind()); err != nil {
			return err
		}
		return c.Kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=300s")
	})
	return c
}

// bind gives the users the roles of the manifests.
func (c *cluster) bind() error {
	err := c.Kubectl("apply", "-f", manifests+"rbac.yaml")
	for role, users := range map[string][]string{
		"isthmus-reader": {"service", "reader"}, "isthmus-status": {"service"}, "isthmus-writer": {"service"}, "isthmus-identity": {"service"}, "isthmus-sidecar": {"sidecar"}, "isthmus-translate": {"service"},
	} {
		args := []string{"create", "clusterrolebinding", role, "--clusterrole=" + role}
		for _, user := range users {
			args = append(args, "--user="+user)
		}
		err = errors.Join(err, c.Kubectl(args...))
	}
	return err
}

func (c *cluster) stop() {
	if c.admin != nil {
		c.admin.Close()
	}
	c.End()
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
	path := filepath.Join(c.Dir, "lax.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return err.Error() // kubectl says that there is no such file
	}
	return path
}

// config is that of a store for a user, by the link.
func (c *cluster) config(t testing.TB, user string) Config {
	t.Helper()
	return Config{Kubeconfig: c.Kubeconfig(t, user)}
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
	if err := c.Link.Mend(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Keys.Delete(ctx, "/registry/isthmus.dev/", clientv3.WithPrefix()); err != nil {
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
