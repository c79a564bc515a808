package stock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// apiServer is Kubernetes' own, with its etcd. There are no nodes and no controllers: pods
// are objects that tests make, with processes of their own for the containers.
type apiServer struct {
	*servers.Kubernetes
	client *http.Client
	trust  []byte // the certificate that its own must chain to
}

const adminToken = "token-of-the-administrator"

func startAPIServer(t *testing.T, place *network.Place, at netip.Addr) *apiServer {
	t.Helper()
	dir := t.TempDir()
	etcd, err := servers.StartEtcd(meshtest.Within(t, meshtest.Patience), dir, servers.EtcdOptions{Place: place, Args: []string{"--unsafe-no-fsync"}})
	if err != nil {
		t.Fatal(err)
	}
	ends(t, etcd.Kill)
	a := &apiServer{}
	a.Kubernetes, err = servers.StartKubernetes(meshtest.Within(t, meshtest.Patience), dir, servers.KubernetesOptions{
		Etcd: etcd.URL(), Place: place, Host: at.String(),
		Users: []servers.KubernetesUser{{Name: "admin", Token: adminToken, Groups: []string{"system:masters"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ends(t, a.Kill)
	transport, err := a.Transport()
	if err != nil {
		t.Fatal(err)
	}
	a.client = &http.Client{Transport: transport}
	if a.trust, err = os.ReadFile(a.CA()); err != nil {
		t.Fatal(err)
	}
	return a
}

// ends has something end with the test.
func ends(t *testing.T, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// object is what all objects of Kubernetes have.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string            `json:"namespace,omitempty"`
		Name      string            `json:"name"`
		UID       string            `json:"uid,omitempty"`
		Labels    map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
}

// path is where the API server has an object. The kinds that are written here have a plural
// by the rule, or are one.
func (o *object) path() string {
	api, namespace := "/apis/", ""
	if !strings.Contains(o.APIVersion, "/") {
		api = "/api/"
	}
	if o.Metadata.Namespace != "" {
		namespace = "/namespaces/" + o.Metadata.Namespace
	}
	plural := strings.TrimSuffix(strings.ToLower(o.Kind), "s") + "s"
	if stem, ok := strings.CutSuffix(plural, "ys"); ok {
		plural = stem + "ies" // NetworkPolicy
	}
	return api + o.APIVersion + namespace + "/" + plural + "/" + o.Metadata.Name
}

// apply writes objects, in YAML, as "kubectl apply --server-side" does. What a definition
// before them defines is there a moment later, so one that is unknown is tried again.
func (a *apiServer) apply(t *testing.T, manifests ...string) {
	t.Helper()
	for _, text := range strings.Split(strings.Join(manifests, "\n---\n"), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o.Kind == "" {
			continue // nothing but comments
		}
		meshtest.Eventually(t, meshtest.Patience, func() error {
			_, err := a.call(t, http.MethodPatch, o.path()+"?fieldManager=test&force=true", "application/apply-patch+yaml", []byte(text))
			return err
		})
	}
}

// get reads an object.
func (a *apiServer) get(t *testing.T, path string, into any) error {
	t.Helper()
	text, err := a.call(t, http.MethodGet, path, "", nil)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// call makes a request as the administrator.
func (a *apiServer) call(t *testing.T, method, path, contentType string, body []byte) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), meshtest.Attempt)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return text, err
}

// read is what a file has.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// daprDefinitions are the custom resources of Dapr's chart, from the module that the
// binaries are built from.
func daprDefinitions(t *testing.T) (all []string) {
	t.Helper()
	for _, file := range serverstest.DaprDefinitions(t, "../..") {
		all = append(all, read(t, file))
	}
	return all
}
