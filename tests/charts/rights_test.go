package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// everything has a role for each thing that a service may do in Kubernetes.
const everything = `
replicas: 1
dapr: {namespace: default, trustDomain: localhost}
writeObjects: true
config:
  declared: {annotations: true}
  instances: {kubernetes: {serviceAccounts: true}}
  store: {kubernetes: {translate: [smi, mcs]}}
  policies: {kubernetes: {kinds: [network, istio, dapr, linkerd], daprRestartsSidecars: true}}
`

// role is a role as the chart has it.
type role struct {
	kind, namespace, name string
	rules                 []map[string]any
}

// TestEachVerbThatARoleLacksIsOneFinding takes each verb of each rule out of the roles that the chart
// binds to a service that runs as its service account.
func TestEachVerbThatARoleLacksIsOneFinding(t *testing.T) {
	text, roles := everythingInstalled(t)
	service := run(t, text)
	meshtest.Eventually(t, meshtest.Patience, func() error { return differ(service.faults(t), nil) })
	for _, r := range roles {
		for i, rule := range r.rules {
			for _, verb := range words(rule["verbs"]) {
				t.Run(fmt.Sprintf("%s %s %v", r.name, verb, rule["resources"]), func(t *testing.T) {
					r.write(t, i, without(rule, verb))
					meshtest.Eventually(t, meshtest.Patience, func() error { return differ(service.faults(t), []string{"rights " + r.name + " " + verb}) })
					r.write(t, i, words(rule["verbs"]))
				})
			}
		}
	}
	meshtest.Eventually(t, meshtest.Patience, func() error { return differ(service.faults(t), nil) })
}

// TestAServiceThatStartsWithoutARight finds that, and not all that comes of it.
func TestAServiceThatStartsWithoutARight(t *testing.T) {
	text, roles := everythingInstalled(t)
	for _, r := range roles {
		if !slices.Contains([]string{"isthmus-reader", "isthmus-instances", "isthmus-instances-pods", "isthmus-trust-bundle"}, r.name) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			rule := r.rules[0]
			r.write(t, 0, without(rule, "list"))
			defer r.write(t, 0, words(rule["verbs"]))
			service := run(t, text)
			meshtest.Eventually(t, meshtest.Patience, func() error { return differ(service.faults(t), []string{"rights " + r.name + " list"}) })
		})
	}
}

func without(rule map[string]any, verb string) []string {
	return slices.DeleteFunc(words(rule["verbs"]), func(v string) bool { return v == verb })
}

// everythingInstalled installs the chart with all roles, and returns the service's configuration.
func everythingInstalled(t *testing.T) (settings string, roles []role) {
	t.Helper()
	need(t)
	for _, args := range []string{"apply -f " + crds + "/files/crds.yaml", "wait --for=condition=Established --all --timeout=60s crd"} {
		if err := shared.Kubectl(strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := shared.Run("apiVersion: v1\nkind: Namespace\nmetadata: {name: rights}\n", "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	manifests, err := render(t, "rights", "cluster: west", everything)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := shared.Run(manifests, "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if _, err := shared.Run(manifests, "delete", "--wait=false", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	return find(t, objects(t, manifests), "ConfigMap", "isthmus").Data["isthmus.yaml"], bound(t, manifests, "rights")
}

func differ(got, want []string) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("found %q, want %q", got, want)
	}
	return nil
}

// write gives a rule of the role other verbs.
func (r *role) write(t *testing.T, rule int, verbs []string) {
	t.Helper()
	var patch []map[string]any
	path := fmt.Sprintf("/rules/%d", rule)
	if len(verbs) == 0 { // a rule needs one
		verbs = []string{"none"}
	}
	patch = append(patch, map[string]any{"op": "replace", "path": path + "/verbs", "value": verbs})
	text, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"patch", r.kind, r.name, "--type=json", "-p", string(text)}
	if r.namespace != "" {
		args = append(args, "-n", r.namespace)
	}
	if err := shared.Kubectl(args...); err != nil {
		t.Fatal(err)
	}
}

func words(list any) (all []string) {
	some, _ := list.([]any)
	for _, one := range some {
		all = append(all, fmt.Sprint(one))
	}
	return all
}

// bound are the roles that the manifests bind to the account of a namespace, and have.
func bound(t *testing.T, manifests, namespace string) (all []role) {
	t.Helper()
	roles := map[string]role{}
	var wanted []string
	for _, document := range documents(t, manifests) {
		kind, meta := fmt.Sprint(document["kind"]), document["metadata"].(map[string]any)
		name := fmt.Sprint(meta["name"])
		switch kind {
		case "Role", "ClusterRole":
			r := role{kind: kind, name: name}
			r.namespace, _ = meta["namespace"].(string)
			rules, _ := document["rules"].([]any)
			for _, rule := range rules {
				r.rules = append(r.rules, rule.(map[string]any))
			}
			roles[name] = r
		case "RoleBinding", "ClusterRoleBinding":
			subject := document["subjects"].([]any)[0].(map[string]any)
			if subject["kind"] == "ServiceAccount" && subject["namespace"] == namespace {
				wanted = append(wanted, fmt.Sprint(document["roleRef"].(map[string]any)["name"]))
			}
		}
	}
	slices.Sort(wanted)
	for _, name := range wanted {
		if r, ok := roles[name]; ok {
			all = append(all, r)
		} else if name != "extension-apiserver-authentication-reader" { // Kubernetes' own
			t.Errorf("role %s is bound, and not there", name)
		}
	}
	if len(all) < 8 {
		t.Errorf("%d roles: %v", len(all), wanted)
	}
	return all
}

// running is a service that runs as the account of the chart.
type running struct{ conn *grpc.ClientConn }

// run runs a service with the chart's configuration: the account's own token, and a real Sentry.
func run(t *testing.T, text string) *running {
	t.Helper()
	out, err := shared.Run("", "create", "token", "isthmus", "-n", "rights", "--duration=1h")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := servers.Kubeconfig(file, shared.API.Addr(), shared.API.CA(), strings.TrimSpace(out)); err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.New(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	sentry, err := box.Sentry(t.Context(), sandbox.SentryOptions{Cluster: "west", Authority: authority})
	if err != nil {
		t.Fatal(err)
	}
	anchors := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dapr-trust-bundle, namespace: default}\ndata: {ca.crt: %q}\n", sentry.Anchors)
	if out, err := shared.Run(anchors, "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	cfg, err := resolverservice.Parse("isthmus.yaml", local(t, text, file, sentry.Address))
	if err != nil {
		t.Fatal(err)
	}
	s := resolverservice.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(cfg.Listen.Operator, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &running{conn}
}

// local is the chart's configuration for a service on this machine.
func local(t *testing.T, text, kubeconfig, sentry string) []byte {
	t.Helper()
	var all map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	below := func(path ...string) map[string]any {
		at := all
		for _, key := range path {
			next, _ := at[key].(map[string]any)
			if next == nil {
				next = map[string]any{}
				at[key] = next
			}
			at = next
		}
		return at
	}
	dir := t.TempDir()
	all["dataDir"] = dir
	all["listen"] = map[string]any{"resolver": "127.0.0.1:0", "gateway": "127.0.0.1:0", "kubernetes": "127.0.0.1:0", "operator": "unix://" + filepath.Join(dir, "operator.sock")}
	delete(all, "dns")
	below("identity", "sentry")["address"] = sentry
	for _, path := range [][]string{{"store", "kubernetes"}, {"instances", "kubernetes"}, {"policies", "kubernetes"}, {"identity", "trustAnchorsFrom"}, {"kubernetes"}} {
		below(path...)["kubeconfig"] = kubeconfig
	}
	whole, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// faults are what a service finds, as "check name".
func (r *running) faults(t *testing.T) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := v1alpha1.NewStatusClient(r.conn).Check(ctx, &v1alpha1.CheckRequest{}, grpc.WaitForReady(true))
	for err == nil {
		var m *v1alpha1.CheckResponse
		if m, err = stream.Recv(); err == nil {
			for _, one := range m.GetResults() {
				if one.GetLevel() != "ok" {
					all = append(all, one.GetCheck()+" "+one.GetName())
				}
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return []string{err.Error()}
	}
	return all
}

func documents(t *testing.T, manifests string) (all []map[string]any) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(manifests)); ; {
		var o map[string]any
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}
