package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
)

// cluster is an API server with its etcd, that the tests of this package share. It has no
// controllers: the tests write the slices.
type cluster struct {
	dir   string
	etcd  *servers.Etcd
	api   *servers.Kubernetes
	link  *servers.Proxy    // that the sources under test use
	admin *apiserver.Server // by a way of its own, as system:masters
	keys  *clientv3.Client
}

// The users' tokens. The roles of service and zones are those of the manifest.
const (
	adminToken   = "token-of-admin"
	serviceToken = "token-of-service"
	zonesToken   = "token-of-zones"
	nobodyToken  = "token-of-nobody"
	wrongToken   = "token-of-a-stranger"
)

var shared struct {
	sync.Once
	cluster *cluster
	err     error
}

func TestMain(m *testing.M) {
	result := m.Run()
	shared.Do(func() {})
	if shared.cluster != nil {
		shared.cluster.stop()
	}
	if result == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			result = 1
		}
	}
	os.Exit(result)
}

// theCluster is the shared one, without slices and pods.
func theCluster(t testing.TB) *cluster {
	t.Helper()
	shared.Do(func() { shared.cluster, shared.err = startCluster() })
	if errors.Is(shared.err, sandbox.ErrNoBinary) && testing.Short() {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.cluster.wipe(t)
	return shared.cluster
}

func startCluster() (c *cluster, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c = &cluster{}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.dir, err = os.MkdirTemp("", "isthmus-endpoints-"); err != nil {
		return nil, err
	}
	if c.etcd, err = servers.StartEtcd(ctx, c.dir, servers.EtcdOptions{Args: []string{"--unsafe-no-fsync"}}); err != nil {
		return nil, err
	}
	o := servers.KubernetesOptions{Etcd: c.etcd.URL(), Args: []string{"--request-timeout=15s"}} // which is how long a stop takes
	for name, token := range map[string]string{"admin": adminToken, "service": serviceToken, "zones": zonesToken, "nobody": nobodyToken} {
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
	path := filepath.Join(c.dir, "admin.kubeconfig")
	if err := servers.Kubeconfig(path, c.api.Addr(), c.api.CA(), adminToken); err != nil {
		return nil, err
	}
	if c.admin, err = apiserver.New(apiserver.Config{Kubeconfig: path}); err != nil {
		return nil, err
	}
	return c, c.prepare(path)
}

// prepare makes namespaces, and gives the users the roles of the manifest.
func (c *cluster) prepare(kubeconfig string) error {
	kubectl, err := sandbox.Binary("kubectl")
	if err != nil {
		return err
	}
	for _, args := range []string{
		"apply -f ../../../deploy/kubernetes/rbac.yaml", "create namespace shop", "create namespace finance",
		"create clusterrolebinding service --clusterrole=isthmus-instances --user=service",
		"create clusterrolebinding zones --clusterrole=isthmus-instances --user=zones",
		"create clusterrolebinding zones-pods --clusterrole=isthmus-instances-pods --user=zones",
	} {
		cmd := exec.Command(kubectl, append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + c.dir}, strings.Fields(args)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", args, err, out)
		}
	}
	return nil
}

func (c *cluster) stop() {
	if c.keys != nil {
		_ = c.keys.Close()
	}
	if c.admin != nil {
		c.admin.Close()
	}
	if c.link != nil {
		c.link.Close()
	}
	if c.api != nil {
		_ = c.api.Kill()
	}
	if c.etcd != nil {
		_ = c.etcd.Kill()
	}
	_ = os.RemoveAll(c.dir)
}

// config is that of somebody with a token, by the link.
func (c *cluster) config(t testing.TB, token string) Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := servers.Kubeconfig(path, c.link.Addr(), c.api.CA(), token); err != nil {
		t.Fatal(err)
	}
	return Config{Kubeconfig: path}
}

func newSource(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *cluster) wipe(t testing.TB) {
	t.Helper()
	if err := c.link.Mend(); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"shop", "finance"} {
		for _, path := range []string{slicesOf(ns).Path, podsOf(ns).Path} {
			body := []byte(`{"gracePeriodSeconds":0}`)
			if _, err := c.admin.Call(t.Context(), apiserver.Request{Method: http.MethodDelete, Path: path, ContentType: "application/json", Body: body}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// put creates an object, or replaces it.
func (c *cluster) put(t testing.TB, collection, name string, body any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request := apiserver.Request{Method: http.MethodPut, Path: collection + "/" + name, ContentType: "application/json", Body: text}
	_, err = c.admin.Call(context.Background(), request)
	if apiserver.Code(err) == http.StatusNotFound {
		request.Method, request.Path = http.MethodPost, collection
		_, err = c.admin.Call(context.Background(), request)
	}
	if err != nil {
		t.Fatalf("put %s: %v\n%s", name, err, text)
	}
}

func (c *cluster) remove(t testing.TB, collection, name string) {
	t.Helper()
	body := []byte(`{"gracePeriodSeconds":0}`)
	if _, err := c.admin.Call(context.Background(), apiserver.Request{Method: http.MethodDelete, Path: collection + "/" + name, ContentType: "application/json", Body: body}); err != nil {
		t.Fatalf("delete %s: %v", name, err)
	}
}

// pod makes a pod with labels, as the injector leaves it.
func (c *cluster) pod(t testing.TB, namespace, name string, labels map[string]string) {
	t.Helper()
	all := map[string]string{"dapr.io/sidecar-injected": "true"}
	for k, v := range labels {
		all[k] = v
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": all}})
	if err != nil {
		t.Fatal(err)
	}
	path := podsOf(namespace).Path
	_, err = c.admin.Call(t.Context(), apiserver.Request{Method: http.MethodPatch, Path: path + "/" + name, ContentType: "application/merge-patch+json", Body: text})
	if apiserver.Code(err) == http.StatusNotFound {
		c.put(t, path, name, map[string]any{
			"metadata": map[string]any{"name": name, "namespace": namespace, "labels": all},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "example.invalid/app"}}},
		})
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sliceOf is an EndpointSlice as Kubernetes makes it for a service of Dapr's.
func sliceOf(namespace, name, service, family string, port int, endpoints ...map[string]any) map[string]any {
	if endpoints == nil {
		endpoints = []map[string]any{}
	}
	return map[string]any{
		"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]string{
			"kubernetes.io/service-name": service, "dapr.io/enabled": "true", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
		}},
		"addressType": family, "endpoints": endpoints,
		"ports": []any{
			map[string]any{"name": "dapr-http", "port": 3500, "protocol": "TCP"},
			map[string]any{"name": "dapr-internal", "port": port, "protocol": "TCP"},
		},
	}
}

// endpointOf is an endpoint of a pod; state is ready, starting, draining or ending.
func endpointOf(pod, address, state string) map[string]any {
	return map[string]any{
		"addresses": []string{address}, "zone": "zone-of-node",
		"targetRef":  map[string]any{"kind": "Pod", "name": pod, "uid": "uid-of-" + pod},
		"conditions": map[string]bool{"ready": state == "ready", "serving": state == "ready" || state == "draining", "terminating": state == "draining" || state == "ending"},
	}
}

func (c *cluster) restart(t testing.TB, kill bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	end := c.api.Kill
	if !kill {
		end = func() error { return c.api.Stop(ctx) }
	}
	if err := errors.Join(end(), c.api.Start(ctx)); err != nil {
		t.Fatal(err)
	}
}

// forget makes etcd forget what was, and the API server, which remembers it until it is
// started anew.
func (c *cluster) forget(t testing.TB) {
	t.Helper()
	now, err := c.keys.Get(t.Context(), "/registry")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.keys.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	c.restart(t, true)
}
