package system

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// withManifests is an API server with our definitions and roles, and with the trust bundle that
// Sentry would have made.
func withManifests(t *testing.T, root []byte) *serverstest.Kubernetes {
	t.Helper()
	k := &serverstest.Kubernetes{Users: []string{"writer", "reader"}}
	t.Cleanup(k.End)
	k.Need(t, func() error {
		const manifests = "../../deploy/kubernetes/"
		err := k.Kubectl("apply", "-f", manifests+"crds.yaml", "-f", manifests+"rbac.yaml")
		for role, users := range map[string][]string{"isthmus-reader": {"reader", "writer"}, "isthmus-status": {"reader", "writer"}, "isthmus-writer": {"writer"}} {
			for _, user := range users {
				err = errors.Join(err, k.Kubectl("create", "clusterrolebinding", role+"-"+user, "--clusterrole="+role, "--user="+user))
			}
		}
		err = errors.Join(err, k.Kubectl("create", "namespace", "dapr-system"),
			k.Kubectl("create", "configmap", "dapr-trust-bundle", "-n", "dapr-system", "--from-literal=ca.crt="+string(root)),
			k.Kubectl("create", "secret", "generic", "dapr-trust-bundle", "-n", "dapr-system", "--from-literal=ca.crt="+string(root), "--from-literal=issuer.key=kept"))
		return errors.Join(err, k.Kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=300s"))
	})
	return k
}

// A cluster whose store is Kubernetes writes its object there if it may, and otherwise says so and
// gives it out. The printed manifest changes the trust anchors, and nothing else.
func TestLinkWithObjectsInKubernetes(t *testing.T) {
	t.Parallel()
	d := twoDomains(t)
	if err := d.east.Stop(meshtest.Within(t, meshtest.Patience)); err != nil { // others take its place
		t.Fatal(err)
	}
	k := withManifests(t, d.roots["east"].Anchors())
	on := func(user string) *sandbox.Cluster {
		c, err := d.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{
			Name: "east", Authority: d.roots["east"], NoSentry: true, Store: map[string]any{"kubernetes": map[string]any{"kubeconfig": k.Kubeconfig(t, user)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	reader := on("reader")
	if _, errs, err := d.isthmus(t, reader, "", "link", "invite", "west"); err == nil || !strings.Contains(errs, "(read-only)") || !strings.Contains(errs, "--out") {
		t.Errorf("one that may not write: %v\n%s", err, errs)
	}
	invitation, _ := d.run(t, d.west, "", "link", "invite", "east")
	object, _ := d.run(t, reader, invitation, "link", "accept", "-", "--out", "-")
	if out, err := k.Run("", "get", "clusters.isthmus.dev", "-o", "name"); err != nil || strings.Contains(out, "west") {
		t.Errorf("written without the right: %v, %s", err, out)
	}
	if _, err := k.Run(object, "apply", "-f", "-"); err != nil {
		t.Errorf("the API server does not take what is given out: %v", err)
	}
	if err := errors.Join(k.Kubectl("delete", "clusters.isthmus.dev", "west"), reader.Stop(meshtest.Within(t, meshtest.Patience))); err != nil {
		t.Fatal(err)
	}

	writer := on("writer")
	d.run(t, d.west, "", "link", "unlink", "east", "--yes")
	invitation, _ = d.run(t, d.west, "", "link", "invite", "east")
	d.run(t, writer, invitation, "link", "accept", "-")
	if out, err := k.Run("", "get", "clusters.isthmus.dev", "west", "-o", "yaml"); err != nil || !strings.Contains(out, d.west.Gateway) {
		t.Errorf("the API server has %s, %v", out, err)
	}

	manifest, _ := d.run(t, writer, "", "link", "trust", "west", "--manifest")
	if _, err := k.Run(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	data := func(kind string) (all map[string]string) {
		out, err := k.Run("", "get", kind, "dapr-trust-bundle", "-n", "dapr-system", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var o struct{ Data map[string]string }
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			t.Fatal(err)
		}
		return o.Data
	}
	secret, bundle := data("secret"), data("configmap")["ca.crt"]
	text, err := base64.StdEncoding.DecodeString(secret["ca.crt"])
	if err != nil || string(text) != bundle || strings.Count(bundle, "BEGIN CERTIFICATE") != 2 ||
		!strings.Contains(bundle, string(d.roots["west"].Anchors())) || !strings.Contains(bundle, string(d.roots["east"].Anchors())) {
		t.Errorf("the Secret and the ConfigMap differ, or lack a root: %v\n%s\n%s", err, text, bundle)
	}
	if key, _ := base64.StdEncoding.DecodeString(secret["issuer.key"]); string(key) != "kept" {
		t.Errorf("the issuer's key is gone: %v", secret)
	}

	// No credential of the API server has left it.
	out, _ := d.run(t, d.west, "", "get", "clusters", "-o", "yaml")
	for _, token := range k.Tokens() {
		if strings.Contains(out+object+invitation+manifest, token) {
			t.Errorf("%s is told", token)
		}
	}
}
