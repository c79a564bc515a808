package stock

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// What Dapr's chart has for the control plane.
const (
	controlPlane            = "dapr-system"
	controlPlaneTrustDomain = "cluster.local"
	sentryAudience          = "spiffe://" + controlPlaneTrustDomain + "/ns/" + controlPlane + "/dapr-sentry"
)

// Ports of the control plane. Its services are headless here, as nobody forwards those that
// have an address, so these are what clients dial.
const (
	sentryPort   = 50001
	operatorPort = 6500
)

// plane is Kubernetes with Dapr in it.
type plane struct {
	api     *apiServer
	sentry  *sandbox.Sentry
	dns     netip.Addr // CoreDNS, which all pods ask
	members int

	// The pod of Isthmus, and what its isthmus.yaml says.
	isthmus  *member
	settings map[string]any
}

// controlPlaneObjects are what Dapr's chart makes, but for its roles: accounts of Dapr may
// do everything here.
const controlPlaneObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: dapr-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: isthmus-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: dapr-trust-bundle, namespace: dapr-system}
data: {ca.crt: %[1]s, issuer.crt: %[2]s, issuer.key: %[3]s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: dapr-trust-bundle, namespace: dapr-system}
data: {ca.crt: %[4]q}
---
apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: daprsystem, namespace: dapr-system}
spec:
  mtls:
    enabled: true
    controlPlaneTrustDomain: cluster.local
    sentryAddress: dapr-sentry.dapr-system.svc.cluster.local:50001
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dapr}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: "system:serviceaccounts:dapr-system"}]
`

// startPlane starts Kubernetes and Dapr's control plane in the place of the cluster.
func (c *cluster) startPlane(t *testing.T) {
	t.Helper()
	c.plane = &plane{api: startAPIServer(t, c.place, c.address(1)), dns: c.address(3)}
	cert, key, err := c.lab.authority.Issuer(c.name)
	if err != nil {
		t.Fatal(err)
	}
	code := base64.StdEncoding.EncodeToString
	anchors := c.lab.authority.Anchors()
	c.plane.api.apply(t, append(daprDefinitions(t),
		read(t, "../../deploy/kubernetes/crds.yaml"), read(t, "../../deploy/kubernetes/rbac.yaml"),
		fmt.Sprintf(controlPlaneObjects, code(anchors), code(cert), code(key), anchors),
		read(t, "../../deploy/kubernetes/service.yaml"), read(t, "../../deploy/kubernetes/writer.yaml"), read(t, "../../deploy/kubernetes/networkpolicy.yaml"),
		read(t, "../../deploy/kubernetes/deployment.yaml"), read(t, "../../deploy/kubernetes/dns.yaml"),
		service(controlPlane, "dapr-sentry", sentryPort, c.address(1)), service(controlPlane, "dapr-api", operatorPort, c.address(1)),
	)...)
	c.deployed(t)
	c.startCoreDNS(t)
	sentry, operator := c.sentry(t, anchors), c.operator(t)
	for _, p := range []*sandbox.Process{sentry, operator} { // the latter waits for the former
		if err := p.WaitReady(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
}

// deployed makes a pod of Isthmus as deploy/kubernetes/deployment.yaml has it, which the API
// server has taken.
func (c *cluster) deployed(t *testing.T) {
	t.Helper()
	var deployment struct {
		Spec struct {
			Template struct {
				Metadata struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
				Spec struct {
					Account string `json:"serviceAccountName"`
					Volumes []struct {
						Projected struct {
							Sources []struct {
								Token struct {
									Audience string `json:"audience"`
								} `json:"serviceAccountToken"`
							} `json:"sources"`
						} `json:"projected"`
					} `json:"volumes"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	var config struct {
		Data map[string]string `json:"data"`
	}
	a := c.plane.api
	for path, into := range map[string]any{
		"/apis/apps/v1/namespaces/isthmus-system/deployments/isthmus": &deployment, "/api/v1/namespaces/isthmus-system/configmaps/isthmus": &config,
	} {
		if err := a.get(t, path, into); err != nil {
			t.Fatal(err)
		}
	}
	pod, audience := deployment.Spec.Template, ""
	for _, v := range pod.Spec.Volumes {
		for _, s := range v.Projected.Sources {
			audience = s.Token.Audience
		}
	}
	if audience != sentryAudience {
		t.Fatalf("deployment.yaml has a token for %q, Sentry is %q", audience, sentryAudience)
	}
	if err := yaml.UnmarshalStrict([]byte(config.Data["isthmus.yaml"]), &c.plane.settings); err != nil {
		t.Fatal(err)
	}
	c.plane.isthmus = c.member(t, "isthmus-system", pod.Spec.Account, pod.Metadata.Annotations)
}

// service is a headless service with one endpoint.
func service(namespace, name string, port int, at netip.Addr) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {clusterIP: None, ports: [{name: grpc, port: %d}]}
---%s`, name, namespace, port, endpoint(namespace, name, port, at))
}

// endpoint is the endpoint of a service that has one.
func endpoint(namespace, name string, port int, at netip.Addr) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-1, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{port: %[3]d}]
endpoints: [{addresses: ["%[4]s"], conditions: {ready: true}}]
`, namespace, name, port, at)
}

// startCoreDNS starts what pods ask: for names of this cluster it asks the API server, and
// for those that docs/how-to/dns-on-kubernetes.md says it asks Isthmus.
func (c *cluster) startCoreDNS(t *testing.T) {
	t.Helper()
	place, box := c.lab.at(t, c.plane.dns)
	kubeconfig := filepath.Join(box.Dir(), "kubeconfig")
	if err := servers.Kubeconfig(kubeconfig, c.plane.api.Addr(), c.plane.api.CA(), adminToken); err != nil {
		t.Fatal(err)
	}
	page := read(t, "../../docs/how-to/dns-on-kubernetes.md")
	corefile := corefileOf(t, page, "isthmus.internal:53") + corefileOf(t, page, "view dapr") +
		".:53 {\n    errors\n    kubernetes cluster.local {\n        kubeconfig " + kubeconfig + "\n    }\n}\n"
	process, err := servers.StartCoreDNS(meshtest.Within(t, meshtest.Patience), box.Dir(), servers.CoreDNSOptions{
		Listen: netip.AddrPortFrom(c.plane.dns, 53), Place: place,
		Corefile: strings.ReplaceAll(corefile, "10.96.0.53", c.dns().String()),
	})
	if err != nil {
		t.Fatal(err)
	}
	ends(t, process.Kill)
}

// corefileOf is the block of a page that has a text in it.
func corefileOf(t *testing.T, page, with string) string {
	t.Helper()
	for _, part := range strings.Split(page, "```corefile\n")[1:] {
		if block, _, ok := strings.Cut(part, "```\n"); ok && strings.Contains(block, with) {
			return block
		}
	}
	t.Fatalf("the page shows no Corefile with %s", with)
	return ""
}

// sentry starts Dapr's certificate authority, which asks the API server whose a token is.
func (c *cluster) sentry(t *testing.T, anchors []byte) *sandbox.Process {
	t.Helper()
	m, ports := c.member(t, controlPlane, "dapr-sentry", map[string]string{"dapr.io/control-plane": "sentry"}), freePorts(t)
	process := c.launch(t, "sentry", m, ports[0],
		"--mode", "kubernetes", "--trust-domain", controlPlaneTrustDomain, "--issuer-credentials", "/var/run/secrets/dapr.io/tls",
		"--listen-address", c.address(1).String(), "--port", strconv.Itoa(sentryPort),
		"--healthz-port", ports[0], "--metrics-port", ports[1])
	c.plane.sentry = &sandbox.Sentry{
		Process: process, Address: fmt.Sprintf("dapr-sentry.%s.svc.%s:%d", controlPlane, kubernetesDomain, sentryPort),
		TrustDomain: controlPlaneTrustDomain, Anchors: anchors, AnchorsFile: "/var/run/secrets/dapr.io/tls/ca.crt",
	}
	return process
}

// operator starts what sidecars have their Configuration from, and what makes the services
// of apps.
func (c *cluster) operator(t *testing.T) *sandbox.Process {
	t.Helper()
	m, ports := c.member(t, controlPlane, "dapr-operator", map[string]string{"dapr.io/control-plane": "operator"}), freePorts(t)
	return c.launch(t, "operator", m, ports[0],
		"--listen-address", c.address(1).String(), "--port", strconv.Itoa(operatorPort), "--webhook-server-port", ports[2],
		"--trust-anchors-file", "/var/run/secrets/dapr.io/tls/ca.crt", "--healthz-port", ports[0], "--metrics-port", ports[1])
}

func freePorts(t *testing.T) [3]string {
	t.Helper()
	var all [3]string
	for i := range all {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		all[i] = strconv.Itoa(port)
	}
	return all
}

// launch starts a program of the control plane, until the test ends.
func (c *cluster) launch(t *testing.T, program string, m *member, health string, args ...string) *sandbox.Process {
	t.Helper()
	binary := programstest.Path(t, program)
	resolvConf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte(c.resolvConf(controlPlane)), 0o600); err != nil {
		t.Fatal(err)
	}
	process, err := sandbox.Start(sandbox.Command{
		Name: program + "-" + c.name, Path: binary, Args: args, Env: c.env(controlPlane), LogDir: c.box.Dir(), Place: c.place,
		ReadyURL: "http://127.0.0.1:" + health + "/healthz", ResolvConf: resolvConf, Secrets: m.dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", process.Name(), process.Tail(25))
		}
	})
	ends(t, process.Kill)
	return process
}

// env is what Kubernetes and Dapr's injector put into the environment of a container.
func (c *cluster) env(namespace string) []string {
	at := netip.MustParseAddrPort(c.plane.api.Addr())
	return []string{
		"NAMESPACE=" + namespace, "KUBERNETES_SERVICE_HOST=" + at.Addr().String(), fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", at.Port()),
		// Dapr's programs refuse to run as root; in a container they are somebody else.
		"DAPR_UNSAFE_SKIP_CONTAINER_UID_GID_CHECK=true",
	}
}

// resolvConf is what the kubelet writes.
func (c *cluster) resolvConf(namespace string) string {
	return fmt.Sprintf("search %s.svc.%[2]s svc.%[2]s %[2]s\nnameserver %[3]s\noptions ndots:5\n", namespace, kubernetesDomain, c.plane.dns)
}

// member is a pod's object and what is mounted into its containers.
type member struct{ name, dir string }

// member makes a pod that runs as the service account of its name, with the tokens that
// Kubernetes and Dapr's injector have mounted.
func (c *cluster) member(t *testing.T, namespace, account string, annotations map[string]string) *member {
	t.Helper()
	c.plane.members++
	m := &member{name: fmt.Sprintf("%s-%d", account, c.plane.members), dir: t.TempDir()}
	marks, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	a := c.plane.api
	a.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: v1
kind: Pod
metadata: {name: %[3]s, namespace: %[1]s, annotations: %[4]s}
spec: {serviceAccountName: %[2]s, containers: [{name: main, image: main}]}
`, namespace, account, m.name, marks))
	for path, text := range map[string]string{
		"dapr.io/sentrytoken/token":              a.token(t, namespace, account, m.name, sentryAudience),
		"dapr.io/tls/ca.crt":                     string(c.lab.authority.Anchors()),
		"kubernetes.io/serviceaccount/token":     a.token(t, namespace, account, m.name, ""),
		"kubernetes.io/serviceaccount/ca.crt":    string(a.trust),
		"kubernetes.io/serviceaccount/namespace": namespace,
	} {
		file := filepath.Join(m.dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// token has the API server make a token of an account for a pod, as the kubelet does.
func (a *apiServer) token(t *testing.T, namespace, account, pod, audience string) string {
	t.Helper()
	var of object
	if err := a.get(t, "/api/v1/namespaces/"+namespace+"/pods/"+pod, &of); err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{
		"expirationSeconds": 7200,
		"boundObjectRef":    map[string]any{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": of.Metadata.UID},
	}
	if audience != "" {
		spec["audiences"] = []string{audience}
	}
	request, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.call(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", "application/json", request)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status.Token == "" {
		t.Fatalf("a token for %s: %v, %s", pod, err, text)
	}
	return answer.Status.Token
}
