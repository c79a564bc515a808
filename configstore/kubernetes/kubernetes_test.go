package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func kindsByName() map[catalog.Kind]resource {
	all := map[catalog.Kind]resource{}
	for _, kind := range catalog.Kinds() {
		all[kind] = resourceOf(kind)
	}
	return all
}

// TestStore runs against definitions that take anything, so that what is wrong gets past
// the API server, as it does where the definitions are older than the service.
func TestStore(t *testing.T) {
	c := lax(t)
	spaces := &namespaces{cluster: c, made: map[string]bool{}}
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		c.wipe(t)
		b := backend{c, spaces}
		as := func(user string) func(testing.TB) configstore.ReadWriter {
			return func(t testing.TB) configstore.ReadWriter {
				return b.open(t, c.config(t, user), configstore.Scope{})
			}
		}
		return storetest.Backend{
			Open: as("service"), Shared: true, PutRaw: b.putRaw,
			Elsewhere: func(t testing.TB) configstore.ReadWriter {
				return openStore(t, strict(t).config(t, "service"), configstore.Scope{})
			},
			Denied: as("stranger"), Unwritable: as("reader"), WrongCA: b.wrongCA, Scoped: b.scoped,
			Fail: func(t testing.TB, _ configstore.ReadWriter) func() { return c.Link.Fail(t) },
			Cut:  c.Link.Cut, Slow: c.Link.Slow, Restart: c.Restart, Compact: c.Forget, Rewind: b.rewind,
			Servers: []string{c.Link.Addr()}, Secrets: append(c.Tokens(), serverstest.TokenOf("stranger")),
			MaxBatch: MaxBatch, MaxObject: MaxObject,
			Many: 2500, // some pages; the server takes minutes to be told of many more
		}
	})
}

type backend struct {
	*cluster
	spaces *namespaces
}

// inNamespaces is a store for a test that does not know of namespaces.
type inNamespaces struct {
	*Store
	spaces *namespaces
}

func (s inNamespaces) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	for _, w := range writes {
		if api.CheckKey(w.Key()) == nil {
			namespace, _ := inKubernetes(w.Key())
			if err := s.spaces.make(context.WithoutCancel(ctx), namespace); err != nil {
				return nil, err
			}
		}
	}
	return s.Store.Write(ctx, writes...)
}

func (b backend) open(t testing.TB, c Config, scope configstore.Scope) configstore.ReadWriter {
	return inNamespaces{openStore(t, c, scope), b.spaces}
}

func (b backend) wrongCA(t testing.TB) configstore.ReadWriter {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := servers.Kubeconfig(path, b.Link.Addr(), serverstest.OtherCA(t), serverstest.TokenOf("service")); err != nil {
		t.Fatal(err)
	}
	return b.open(t, Config{Kubeconfig: path}, configstore.Scope{})
}

// scoped is as a sidecar that may read its own selection and every Cluster, and nothing
// else.
func (b backend) scoped(t testing.TB, s configstore.Scope) configstore.ReadWriter {
	t.Helper()
	if err := b.spaces.make(t.Context(), s.App.Namespace); err != nil {
		t.Fatal(err)
	}
	b.allowSidecar(t, s.App)
	return b.open(t, b.config(t, "sidecar"), s)
}

// allowSidecar applies deploy/kubernetes/sidecar.yaml for the user sidecar.
func (c *cluster) allowSidecar(t testing.TB, app catalog.App) {
	t.Helper()
	text, err := os.ReadFile(manifests + "sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	yaml := strings.NewReplacer(
		"{kind: ServiceAccount, name: checkout, namespace: shop}", "{kind: User, name: sidecar, apiGroup: rbac.authorization.k8s.io}",
		"[checkout]", "["+app.ID+"]", "namespace: shop", "namespace: "+app.Namespace,
	).Replace(string(text))
	if out, err := c.Run(yaml, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// putRaw puts what is no object, as the spec of a resource that has the name of the path
// if Kubernetes knows such names.
func (b backend) putRaw(t testing.TB, _ configstore.ReadWriter, path string, value []byte) {
	t.Helper()
	key, ok := looseKey(path)
	if !ok {
		return // Kubernetes has no place for it
	}
	if err := b.spaces.make(t.Context(), key.Namespace); err != nil {
		t.Fatal(err)
	}
	if value == nil {
		if _, err := b.admin.Call(t.Context(), apiserver.Request{Method: http.MethodDelete, Path: objectPath(key)}); err != nil {
			t.Fatal(err)
		}
		return
	}
	b.putJSON(t, key, rawBody(key, value))
}

// rawBody makes a resource of any value.
func rawBody(key catalog.Key, value []byte) map[string]any {
	body := map[string]any{}
	if json.Unmarshal(value, &body) != nil || body["spec"] == nil {
		body = map[string]any{"spec": string(value)}
	}
	if named, _ := body["metadata"].(map[string]any); named != nil && named["name"] != key.Name {
		body["spec"] = named // its name can't be another than its key's
	}
	body["apiVersion"], body["kind"] = catalog.Version, key.Kind
	return body
}

// putJSON creates a resource, or replaces one.
func (b backend) putJSON(t testing.TB, key catalog.Key, body map[string]any) {
	t.Helper()
	metadata := map[string]string{"namespace": key.Namespace, "name": key.Name}
	body["metadata"] = metadata
	r := resourceOf(key.Kind)
	q := apiserver.Request{Method: http.MethodPost, Path: r.path(key.Namespace), ContentType: "application/json"}
	text, err := b.admin.Call(t.Context(), apiserver.Request{Method: http.MethodGet, Path: objectPath(key)})
	if err == nil {
		there, err := r.parse(text)
		if err != nil {
			t.Fatal(err)
		}
		metadata["resourceVersion"] = there.meta.ResourceVersion
		q.Method, q.Path = http.MethodPut, objectPath(key)
	} else if !missing(err, r) {
		t.Fatal(err)
	}
	if q.Body, err = json.Marshal(body); err != nil {
		t.Fatal(err)
	}
	_, err = b.admin.Call(t.Context(), q)
	if apiserver.Code(err) == http.StatusConflict {
		b.putJSON(t, key, body) // its status was written meanwhile
	} else if err != nil {
		t.Fatal(err)
	}
}

// looseKey is the key of a path, with the names that Kubernetes takes: also some with
// dots, that objects can't have.
func looseKey(path string) (catalog.Key, bool) {
	parts := strings.Split(strings.TrimPrefix(path, api.KeyPrefix), "/")
	for kind := range kindsByName() {
		switch {
		case string(kind) != parts[0]:
		case kind.Namespaced() && len(parts) == 3:
			return catalog.Key{Kind: kind, Namespace: parts[1], Name: strings.ToLower(parts[2])}, true
		case !kind.Namespaced() && len(parts) == 2 && parts[1] == strings.ToLower(parts[1]):
			return catalog.Key{Kind: kind, Name: parts[1]}, true
		case !kind.Namespaced():
			return catalog.Key{Kind: kind, Name: strings.ToLower(strings.Join(parts[1:], ".")) + ".of.somebody"}, true
		}
	}
	return catalog.Key{}, false
}

// rewind restores etcd as Kubernetes tells its operators to:
// https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster
func (b backend) rewind(t testing.TB) (restore func()) {
	t.Helper()
	binary := programstest.Path(t, "etcdctl")
	backup := filepath.Join(t.TempDir(), "backup")
	var out bytes.Buffer
	cmd := exec.Command(binary, "--endpoints="+b.Etcd.URL(), "--dial-timeout=1m", "--command-timeout=1m", "snapshot", "save", backup)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatal(fmt.Errorf("%w\n%s", err, out.String()))
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := b.API.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := b.Etcd.Restore(ctx, backup, "--bump-revision=1000000000", "--mark-compacted"); err != nil {
			t.Fatal(err)
		}
		if err := b.API.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
