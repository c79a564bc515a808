package stock

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// resolverPort is where the service of a cluster in Kubernetes is asked for views.
const resolverPort = 7400

// inKubernetes has the service of a cluster run as a pod of deploy/kubernetes/deployment.yaml,
// but for addresses and files: there is no network of Kubernetes, and no kubelet.
func (c *cluster) inKubernetes(o *sandbox.ClusterOptions) {
	o.Sentry, o.Env, o.Secrets = c.plane.sentry, c.env("isthmus-system"), c.plane.isthmus.dir
	o.Listen["resolver"] = c.resolver()
	settings := c.plane.settings
	sentry := settings["identity"].(map[string]any)["sentry"].(map[string]any)
	sentry["address"] = netip.AddrPortFrom(c.address(1), sentryPort).String()
	// The operator's certificate is of the control plane's trust domain, and Sentry in Kubernetes
	// signs for the service in that of Dapr's default.
	settings["identity"].(map[string]any)["trustDomains"] = []any{sentry["trustDomain"]}
	settings["dns"].(map[string]any)["forwarders"] = []any{netip.PrefixFrom(c.plane.dns, 32).String()}
	settings["network"] = o.Settings["network"]
	delete(settings, "listen")
	delete(settings, "dataDir")
	o.Settings = settings
}

func (c *cluster) resolver() string { return netip.AddrPortFrom(c.address(1), resolverPort).String() }

// daprConfiguration is a Configuration as an object of Kubernetes.
func daprConfiguration(name, sampling, resolution string) string {
	return fmt.Sprintf(`
apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: %s, namespace: %s}
spec:
  tracing: {samplingRate: %q}
%s`, name, namespace, sampling, resolution)
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
	env := map[string]string{"DAPR_CONTROLPLANE_NAMESPACE": controlPlane, "DAPR_CONTROLPLANE_TRUST_DOMAIN": controlPlaneTrustDomain, "POD_NAME": m.name, "DAPR_HOST_IP": ""}
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
	if stock { // otherwise its stream registers it
		p.endpoint(t, true)
	}
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

// newKubernetesLab is a lab whose west is Kubernetes, with Configurations for each way, and
// which share a network. apart is the Cluster object of east for when they don't.
func newKubernetesLab(t *testing.T) (l *lab, apart string) {
	t.Helper()
	p, east := ofApps("ledger")
	shared := ofKubernetes("net-1")
	p.west.settings, p.east.settings = shared.west.settings, shared.east.settings
	p.west.kubernetes = true
	l = newLab(t, p)
	l.share(t)
	l.west.plane.api.apply(t,
		endpoint("isthmus-system", "isthmus", resolverPort, l.west.address(1)), // of the Service that is there
		daprConfiguration("plain", "1", ""),
		daprConfiguration("nameformat", "1", nameResolution("nameformat", fmt.Sprintf(`{format: "{appid}.%s.isthmus.internal:%d"}`, namespace, port))),
		withIsthmus("1"))
	return l, east(l)
}

func nameResolution(component, configuration string) string {
	return fmt.Sprintf("  nameResolution: {component: %s, version: v1, configuration: %s}\n", component, configuration)
}

// withIsthmus is the Configuration of sidecars with the component, which sample so many traces.
func withIsthmus(sampling string) string {
	return daprConfiguration("isthmus", sampling, nameResolution("isthmus", fmt.Sprintf(
		`{resolver: "isthmus.isthmus-system.svc.cluster.local:%d", cluster: west, identity: {sentry: {address: "dapr-sentry.dapr-system.svc.cluster.local:%d"}}}`,
		resolverPort, sentryPort)))
}

// TestKubernetesMode has sidecars as Kubernetes runs them, Dapr's own and with Isthmus, call
// apps here and in a cluster that shares the network. Then instances end, Dapr makes the
// sidecars start anew, and the other cluster is behind a gateway.
func TestKubernetesMode(t *testing.T) {
	programstest.Need(t, "daprd")
	l, apart := newKubernetesLab(t)
	var all []string
	for _, id := range []string{"orders", "stocktake", "invoices", "ledger", "pricing"} {
		l.east.apply(t, export(id, "west"))
		all = append(all, "app: "+id)
	}
	all = append(all, "app: tills")
	l.west.plane.api.apply(t, selection("checkout", all...), selection("reporting", all...), selection("cart", all...))
	l.east.known(t, "invoices", services())
	orders := []*pod{l.west.kubernetesPod(t, "orders", "plain", true), l.west.kubernetesPod(t, "orders", "plain", true)}
	stocktake := l.west.kubernetesPod(t, "stocktake", "isthmus", false)
	// The resolver kubernetes is what sidecars have that are told of none.
	checkout := l.west.kubernetesPod(t, "checkout", "plain", true)
	reporting := l.west.kubernetesPod(t, "reporting", "nameformat", true)
	cart := l.west.kubernetesPod(t, "cart", "isthmus", false)
	callers := []*pod{checkout, reporting, cart}

	for _, caller := range callers {
		t.Run(caller.App.ID, func(t *testing.T) {
			caller.reaches(t, "stocktake", l.west)
			caller.reaches(t, "invoices", l.east)
			meshtest.Eventually(t, meshtest.Patience, func() error {
				return caller.finds(t, "orders.shop.isthmus.internal.", orders[0].address, orders[1].address)
			})
			caller.reachesEach(t, orders)
		})
	}
	t.Run("what nobody selected", func(t *testing.T) {
		checkout.fails(t, "returns", "lookup returns-dapr.shop.svc.cluster.local on "+l.west.plane.dns.String()+":53: no such host")
		reporting.fails(t, "returns", "no children to pick from") // what DNS says is lost in gRPC
		cart.fails(t, "returns", "denied")
	})
	l.east.known(t, "orders", services())
	l.east.known(t, "stocktake", services())
	t.Run("the last instance is killed", func(t *testing.T) {
		orders[0].gone(t)
		l.failOver(t, "orders", callers, func() { orders[1].gone(t) })
	})
	t.Run("one with Isthmus stops", func(t *testing.T) {
		l.failOver(t, "stocktake", callers, func() {
			if err := stocktake.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
				t.Fatal(err)
			}
		})
		if err := stocktake.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a Configuration changes", func(t *testing.T) { l.reconfigured(t, stocktake, cart, checkout) })
	t.Run("Dapr's accessControl", func(t *testing.T) { l.accessControl(t, checkout, reporting) })
	t.Run("through a gateway", func(t *testing.T) { l.behindAGateway(t, apart, checkout, reporting, cart) })
}

// finds looks a name up from where the pod is, and wants these addresses.
func (p *pod) finds(t *testing.T, name string, want ...netip.Addr) error {
	t.Helper()
	got, err := p.lookup(meshtest.Within(t, meshtest.Attempt), name)
	slices.Sort(got)
	var all []string
	for _, a := range want {
		all = append(all, a.String())
	}
	if err == nil && !slices.Equal(got, all) {
		err = fmt.Errorf("%s is at %v, want %v", name, got, all)
	}
	return err
}

// reachesEach waits until each of some instances has answered.
func (p *pod) reachesEach(t *testing.T, instances []*pod) {
	t.Helper()
	missing := map[string]bool{}
	for _, i := range instances {
		missing[i.address.String()] = true
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		reply, err := p.call(meshtest.Within(t, meshtest.Attempt), instances[0].App.ID)
		if err != nil {
			return err
		}
		if delete(missing, reply.Instance); len(missing) > 0 {
			return fmt.Errorf("no call of %s is answered by %v", instances[0].App.ID, missing)
		}
		return nil
	})
}

// gone kills a pod's sidecar, which Kubernetes tells of at once.
func (p *pod) gone(t *testing.T) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	p.endpoint(t, false)
}

// failOver ends what has an app in west, under the steady calls of callers, and says when
// calls of each go to east.
func (l *lab) failOver(t *testing.T, id string, callers []*pod, end func()) {
	t.Helper()
	loads := make([]*load, len(callers))
	for i, caller := range callers {
		loads[i] = caller.steadily(t, id)
		loads[i].answersFrom(t, l.west)
	}
	began := time.Now()
	end()
	for i, load := range loads {
		load.answersFrom(t, l.east)
		first, _ := load.began.Load(l.east.name)
		calls, failed, longest := load.stop()
		t.Logf("%s: calls go to east after %s; of %d calls %d failed; the longest time without an answer was %s",
			callers[i].Name(), first.(time.Time).Sub(began).Round(time.Millisecond), calls, failed, longest.Round(time.Millisecond))
	}
}

// reconfigured changes a Configuration, for which every sidecar that has it starts its runtime
// anew. With Dapr 1.18.0 and 1.18.1 those did, too, that have another one, as checkout has.
func (l *lab) reconfigured(t *testing.T, stocktake, cart, checkout *pod) {
	others := checkout.starts(t)
	watching := map[*pod]int{stocktake: stocktake.starts(t), cart: cart.starts(t)}
	for change := 1; len(watching) > 0; change++ { // who had only begun to watch may have missed one
		l.west.plane.api.apply(t, withIsthmus(fmt.Sprintf("0.%d", change)))
		for end := time.Now().Add(meshtest.Attempt); len(watching) > 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			maps.DeleteFunc(watching, func(p *pod, before int) bool { return p.starts(t) > before })
		}
		if change == 5 {
			t.Fatalf("%d of two sidecars have not started anew after %d changes", len(watching), change)
		}
	}
	cart.reaches(t, "stocktake", l.west) // which is registered again
	for _, p := range []*pod{cart, checkout} {
		p.reaches(t, "invoices", l.east)
	}
	if checkout.starts(t) > others {
		t.Error("a sidecar with another Configuration has started anew")
	}
}

// accessControl has a callee with the list that isthmus policies writes for it. A change of the list
// restarts the runtime of its sidecar, and calls fail meanwhile.
func (l *lab) accessControl(t *testing.T, checkout, reporting *pod) {
	list := func(callers ...string) string {
		f := topology.Fence{Workload: topology.Workload{App: catalog.App{Namespace: namespace, ID: "tills"}}}
		for _, id := range callers {
			f.Callers = append(f.Callers, topology.Workload{App: catalog.App{Namespace: namespace, ID: id}})
		}
		writer := policies.Writer{Domain: sandbox.AppTrustDomain}
		objects, notes := writer.Write(policies.Dapr, &f)
		var spec map[string]json.RawMessage
		text, err := json.Marshal(objects[0].Spec)
		if err == nil {
			err = json.Unmarshal(text, &spec)
		}
		if err != nil || len(notes) > 0 {
			t.Fatal(err, notes)
		}
		return daprConfiguration("tills", "1", "  accessControl: "+string(spec["accessControl"])+"\n")
	}
	l.west.plane.api.apply(t, list("checkout", "tills"))
	tills := l.west.kubernetesPod(t, "tills", "tills", true)
	checkout.reaches(t, "tills", l.west)
	reporting.fails(t, "tills", "access control policy has denied access")
	load, before := checkout.steadily(t, "tills"), tills.starts(t)
	load.answersFrom(t, l.west)
	began := time.Now()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		l.west.plane.api.apply(t, list("checkout", "reporting", "tills"))
		for end := time.Now().Add(meshtest.Attempt); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if tills.starts(t) > before {
				return nil
			}
		}
		return errors.New("the sidecar has not started anew")
	})
	reporting.reaches(t, "tills", l.west)
	load.answersFrom(t, l.west)
	calls, failed, longest := load.stop()
	t.Logf("reporting gets in after %s; of %d calls of checkout %d failed; the longest time without an answer was %s",
		time.Since(began).Round(time.Millisecond), calls, failed, longest.Round(time.Millisecond))
}

// starts is how often the sidecar's runtime has started.
func (p *pod) starts(t *testing.T) int {
	return strings.Count(read(t, p.LogFile()), "dapr initialized. Status: Running")
}

// behindAGateway has the clusters in different networks. Who dials a name says it to the
// gateway; the resolver kubernetes has daprd dial an address, which must be one app's alone.
func (l *lab) behindAGateway(t *testing.T, apart string, checkout, reporting, cart *pod) {
	for _, id := range []string{"ledger", "pricing"} {
		p := l.east.known(t, id, services())
		l.Set(netip.MustParsePrefix("10.77.1.0/24"), netip.PrefixFrom(p.address, 32), network.Conditions{Drop: true})
	}
	l.west.apply(t, apart)
	for name, at := range map[string]netip.AddrPort{
		"ledger-dapr.shop.svc.cluster.local.": gatewayOf(2), "pricing-dapr.shop.svc.cluster.local.": gatewayOf(1),
		"pricing.shop.isthmus.internal.": gatewayOf(1),
	} {
		meshtest.Eventually(t, meshtest.Patience, func() error { return checkout.finds(t, name, at.Addr()) })
	}
	checkout.reaches(t, "ledger", l.east)
	cart.reaches(t, "pricing", l.east)
	reporting.reaches(t, "pricing", l.east)
	checkout.fails(t, "pricing", "tls: unrecognized name")
	if log := read(t, l.east.Service.LogFile()); !strings.Contains(log, "reason=no_name") {
		t.Error("the gateway does not say that it was told no name")
	}
}
