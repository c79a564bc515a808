package operators

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// planted are secrets where people put them: in what an object says of a check, in a pod's variables
// and annotations, in a container's log, in the service's configuration, and the users' own.
var planted = []string{"swordfish", "hunter22", "abcdefghijklmnop", "correct-horse", serverstest.TokenOf("service"), serverstest.TokenOf("bob"), "PRIVATE KEY"}

const probed = `apiVersion: isthmus.dev/v1alpha1
kind: AppInstance
metadata: {namespace: shop, name: orders-vm1}
spec: {app: orders, address: "10.0.0.5:50002", check: {http: {port: 3500, path: "/health?key=swordfish", host: "anna:swordfish@orders"}}}
`

// unpack are the files of a bundle by name.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle's mode is %v, %v", info.Mode(), err)
	}
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(text); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "isthmus-support/")] = string(content)
	}
}

// TestASupportBundleHasEverythingButSecrets, as far as the user's rights go.
func TestASupportBundleHasEverythingButSecrets(t *testing.T) {
	c := start(t, "isthmus-4", nil)
	file := filepath.Join(c.dir, "instance.yaml")
	if err := os.WriteFile(file, []byte(probed), 0o600); err != nil {
		t.Fatal(err)
	}
	bob, ann := c.kubeconfig("bob", ""), c.kubeconfig("ann", "")
	if out, code := c.run("isthmus", bob, "apply", "-f", file, "--context", "sandbox"); code != 0 {
		t.Fatalf("%d\n%s", code, out)
	}
	event := `{apiVersion: v1, kind: Event, metadata: {name: isthmus-4.1, namespace: isthmus-system}, involvedObject: {kind: Pod, name: isthmus-4, namespace: isthmus-system}, reason: Pulled, message: "pulled https://anna:swordfish@registry.example/isthmus", type: Normal, count: 1}`
	if _, err := shared.Run(event, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(c.dir, "whole.tar.gz")
	if out, code := c.run("isthmus", bob, "support-bundle", "-o", whole, "--context", "sandbox"); code != 0 || strings.Contains(out, "not in it") {
		t.Errorf("%d\n%s", code, out)
	}
	files := unpack(t, whole)
	for name, has := range map[string]string{
		"status.json": `"cluster": "west"`, "checks.json": `"kind": "Diagnosis"`, "apps.json": `"shop/orders"`, "sidecars.json": `"SidecarList"`,
		"calls.json": `"CallList"`, "events.json": "objects written", "analysis.json": `"Analysis"`, "objects.yaml": "name: orders-vm1", "version.json": `"go"`,
		"service/configuration.json": `"listen.kubernetes": "127.0.0.1:`, "service/metrics.txt": "isthmus_connections_open", "service/runtime.json": `"goroutines": `,
		"kubernetes/pods.json": `"phase": "Running"`, "kubernetes/events.json": "Pulled", "kubernetes/version.json": "gitVersion",
		"kubernetes/logs/isthmus-4-isthmus.txt": "log of isthmus-4", "INDEX.txt": "kubernetes/pods.json",
	} {
		if !strings.Contains(files[name], has) {
			t.Errorf("%s has no %s:\n%.2000s", name, has, files[name])
		}
	}
	for name, text := range files {
		for _, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has the secret %s:\n%s", name, secret, text)
			}
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON:\n%s", name, text)
		}
	}
	part := filepath.Join(c.dir, "part.tar.gz")
	out, code := c.run("kubectl-isthmus", ann, "support-bundle", "-o", part)
	files = unpack(t, part)
	for _, missing := range []string{"kubernetes/events.json", "kubernetes/logs/isthmus-4-isthmus.txt"} {
		if code != 0 || !strings.Contains(out, "not in it: "+missing) || !strings.Contains(files["INDEX.txt"], missing+": at https://") || files[missing] != "" {
			t.Errorf("%s, which takes a right: exit code %d\n%s\n%s", missing, code, out, files["INDEX.txt"])
		}
	}
	if out, code := c.run("isthmus", ann, "support-bundle", "-o", part, "--context", "sandbox"); code != 1 || !strings.Contains(out, "file exists") {
		t.Errorf("over another file: %d\n%s", code, out)
	}
}

// TestASupportBundleOfAServiceThatIsDown has what Kubernetes tells.
func TestASupportBundleOfAServiceThatIsDown(t *testing.T) {
	c := start(t, "isthmus-5", nil)
	if err := c.service.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.dir, "down.tar.gz")
	out, code := c.run("isthmus", c.kubeconfig("bob", ""), "support-bundle", "-o", path, "--context", "sandbox")
	files := unpack(t, path)
	for _, want := range []string{"status.json", "it does not answer", "connection refused; does the pod run"} {
		if code != 0 || !strings.Contains(files["INDEX.txt"], want) {
			t.Errorf("exit code %d; INDEX.txt has no %s:\n%s\n%s", code, want, out, files["INDEX.txt"])
		}
	}
	for _, name := range []string{"kubernetes/pods.json", "kubernetes/logs/isthmus-5-isthmus.txt", "checks.json"} {
		if files[name] == "" {
			t.Errorf("no %s in\n%s", name, files["INDEX.txt"])
		}
	}
	if all := []string{"apps.json", "objects.yaml"}; slices.ContainsFunc(all, func(name string) bool { return files[name] != "" }) {
		t.Errorf("a service that is down told of %v", all)
	}
}
