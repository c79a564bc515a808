// Package charts tests the Helm charts of deploy/chart with Helm and a Kubernetes API server. There are no
// nodes and no controllers: pods are made from the Deployment's template, and no kubelet runs them.
package charts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/components/actors"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const (
	chart      = "../../deploy/chart/isthmus"
	crds       = "../../deploy/chart/isthmus-crds"
	kubernetes = "1.36.0" // the version of bin/kube-apiserver
)

var shared serverstest.Kubernetes

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// need starts the API server, with the namespaces and custom resources that are there before Isthmus.
func need(t *testing.T) {
	t.Helper()
	shared.Need(t, func() error {
		for _, file := range append(serverstest.DaprDefinitions(t, "../.."), "testdata/podmonitors.yaml", "testdata/prometheusrules.yaml") {
			if err := shared.Kubectl("apply", "--server-side", "-f", file); err != nil {
				return err
			}
		}
		for _, args := range []string{
			"create namespace isthmus-system", "create namespace dapr-system", "create namespace mesh", "create namespace dapr",
			"create namespace shop", "create namespace finance",
			"label namespace isthmus-system mesh pod-security.kubernetes.io/enforce=restricted",
			"create --save-config serviceaccount isthmus -n isthmus-system", "create --save-config serviceaccount isthmus -n mesh",
			"create serviceaccount default -n shop", "create serviceaccount default -n finance",
			"wait --for=condition=Established --all --timeout=60s crd",
		} {
			if err := shared.Kubectl(strings.Fields(args)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// helm runs Helm and returns what it prints, and what it complains of.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary := programstest.Path(t, "helm")
	cmd := exec.CommandContext(t.Context(), binary, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, complaint.String())
	}
	return out.String(), nil
}

// render has Helm make the manifests from values.
func render(t *testing.T, namespace string, values ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(values, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return helm(t, "template", "isthmus", chart, "--namespace", namespace, "--kube-version", kubernetes,
		"--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", "-f", file)
}

// object is a document of the manifests.
type object struct {
	Kind     string                      `yaml:"kind"`
	Metadata struct{ Name string }       `yaml:"metadata"`
	Data     map[string]string           `yaml:"data"`
	Spec     struct{ Template template } `yaml:"spec"`
}

type template struct {
	Metadata map[string]any `yaml:"metadata"`
	Spec     map[string]any `yaml:"spec"`
}

func objects(t *testing.T, manifests string) (all []object) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(manifests)); ; {
		var o object
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, manifests)
		}
		all = append(all, o)
	}
}

// find is the object of a kind and name.
func find(t *testing.T, all []object, kind, name string) object {
	t.Helper()
	for _, o := range all {
		if o.Kind == kind && o.Metadata.Name == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return object{}
}

// sets are values that platform teams have, and what their manifests hold then.
var sets = map[string]struct {
	namespace string // isthmus-system
	values    string
	has, not  []string
}{
	"the least": {values: "", has: []string{"replicas: 2", "kind: PodDisruptionBudget", "type: LoadBalancer", "kubernetes: 127.0.0.1:7482", "name: isthmus-reviewer}", "image: ghcr.io/isthmus-mesh/isthmus:0.0.0"},
		not: []string{"monitoring.coreos.com", "grafana_dashboard", "name: isthmus-writer}", "kind: MutatingAdmissionPolicy", "isthmus-instances-pods}"}},
	"one replica and operators by token": {values: "replicas: 1\noperators: {certificates: false}", has: []string{"replicas: 1", "name: isthmus-reviewer}"}, not: []string{"PodDisruptionBudget", "replicas: {}", "isthmus-authentication-reader"}},
	"without DNS and operators":          {values: "dns: {enabled: false}\noperators: {enabled: false}", not: []string{"isthmus-dns", "7453", "dns: 0.0.0.0", "7482", "name: isthmus-reviewer}", "isthmus-authentication-reader"}},
	"DNS at a fixed address":             {values: "dns: {clusterIP: 10.96.0.53, corednsCustom: true, forwarders: [10.1.0.0/16]}", has: []string{"forward . 10.96.0.53", "10.1.0.0/16", "clusterIP: 10.96.0.53"}},
	"AWS":                                {values: "gateway: {service: {provider: aws, internal: true}}", has: []string{"aws-load-balancer-scheme: internal", "nlb-target-type: ip"}},
	"Azure":                              {values: "gateway: {stockPort: 50002, service: {provider: azure, internal: true, externalTrafficPolicy: Local}}", has: []string{`azure-load-balancer-internal: "true"`, "port: 50002", "externalTrafficPolicy: Local"}},
	"on premises": {values: "gateway: {port: 443, service: {loadBalancerClass: metallb.io/metallb, loadBalancerIP: 192.0.2.7, loadBalancerSourceRanges: [198.51.100.0/24], annotations: {metallb.io/address-pool: mesh}}}",
		has: []string{"gateway: 0.0.0.0:443", "metallb.io/address-pool: mesh", "port: 443, targetPort: gateway", "198.51.100.0/24"}},
	"a gateway by node ports": {values: "gateway: {service: {type: NodePort, nodePort: 30443}}", has: []string{"nodePort: 30443"}},
	"sidecars": {values: "sidecars: {namespaces: [shop, finance], settings: {lastGood: /var/lib/isthmus/view.json}, configuration: {tracing: {samplingRate: '0.1'}}}\nimage: {registry: registry.example/mesh, tag: v1.2.3}",
		has: []string{"kind: MutatingAdmissionPolicy", "registry.example/mesh/daprd-isthmus:v1.2.3", "lastGood: /var/lib/isthmus/view.json", "samplingRate: \"0.1\"", "middleware.http.isthmus"}},
	"bridges for actors": {values: "actors: {enabled: true, namespaces: [shop, finance], maxBodySize: 8Mi}",
		has: []string{"args: [actors, -c, /etc/isthmus/actors.yaml]", "dapr.io/app-id: isthmus-actors-west", "name: isthmus-actors-finance, namespace: dapr-system", "placement: dapr-placement-server.dapr-system.svc.cluster.local:50005", "maxBodySize: 8Mi"}},
	"policies and what pods declare": {values: "config: {declared: {annotations: true}, guard: enforce, policies: {kubernetes: {kinds: [network, istio]}}, instances: {kubernetes: {serviceAccounts: true}}, store: {kubernetes: {translate: [smi, mcs]}}}",
		has: []string{"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: isthmus-policies-network}", "kind: ClusterRole, name: isthmus-policies-istio}", "name: isthmus-policies-lease}", "name: isthmus-instances-pods}", "name: isthmus-translate}", "guard: enforce"}},
	"another store": {values: "config: {store: {etcd: {endpoints: [etcd:2379]}}, instances: {etcd: {endpoints: [etcd:2379]}}}\nwriteObjects: true", has: []string{"name: isthmus-writer}"}},
	"monitoring": {values: "monitoring: {podMonitor: {enabled: true}, rules: {enabled: true, labels: {release: prometheus}}, dashboards: {enabled: true, annotations: {grafana_folder: Isthmus}}}",
		has: []string{"kind: PodMonitor", "targetLabel: isthmus_cluster, replacement: west", "kind: PrometheusRule", "alert: IsthmusDown", "{{ $labels.instance }}", "isthmus-clusters.json: |", `grafana_dashboard: "1"`, "grafana_folder: Isthmus"}},
	"another namespace and trust domain": {namespace: "mesh", values: `
dapr: {namespace: dapr, trustDomain: mesh.example, appTrustDomain: west.example}
podLabels: {team: platform}
podAnnotations: {example.com/reason: none}
tolerations: [{key: dedicated, operator: Exists}]
nodeSelector: {pool: system}
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: pool, operator: Exists}]}}]}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app.kubernetes.io/name: isthmus}}}]
imagePullSecrets: [{name: registry}]
image: {digest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000', pullPolicy: Always}
networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
monitoring: {podMonitor: {enabled: true, labels: {release: prometheus}}}
actors: {enabled: true, namespaces: [shop], placement: 'placement.dapr:50005'}
sidecars: {namespaces: [shop]}`,
		has: []string{"dapr.io/config: isthmus-actors", "placement: placement.dapr:50005", "audience: spiffe://mesh.example/ns/dapr/dapr-sentry", "dapr.io/config: isthmus-identity", "accessControl: {trustDomain: west.example}", "@sha256:0000", "resolverNamespace: mesh", "kind: PodMonitor", "namespace: dapr}"}},
}

// TestEachSetOfValuesIsTaken by Helm, by a real API server, by its restricted profile, and by the service.
func TestEachSetOfValuesIsTaken(t *testing.T) {
	need(t)
	if len(sets) < 12 {
		t.Errorf("%d sets", len(sets))
	}
	for name, set := range sets {
		t.Run(name, func(t *testing.T) {
			namespace := set.namespace
			if namespace == "" {
				namespace = "isthmus-system"
			}
			manifests, err := render(t, namespace, "cluster: west", set.values)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range set.has {
				if !strings.Contains(manifests, want) {
					t.Errorf("no %q in\n%s", want, manifests)
				}
			}
			for _, no := range set.not {
				if strings.Contains(manifests, no) {
					t.Errorf("%q in\n%s", no, manifests)
				}
			}
			if out, err := shared.Run(manifests, "apply", "--dry-run=server", "-f", "-"); err != nil || strings.Contains(out, "Warning") {
				t.Errorf("%v\n%s", err, out)
			}
			all := objects(t, manifests)
			settings(t, find(t, all, "ConfigMap", "isthmus").Data["isthmus.yaml"])
			pod := find(t, all, "Deployment", "isthmus").Spec.Template
			if err := podIn(t, namespace, pod); err != nil {
				t.Error(err)
			}
			pod.Spec["hostNetwork"] = true
			if err := podIn(t, namespace, pod); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
				t.Errorf("a pod on the host's network: %v", err)
			}
			if !strings.Contains(manifests, "isthmus-actors") {
				return
			}
			bridge(t, find(t, all, "ConfigMap", "isthmus-actors").Data["actors.yaml"])
			if err := podIn(t, "isthmus-system", find(t, all, "Deployment", "isthmus-actors").Spec.Template); err != nil {
				t.Error(err)
			}
		})
	}
}

// podIn has the API server look at a pod, as the controller of the Deployment would make it.
func podIn(t *testing.T, namespace string, of template) error {
	t.Helper()
	of.Metadata["name"], of.Metadata["namespace"] = "isthmus-0", namespace
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": of.Metadata, "spec": of.Spec})
	if err != nil {
		t.Fatal(err)
	}
	_, err = shared.Run(string(text), "create", "--dry-run=server", "-f", "-")
	return err
}

// bridge has the bridge read its configuration as it would in the pod.
func bridge(t *testing.T, text string) {
	t.Helper()
	var all map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	all["identity"].(map[string]any)["trustAnchorsFrom"].(map[string]any)["kubeconfig"] = shared.AdminConfig()
	whole, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := actors.Parse("actors.yaml", whole); err != nil {
		t.Errorf("%v in\n%s", err, whole)
	}
}

// settings has the service read its configuration as it would in the pod.
func settings(t *testing.T, text string) {
	t.Helper()
	var all map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"store.kubernetes", "instances.kubernetes", "identity.trustAnchorsFrom", "policies.kubernetes"} {
		block, key, _ := strings.Cut(at, ".")
		if outer, ok := all[block].(map[string]any); ok {
			if inner, ok := outer[key].(map[string]any); ok {
				inner["kubeconfig"] = shared.AdminConfig()
			}
		}
	}
	if all["listen"].(map[string]any)["kubernetes"] != nil {
		all["kubernetes"] = map[string]any{"kubeconfig": shared.AdminConfig()}
	}
	whole, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resolverservice.Parse("isthmus.yaml", whole); err != nil {
		t.Errorf("%v in\n%s", err, whole)
	}
}

func TestWrongValuesAreRefusedBeforeAnythingIsApplied(t *testing.T) {
	for values, want := range map[string]string{
		"replicas: 2":                "cluster is missing: this cluster's name",
		"cluster: West":              "at '/cluster'",
		"cluster: local":             "at '/cluster'",
		"cluster: west\nreplicas: 0": "at '/replicas': minimum: got 0, want 1",
		"cluster: west\nreplica: 3":  "additional properties 'replica' not allowed",
		"cluster: west\ngateway: {service: {provider: ec2}}":            "at '/gateway/service/provider'",
		"cluster: west\nactors: {enabled: true}":                        "actors.namespaces is empty",
		"cluster: west\ndns: {corednsCustom: true}":                     "dns.clusterIP is missing",
		"cluster: west\ndns: {forwarders: [10.0.0.1]}":                  "at '/dns/forwarders/0'",
		"cluster: west\nimage: {digest: latest}":                        "at '/image/digest'",
		"cluster: west\nsidecars: {namespaces: [Shop]}":                 "at '/sidecars/namespaces/0'",
		"cluster: west\nconfig: {gateway: {maxConnections: abc}}":       "at '/config/gateway/maxConnections': got string, want integer",
		"cluster: west\nconfig: {gateway: {maxConnections: 2000000.5}}": "at '/config/gateway/maxConnections'",
		"cluster: west\nconfig: {gateway: {maxConnections: '2e6'}}":     "at '/config/gateway/maxConnections': got string, want integer",
		"cluster: west\nconfig: {instances: {delegates: [{most: x}]}}":  "at '/config/instances/delegates/0/most'",
		"cluster: west\nnetworkPolicy: {enabled: 'yes'}":                "at '/networkPolicy/enabled'",
	} {
		if out, err := render(t, "isthmus-system", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", values, err, want, out)
		}
	}
	_, err := helm(t, "template", "isthmus", chart, "--set", "cluster=west,sidecars.namespaces={shop}", "--kube-version", "1.32.0")
	if err == nil || !strings.Contains(err.Error(), "this API server has no MutatingAdmissionPolicy") {
		t.Errorf("on an older Kubernetes: %v", err)
	}
	for _, c := range []string{chart, crds} {
		if out, err := helm(t, "lint", "--strict", c, "--set", "cluster=west"); c == chart && err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestPodsOfDaprGetASidecarWithIsthmus by the policy, before Dapr's injector would read their annotations.
func TestPodsOfDaprGetASidecarWithIsthmus(t *testing.T) {
	need(t)
	manifests, err := render(t, "isthmus-system", "cluster: west", "sidecars: {namespaces: [shop]}")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := shared.Run(manifests, "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	defer func() {
		if _, err := shared.Run(manifests, "delete", "--wait=false", "-f", "-"); err != nil {
			t.Error(err)
		}
	}()
	const image = "ghcr.io/isthmus-mesh/daprd-isthmus:0.0.0"
	for name, c := range map[string]struct {
		namespace, annotations string
		image, config          string
	}{
		"an app":                     {"shop", "{dapr.io/enabled: 'true', dapr.io/app-id: a}", image, "isthmus"},
		"as Dapr reads it":           {"shop", "{dapr.io/enabled: 'Yes', dapr.io/app-id: a}", image, "isthmus"},
		"with its own Configuration": {"shop", "{dapr.io/enabled: 'true', dapr.io/config: mine}", image, "mine"},
		"with its own image":         {"shop", "{dapr.io/enabled: 'true', dapr.io/sidecar-image: daprd}", "daprd", ""},
		"without a sidecar":          {"shop", "{dapr.io/enabled: 'false'}", "", ""},
		"without annotations":        {"shop", "{}", "", ""},
		"of another namespace":       {"finance", "{dapr.io/enabled: 'true', dapr.io/app-id: a}", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: %s, annotations: %s}\nspec: {containers: [{name: a, image: a}]}\n", c.namespace, c.annotations)
			// A policy holds some moments after it was written.
			meshtest.Eventually(t, meshtest.Patience, func() error {
				out, err := shared.Run(pod, "create", "--dry-run=server", "-o", "json", "-f", "-")
				if err != nil {
					return err
				}
				var got struct {
					Metadata struct{ Annotations map[string]string }
				}
				if err := json.Unmarshal([]byte(out), &got); err != nil {
					return err
				}
				if a := got.Metadata.Annotations; a["dapr.io/sidecar-image"] != c.image || a["dapr.io/config"] != c.config {
					return fmt.Errorf("annotations %v, want image %q and Configuration %q", a, c.image, c.config)
				}
				return nil
			})
		})
	}
}

// TestAnInstalledChartIsUpgradedAndRemoved, and the objects of users stay.
func TestAnInstalledChartIsUpgradedAndRemoved(t *testing.T) {
	need(t)
	on := func(args ...string) string {
		t.Helper()
		out, err := helm(t, append(args, "--kubeconfig", shared.AdminConfig())...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, account := range []string{"isthmus-system", "mesh"} {
		if err := shared.Kubectl("delete", "serviceaccount", "isthmus", "-n", account, "--ignore-not-found"); err != nil {
			t.Fatal(err)
		}
	}
	on("install", "isthmus-crds", crds, "-n", "isthmus-system")
	if err := shared.Kubectl("wait", "--for=condition=Established", "--all", "--timeout=60s", "crd"); err != nil {
		t.Fatal(err)
	}
	if out := on("install", "isthmus", chart, "-n", "isthmus-system", "--set", "cluster=west"); !strings.Contains(out, "isthmus check") {
		t.Errorf("what it says after the installation: %s", out)
	}
	if out, err := shared.Run("apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {name: orders, namespace: shop}\nspec: {allow: [{cluster: east}]}\n", "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	before := podsOf(t)
	on("upgrade", "isthmus", chart, "-n", "isthmus-system", "--set", "cluster=west")
	if after := podsOf(t); after != before {
		t.Errorf("an upgrade that changes nothing rolls the pods:\n%s\n%s", before, after)
	}
	on("upgrade", "isthmus", chart, "-n", "isthmus-system", "--set", "cluster=west,config.guard=enforce")
	if after := podsOf(t); after == before {
		t.Error("a change of the configuration rolls no pods")
	}
	on("rollback", "isthmus", "1", "-n", "isthmus-system")
	if after := podsOf(t); after != before {
		t.Errorf("after the rollback:\n%s\nwant\n%s", after, before)
	}
	on("uninstall", "isthmus", "-n", "isthmus-system")
	on("uninstall", "isthmus-crds", "-n", "isthmus-system")
	if out, err := shared.Run("", "delete", "appexport", "orders", "-n", "shop"); err != nil {
		t.Errorf("the objects are gone with the charts: %v %s", err, out)
	}
}

// podsOf is the template of the Deployment's pods, whose change rolls them.
func podsOf(t *testing.T) string {
	t.Helper()
	out, err := shared.Run("", "get", "deployment", "isthmus", "-n", "isthmus-system", "-o", "jsonpath={.spec.template}")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
