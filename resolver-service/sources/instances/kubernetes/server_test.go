package kubernetes

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// cluster is an API server that the tests of this package share. It has no controllers: the
// tests write the slices. The roles of the users service and zones are those of the manifest.
type cluster struct {
	serverstest.Kubernetes
	admin *apiserver.Server // by a way of its own, as system:masters
}

var shared = cluster{Kubernetes: serverstest.Kubernetes{Users: []string{"service", "zones", "nobody"}}}

func TestMain(m *testing.M) { serverstest.Main(m, shared.stop) }

// theCluster is the shared one, without slices and pods.
func theCluster(t testing.TB) *cluster {
	t.Helper()
	shared.Need(t, shared.prepare)
	shared.wipe(t)
	return &shared
}

// prepare makes namespaces, and gives the users the roles of the manifest.
func (c *cluster) prepare() (err error) {
	if c.admin, err = apiserver.New(apiserver.Config{Kubeconfig: c.AdminConfig()}); err != nil {
		return err
	}
	for _, args := range []string{
		"apply -f ../../../../deploy/kubernetes/rbac.yaml", "create namespace shop", "create namespace finance",
		"create clusterrolebinding service --clusterrole=isthmus-instances --user=service",
		"create clusterrolebinding zones --clusterrole=isthmus-instances --user=zones",
		"create clusterrolebinding zones-pods --clusterrole=isthmus-instances-pods --user=zones",
	} {
		if err := c.Kubectl(strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) stop() {
	if c.admin != nil {
		c.admin.Close()
	}
	c.End()
}

// config is that of a user, by the link.
func (c *cluster) config(t testing.TB, user string) Config {
	t.Helper()
	return Config{Kubeconfig: c.Kubeconfig(t, user)}
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
	if err := c.Link.Mend(); err != nil {
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

// annotate writes the annotation of a pod that declares its calls.
func (c *cluster) annotate(t testing.TB, path, calls string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{CallsAnnotation: calls}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.Call(t.Context(), apiserver.Request{Method: http.MethodPatch, Path: path, ContentType: "application/merge-patch+json", Body: text}); err != nil {
		t.Fatal(err)
	}
}
