package stock

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// inKubernetes has the service of a cluster run as a pod, as docs/stock.md says.
func (c *cluster) inKubernetes(o *sandbox.ClusterOptions) {
	o.Sentry, o.Env, o.Secrets = c.plane.sentry, c.env("isthmus-system"), c.plane.isthmus.dir
	o.Store = map[string]any{"kubernetes": map[string]any{}}
	o.Settings = maps.Clone(o.Settings)
	maps.Copy(o.Settings, map[string]any{
		"identity": map[string]any{"sentry": map[string]any{
			"address": netip.AddrPortFrom(c.address(1), sentryPort).String(), "namespace": controlPlane, "trustDomain": controlPlaneTrustDomain,
			"trustAnchorsFile": "/var/run/secrets/dapr.io/tls/ca.crt",
		}},
		"instances": map[string]any{"kubernetes": map[string]any{}},
		"dns":       map[string]any{"kubernetes": kubernetesDomain, "forwarders": []any{netip.PrefixFrom(c.plane.dns, 32).String()}},
	})
}

// daprConfiguration is a Configuration as an object of Kubernetes.
func daprConfiguration(name, resolution string) string {
	return fmt.Sprintf(`
apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: %s, namespace: %s}
spec:
  tracing: {samplingRate: "1"}
%s`, name, namespace, resolution)
}

// kubernetesPod is an app of this cluster, with a Deployment and a pod of it, whose sidecar
// runs as Dapr's injector has it run. stock tells whether that is without Isthmus.
func (c *cluster) kubernetesPod(t *testing.T, id, configuration string, stock bool) *pod {
	t.Helper()
	annotations := map[string]string{"dapr.io/enabled": "true", "dapr.io/app-id": id, "dapr.io/app-port": "80", "dapr.io/config": configuration}
	c.plane.api.apply(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata:
      labels: {app: %[2]s}
      annotations: {dapr.io/enabled: "true", dapr.io/app-id: %[2]s, dapr.io/app-port: "80", dapr.io/config: %[3]s}
    spec: {serviceAccountName: %[2]s, containers: [{name: main, image: main}]}
`, namespace, id, configuration))
	m := c.member(t, namespace, id, annotations)
	c.pods++
	p := &pod{in: c, address: c.address(10 + c.pods), member: m}
	var box *sandbox.Sandbox
	p.place, box = c.lab.at(t, p.address)
	app := catalog.App{Namespace: namespace, ID: id}
	var err error
	if p.behind, err = box.App(sandbox.AppOptions{Cluster: c.name, App: app, Instance: p.address.String()}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"DAPR_CONTROLPLANE_NAMESPACE": controlPlane, "DAPR_CONTROLPLANE_TRUST_DOMAIN": controlPlaneTrustDomain, "POD_NAME": m.name}
	for _, variable := range c.env(namespace) {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	p.Daprd, err = box.Daprd(meshtest.Within(t, meshtest.Patience), sandbox.DaprdOptions{
		Name: "daprd-" + m.name, Stock: stock, App: app, AppAddress: p.behind.Address,
		Internal: netip.AddrPortFrom(p.address, port).String(), Sentry: c.plane.sentry, Env: env,
		Args: []string{
			"--mode", "kubernetes", "--config", configuration,
			"--control-plane-address", fmt.Sprintf("dapr-api.%s.svc.%s:%d", controlPlane, kubernetesDomain, operatorPort),
		},
		ResolvConf: c.resolvConf(namespace), Secrets: m.dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.Name(), p.Tail(15))
		}
	})
	p.endpoint(t, true)
	return p
}

// endpoint writes the EndpointSlice of a pod of its own, as Kubernetes' controller does: for
// the service that Dapr's operator made.
func (p *pod) endpoint(t *testing.T, ready bool) {
	t.Helper()
	name := p.App.ID + "-dapr"
	var service struct {
		object
		Spec struct {
			Ports []struct {
				Name       string `json:"name"`
				TargetPort int    `json:"targetPort"`
			} `json:"ports"`
		} `json:"spec"`
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		return p.in.plane.api.get(t, "/api/v1/namespaces/"+namespace+"/services/"+name, &service)
	})
	labels := []string{fmt.Sprintf("kubernetes.io/service-name: %q", name)}
	for key, value := range service.Metadata.Labels {
		labels = append(labels, fmt.Sprintf("%s: %q", key, value))
	}
	var ports []string
	for _, port := range service.Spec.Ports {
		ports = append(ports, fmt.Sprintf("{name: %s, port: %d}", port.Name, port.TargetPort))
	}
	p.in.plane.api.apply(t, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, namespace: %s, labels: {%s}}
addressType: IPv4
ports: [%s]
endpoints:
- {addresses: ["%s"], conditions: {ready: %t}, targetRef: {kind: Pod, namespace: %[2]s, name: %[1]s}}
`, p.member.name, namespace, strings.Join(labels, ", "), strings.Join(ports, ", "), p.address, ready))
}

// Sidecars as Kubernetes runs them, without Isthmus and with it.
func TestKubernetesMode(t *testing.T) {
	p := ofKubernetes("net-1")
	p.west.kubernetes = true
	l := newLab(t, p)
	l.share(t)
	l.east.apply(t, export("invoices", "west"), export("ledger", "west"))
	l.east.known(t, "invoices", services())
	l.west.plane.api.apply(t, daprConfiguration("plain", ""))
	l.west.kubernetesPod(t, "orders", "plain", true)
	checkout := l.west.kubernetesPod(t, "checkout", "plain", true)
	l.west.apply(t, selection("checkout", "app: orders", "app: invoices"))
	checkout.reaches(t, "orders", l.west)
	checkout.reaches(t, "invoices", l.east)
	checkout.fails(t, "ledger")
}
