package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/page"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// ground is a clone with Helm and kubectl on the PATH, for a cluster without nodes.
func ground(t *testing.T) *page.Ground {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"helm", "kubectl"} {
		path := programstest.Path(t, name)
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return &page.Ground{
		Dir: "../..", Env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+shared.AdminConfig(), "HOME="+t.TempDir()),
		Lacks: func(c page.Command) string {
			for begin, why := range map[string]string{
				"make images ":           "a registry: tests/install runs the images",
				"kubectl exec ":          "a kubelet",
				"kubectl rollout status": "a controller of Deployments",
				"isthmus ":               "a way into the cluster",
			} {
				if strings.HasPrefix(c.Text, begin) {
					return why
				}
			}
			return ""
		},
	}
}

// deployment is an app that runs before Isthmus comes.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}, annotations: {dapr.io/enabled: "true", dapr.io/app-id: checkout}}
    spec: {containers: [{name: checkout, image: registry.example/checkout}]}
`

// TestThePagesOfInstallingAndUpgrading types their commands one after the other, as far as a cluster
// without nodes goes.
func TestThePagesOfInstallingAndUpgrading(t *testing.T) {
	need(t)
	if err := shared.Kubectl("delete", "serviceaccount", "isthmus", "-n", "isthmus-system", "--ignore-not-found"); err != nil {
		t.Fatal(err)
	}
	if out, err := shared.Run(deployment, "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	g := ground(t)
	typed := map[string]string{} // what commands printed, by their text
	for _, name := range []string{"install", "upgrade"} {
		text, err := os.ReadFile("../../docs/how-to/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		commands := page.Console(string(text))
		if len(commands) < 5 {
			t.Errorf("%s.md has %d commands", name, len(commands))
		}
		for _, c := range commands {
			out, lacks, err := g.Type(meshtest.Within(t, meshtest.Patience), c)
			if err != nil {
				t.Fatalf("%s.md, %v", name, err)
			}
			if lacks != "" {
				t.Logf("%s.md:%d is not typed here, for want of %s: %s", name, c.Line, lacks, c.Text)
				continue
			}
			typed[c.Text] = out
		}
	}
	defer func() { // as the page says
		for _, release := range []string{"isthmus", "isthmus-crds"} {
			if _, err := helm(t, "uninstall", release, "-n", "isthmus-system", "--kubeconfig", shared.AdminConfig()); err != nil {
				t.Error(err)
			}
		}
	}()
	if len(typed) < 7 {
		t.Errorf("%d commands were typed", len(typed))
	}
	for want, args := range map[string]string{
		"2":            "get deployment isthmus -n isthmus-system -o jsonpath={.spec.replicas}",
		"isthmus":      "get configurations.dapr.io isthmus -n shop -o jsonpath={.metadata.name}",
		"restartedAt":  "get deployment checkout -n shop -o jsonpath={.spec.template.metadata.annotations}",
		"LoadBalancer": "get service isthmus-gateway -n isthmus-system -o jsonpath={.spec.type}",
	} {
		if out, err := shared.Run("", strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl %s: %v, %s; want %s", args, err, out, want)
		}
	}
	for text, out := range typed {
		if strings.HasPrefix(text, "helm template") && !strings.Contains(out, "cluster: north") {
			t.Errorf("%s: no cluster north in %s", text, out)
		}
	}
}
