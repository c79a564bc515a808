package check

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/snapshot"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var shared = serverstest.Kubernetes{Users: []string{"viewer", "nobody"}}

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// roots are Dapr's in the cluster of these tests.
var roots string

const deploy = "../../deploy/kubernetes/"

// need starts an API server with Dapr and Isthmus in it, where all is well.
func need(t *testing.T) {
	t.Helper()
	roots = string(identitytest.NewCA(t, identitytest.LongLived).PEM())
	shared.Need(t, func() error {
		for _, namespace := range []string{"dapr-system", "isthmus-system", "shop", "finance"} {
			if err := shared.Kubectl("create", "namespace", namespace); err != nil {
				return err
			}
		}
		definitions := serverstest.DaprDefinitions(t, "../..")
		for _, file := range append(definitions, deploy+"crds.yaml") {
			if err := shared.Kubectl("apply", "--server-side", "-f", file); err != nil {
				return err
			}
		}
		if err := shared.Kubectl("wait", "--for=condition=Established", "--all", "--timeout=60s", "crd"); err != nil {
			return err
		}
		for _, file := range []string{deploy + "deployment.yaml", deploy + "service.yaml", deploy + "rbac.yaml", deploy + "dns.yaml", deploy + "networkpolicy.yaml", deploy + "sidecars.yaml", "testdata/cluster.yaml"} {
			if err := shared.Kubectl("apply", "-f", file); err != nil {
				return err
			}
		}
		for _, status := range []string{
			`deployment dapr-operator -n dapr-system {"status":{"replicas":1,"readyReplicas":1}}`,
			`deployment dapr-sentry -n dapr-system {"status":{"replicas":1,"readyReplicas":1}}`,
			`deployment dapr-sidecar-injector -n dapr-system {"status":{"replicas":1,"readyReplicas":1}}`,
			`service isthmus-gateway -n isthmus-system ` + gatewayAddress,
			`pod checkout-0 -n shop {"status":{"podIPs":[{"ip":"10.0.0.1"}]}}`,
			`pod isthmus-0 -n isthmus-system {"status":{"podIPs":[{"ip":"10.0.1.1"}]}}`,
		} {
			if err := patch(status, "--subresource=status"); err != nil {
				return err
			}
		}
		return bundle(roots, roots)
	})
	out, err := shared.Run("", "get", "configmap", "dapr-trust-bundle", "-n", "dapr-system", `-o=jsonpath={.data.ca\.crt}`)
	if err != nil {
		t.Fatal(err)
	}
	roots = out
}

const gatewayAddress = `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.9"}]}}}`

// patch patches an object: "kind name -n namespace {…}".
func patch(text string, more ...string) error {
	what, change, _ := strings.Cut(text, " {")
	return shared.Kubectl(append(append([]string{"patch"}, strings.Fields(what)...), append(more, "--type=merge", "-p", "{"+change)...)...)
}

// bundle writes Dapr's roots.
func bundle(configMap, secret string) error {
	text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dapr-trust-bundle, namespace: dapr-system}\ndata: {ca.crt: %q}\n---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: dapr-trust-bundle, namespace: dapr-system}\ndata: {ca.crt: %s, issuer.key: %[2]s}\n",
		configMap, base64.StdEncoding.EncodeToString([]byte(secret)))
	_, err := shared.Run(text, "apply", "-f", "-")
	return err
}

// apply applies manifests, and returns what deletes them.
func apply(manifests string) (remove func() error, err error) {
	_, err = shared.Run(manifests, "apply", "-f", "-")
	return func() error {
		_, err := shared.Run(manifests, "delete", "--force", "--grace-period=0", "-f", "-")
		return err
	}, err
}

func read(t *testing.T, user string) *Cluster {
	t.Helper()
	file := shared.AdminConfig()
	if user != "" {
		file = shared.Kubeconfig(t, user)
	}
	server, err := apiserver.New(apiserver.Config{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	s, err := snapshot.Read(t.Context(), server, "isthmus-system")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Snapshot: s, Namespace: "isthmus-system", Status: &v1alpha1.StatusResponse{
		Trust: []*v1alpha1.TrustStatus{{Use: identity.OwnRoot, Fingerprint: hexOf(identity.Fingerprints([]byte(roots)))[0]}},
		Peers: []*v1alpha1.PeerStatus{{Cluster: "east", Gateways: []*v1alpha1.GatewayStatus{{Address: "203.0.113.7:15443"}, {Address: "gw.north.example:15443"}}}},
	}}
	c.AskRights(t.Context(), server)
	return c
}

// faults are results as "check level kind name", without those that are OK.
func faults(results []Result) (all []string) {
	for _, r := range results {
		if r.Level != OK {
			all = append(all, strings.TrimSpace(fmt.Sprint(r.Check, " ", r.Level, " ", r.Kind, " ", r.Name)))
		}
	}
	return all
}

// checkPod is the pod of checkout, changed.
func checkPod(t *testing.T, change ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		if strings.Contains(document, "name: checkout-0") {
			return strings.NewReplacer(append([]string{"checkout-0", "cart-0", "app-id: checkout", "app-id: cart"}, change...)...).Replace(document)
		}
	}
	t.Fatal("no pod")
	return ""
}

const host = " cluster HOST"

// TestFaultsOfACluster makes each fault on a real API server, sees exactly that, and undoes it.
func TestFaultsOfACluster(t *testing.T) {
	need(t)
	other := string(identitytest.NewCA(t, identitytest.LongLived).PEM())
	patched := func(fault, cure string, more ...string) func() (func() error, error) {
		return func() (func() error, error) {
			return func() error { return patch(cure, more...) }, patch(fault, more...)
		}
	}
	applied := func(manifests string) func() (func() error, error) {
		return func() (func() error, error) { return apply(manifests) }
	}
	settings := func(change ...string) func() (func() error, error) {
		return func() (func() error, error) {
			before, err := shared.Run("", "get", "configmap", "isthmus", "-n", "isthmus-system", `-o=jsonpath={.data.isthmus\.yaml}`)
			if err != nil {
				return nil, err
			}
			write := func(text string) error {
				b, _ := json.Marshal(map[string]any{"data": map[string]string{"isthmus.yaml": text}})
				return patch("configmap isthmus -n isthmus-system " + string(b))
			}
			return func() error { return write(before) }, write(strings.NewReplacer(change...).Replace(before))
		}
	}
	for _, c := range []struct {
		name  string
		fault func() (cure func() error, err error)
		want  []string
	}{
		{"all is well", nil, nil},
		{"Dapr is not ready", patched(`deployment dapr-sentry -n dapr-system {"status":{"readyReplicas":0}}`, `deployment dapr-sentry -n dapr-system {"status":{"readyReplicas":1}}`, "--subresource=status"),
			[]string{"dapr fail deployment dapr-system/dapr-sentry"}},
		{"Dapr is old", patched(`deployment dapr-operator -n dapr-system {"metadata":{"labels":{"app.kubernetes.io/version":"1.15.3"}}}`, `deployment dapr-operator -n dapr-system {"metadata":{"labels":{"app.kubernetes.io/version":"1.18.2"}}}`),
			[]string{"dapr warn deployment dapr-system/dapr-operator"}},
		{"a part of Dapr is missing", patched(`deployment dapr-operator -n dapr-system {"metadata":{"labels":{"app.kubernetes.io/part-of":"none"}}}`, `deployment dapr-operator -n dapr-system {"metadata":{"labels":{"app.kubernetes.io/part-of":"dapr"}}}`),
			[]string{"dapr fail" + host}},
		{"Dapr is elsewhere", settings("namespace: dapr-system", "namespace: dapr"), []string{"dapr fail" + host}},
		{"mTLS is off", patched(`configurations.dapr.io daprsystem -n dapr-system {"spec":{"mtls":{"enabled":false}}}`, `configurations.dapr.io daprsystem -n dapr-system {"spec":{"mtls":{"enabled":true}}}`),
			[]string{"dapr-mtls fail configuration dapr-system/daprsystem"}},
		{"another trust domain", settings("trustDomain: cluster.local", "trustDomain: example.org"), []string{"dapr-mtls fail configuration dapr-system/daprsystem"}},
		{"Dapr's roots differ", func() (func() error, error) {
			return func() error { return bundle(roots, roots) }, bundle(roots, roots+"\n")
		},
			[]string{"dapr-trust-bundle fail" + host}},
		{"Dapr has no roots", func() (func() error, error) {
			return func() error { return bundle(roots, roots) }, shared.Kubectl("delete", "configmap", "-n", "dapr-system", "dapr-trust-bundle")
		}, []string{"dapr-trust-bundle fail" + host}},
		{"the service's roots are old", func() (func() error, error) {
			return func() error { return bundle(roots, roots) }, bundle(other, other)
		},
			[]string{"own-roots fail" + host}},
		{"the service has a copy of the roots", settings("trustAnchorsFrom:", "somethingElse:"), []string{"own-roots warn" + host}},
		{"sidecars that restricted refuses", func() (func() error, error) {
			drop := func(value string) error {
				return shared.Kubectl("set", "env", "-n", "dapr-system", "deployment/dapr-sidecar-injector", "SIDECAR_DROP_ALL_CAPABILITIES="+value)
			}
			return func() error {
					if err := drop("true"); err != nil {
						return err
					}
					return shared.Kubectl("label", "namespace", "finance", "pod-security.kubernetes.io/enforce-")
				}, func() error {
					if err := drop("false"); err != nil {
						return err
					}
					return shared.Kubectl("label", "namespace", "finance", "pod-security.kubernetes.io/enforce=restricted")
				}()
		}, []string{"pod-security warn namespace finance"}},
		{"the gateway has no address", patched(`service isthmus-gateway -n isthmus-system {"status":{"loadBalancer":{"ingress":null}}}`, "service isthmus-gateway -n isthmus-system "+gatewayAddress, "--subresource=status"),
			[]string{"gateway-service fail kubernetes service isthmus-system/isthmus-gateway"}},
		{"the gateway listens elsewhere", settings("gateway: 0.0.0.0:15443", "gateway: 0.0.0.0:443"), []string{"gateway-service fail kubernetes service isthmus-system/isthmus-gateway"}},
		{"the gateway's Service selects nothing", patched(`service isthmus-gateway -n isthmus-system {"spec":{"selector":{"app.kubernetes.io/name":"gateway"}}}`, `service isthmus-gateway -n isthmus-system {"spec":{"selector":{"app.kubernetes.io/name":"isthmus"}}}`),
			[]string{"gateway-service fail kubernetes service isthmus-system/isthmus-gateway"}},
		{"a pod without a sidecar", applied(checkPod(t, "name: daprd", "name: other")), []string{"pod-sidecar fail app shop/cart"}},
		{"a pod with a stock sidecar", applied(checkPod(t, "ghcr.io/isthmus-mesh/daprd-isthmus:0.0.0", "docker.io/daprio/daprd:1.18.2-mariner")), []string{"pod-image fail app shop/cart"}},
		{"a pod without a Configuration", applied(checkPod(t, ", --config, isthmus", "")), []string{"pod-configuration warn app shop/cart"}},
		{"a pod with another Configuration", applied(checkPod(t, "--config, isthmus", "--config, tracing") + "\n---\napiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata: {name: tracing, namespace: shop}\nspec: {}\n"),
			[]string{"pod-configuration warn app shop/cart"}},
		{"a pod with an old sidecar", applied(checkPod(t, "daprd-isthmus:0.0.0", "daprd-isthmus:v0.1.0")), []string{"pod-outdated warn app shop/cart"}},
		{"a stock sidecar with our Configuration, elsewhere", applied(checkPod(t, "namespace: shop", "namespace: finance", "ghcr.io/isthmus-mesh/daprd-isthmus:0.0.0", "daprio/daprd:1.18.2") +
			"\n---\napiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata: {name: isthmus, namespace: finance}\nspec: {nameResolution: {component: isthmus, version: v1, configuration: {}}}\n"), []string{"pod-image fail app finance/cart"}},
		{"all is well again", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cure := func() error { return nil }
			if c.fault != nil {
				var err error
				if cure, err = c.fault(); err != nil {
					t.Fatal(err)
				}
			}
			got := faults(OfCluster(read(t, ""), false))
			for i := range got {
				got[i] = strings.Replace(got[i], "https://"+shared.API.Addr(), "HOST", 1)
			}
			got = slices.Compact(got) // one for each gateway of a peer
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if err := cure(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnAppAloneIsLookedAt(t *testing.T) {
	need(t)
	remove, err := apply(checkPod(t, "name: daprd", "name: other"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}()
	for app, want := range map[string][]string{"cart": {"pod-sidecar fail app shop/cart"}, "checkout": nil} {
		c := read(t, "")
		c.App = catalog.App{Namespace: "shop", ID: app}
		if got := faults(OfCluster(c, false)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", app, got, want)
		}
	}
}

// TestBeforeInstallation looks at the same cluster as somebody who wants to install.
func TestBeforeInstallation(t *testing.T) {
	need(t)
	c := read(t, "")
	c.Name = "west"
	if got := faults(OfCluster(c, true)); len(got) > 0 {
		t.Errorf("as the administrator: %q", got)
	}
	for name, want := range map[string]string{"local": "cluster-name fail cluster local", "East": "cluster-name fail cluster East", "east": "cluster-name fail object Cluster east"} {
		c := read(t, "")
		c.Name, c.Peers = name, []string{"east"}
		if got := faults(OfCluster(c, true)); !slices.Equal(got, []string{want}) {
			t.Errorf("as %s: %q, want %q", name, got, want)
		}
	}
	c = read(t, "")
	c.Namespace = "mesh"
	if got, want := faults(OfCluster(c, true)), "cluster-name fail deployment isthmus-system/isthmus"; !slices.Equal(got, []string{want}) {
		t.Errorf("into another namespace: %q, want %q", got, want)
	}
	c = read(t, "")
	c.Balanced, c.Mutating, c.Version = 0, false, "v1.29.3"
	if got := strings.Join(faults(OfCluster(c, true)), "\n"); !strings.Contains(got, "kubernetes fail") || !strings.Contains(got, "admission-policies warn") || !strings.Contains(got, "load-balancer warn") {
		t.Errorf("of an old cluster: %s", got)
	}
	c.Nodes = make([]snapshot.Node, 1)
	for provider, found := range map[string]bool{"aws:///eu-1a/i-1": true, "azure:///x": false, "kind://docker/x": true} {
		c.Nodes[0].Spec.ProviderID = provider
		if got := strings.Contains(strings.Join(faults(OfCluster(c, true)), "\n"), "load-balancer warn"); got != found {
			t.Errorf("with nodes %s: %t", provider, got)
		}
	}
}

// TestWhatAPersonMayNotReadIsSaid, and all that can be checked is.
func TestWhatAPersonMayNotReadIsSaid(t *testing.T) {
	need(t)
	c := read(t, "nobody")
	results := OfCluster(c, false)
	all := strings.Join(faults(results), "\n")
	if !strings.Contains(all, "kubernetes-reads warn") || strings.Contains(all, "fail") {
		t.Errorf("nobody finds %s", all)
	}
	if got := faults(OfCluster(c, true)); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "install-rights fail") }) {
		t.Errorf("nobody may install: %q", got)
	}
	// What view has, and the rest of what the page asks for, is enough.
	for _, args := range []string{
		"create clusterrole viewer --verb=get,list --resource=namespaces,pods,services,nodes,configmaps,deployments.apps,configurations.dapr.io,clusters.isthmus.dev,mutatingadmissionpolicies.admissionregistration.k8s.io,mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"create clusterrolebinding viewer --clusterrole=viewer --user=viewer",
	} {
		if err := shared.Kubectl(strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	serverstest.Await(t, "the role", func() bool { return len(read(t, "viewer").Unread) == 1 })
	c = read(t, "viewer")
	if got := faults(OfCluster(c, false)); len(got) != 1 || !strings.Contains(c.Unread[0].What, "secret dapr-system/dapr-trust-bundle") {
		t.Errorf("a viewer finds %q, and could not read %v", got, c.Unread)
	}
}

// TestNothingIsWrittenAndNoKeyIsKept holds that a snapshot has only the public half of Dapr's Secret.
func TestNoKeyIsKept(t *testing.T) {
	need(t)
	if err := bundle(roots, roots); err != nil {
		t.Fatal(err)
	}
	s := read(t, "").Snapshot
	text := fmt.Sprintf("%+v", *s)
	if s.SecretRoots != roots || strings.Contains(text, "issuer.key") {
		t.Error("the snapshot has more of the Secret than its roots")
	}
}
