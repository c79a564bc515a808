package policies

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var shared = serverstest.Kubernetes{}

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

func prepare() error {
	for _, args := range []string{"create namespace shop", "create namespace finance", "apply -f testdata/crds/dapr-configuration.yaml",
		"apply -f testdata/crds/istio-authorizationpolicy.yaml", "apply -f testdata/crds/linkerd-server.yaml",
		"apply -f testdata/crds/linkerd-meshtlsauthentication.yaml", "apply -f testdata/crds/linkerd-authorizationpolicy.yaml",
		"wait --for=condition=Established --all --timeout=60s crd"} {
		if err := shared.Kubectl(strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

func writer() *Writer {
	w := &Writer{Domain: "west.example"}
	w.Default("isthmus-system")
	return w
}

func app(namespace, id string) catalog.App { return catalog.App{Namespace: namespace, ID: id} }

// orders is called from here, from another cluster, and from one on the same network.
func orders() *topology.Fence {
	return &topology.Fence{
		Workload: topology.Workload{App: app("shop", "orders"), Accounts: []string{"orders"}},
		Ports:    []uint16{50002, 50010},
		Callers: []topology.Workload{
			{App: app("finance", "ledger"), Accounts: []string{"ledger"}},
			{App: app("shop", "checkout"), Accounts: []string{"checkout", "default"}},
			{App: app("shop", "orders"), Accounts: []string{"orders"}},
		},
		Remote: []catalog.RemoteCaller{
			{Cluster: "east", Domain: "east.example", Namespace: "shop", App: "web"},
			{Cluster: "near", Domain: "near.example", Namespace: "shop", App: "web2"},
		},
		Direct: []topology.DirectCluster{{Name: "near", Ranges: []netip.Prefix{netip.MustParsePrefix("10.9.1.7/16")}}},
		Rules:  []catalog.Key{{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}, {Kind: catalog.KindAppExport, Namespace: "shop", Name: "orders"}},
	}
}

// alone is an app that nobody calls and of which no instance is known.
func alone() *topology.Fence {
	w := topology.Workload{App: app("shop", "alone")}
	return &topology.Fence{Workload: w, Callers: []topology.Workload{w}}
}

// TestAnAPIServerTakesThePolicies checks each by the published schemas, and refuses fields that
// they don't have.
func TestAnAPIServerTakesThePolicies(t *testing.T) {
	shared.Need(t, prepare)
	of := map[Kind]int{Network: 2, Istio: 1, Linkerd: 5, Dapr: 2}
	for _, kind := range Kinds() {
		var all []json.RawMessage
		for _, f := range []*topology.Fence{orders(), alone()} {
			objects, _ := writer().Write(kind, f)
			for i := range objects {
				all = append(all, objects[i].JSON())
			}
		}
		if len(all) != of[kind] {
			t.Errorf("%s: %d objects, want %d", kind, len(all), of[kind])
		}
		text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time is no change
			if out, err := shared.Run(string(text), "apply", "--server-side", "--field-manager=isthmus", "--validate=strict", "-f", "-"); err != nil {
				t.Errorf("%s: %v\n%s\n%s", kind, err, out, text)
			}
		}
	}
	if out, err := shared.Run(`{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"name":"x","namespace":"shop"},"spec":{"rulez":[]}}`, "apply", "--server-side", "--validate=strict", "-f", "-"); err == nil {
		t.Errorf("a field that the schema does not have is taken: %s", out)
	}
}

func TestPoliciesAsText(t *testing.T) {
	for kind, want := range map[Kind]string{
		Network: `{"podSelector":{"matchLabels":{"dapr.io/app-id":"orders"}},"policyTypes":["Ingress"],"ingress":[` +
			`{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"finance"}},"podSelector":{"matchExpressions":[{"key":"dapr.io/app-id","operator":"In","values":["ledger"]}]}},` +
			`{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"shop"}},"podSelector":{"matchExpressions":[{"key":"dapr.io/app-id","operator":"In","values":["checkout","orders"]}]}},` +
			`{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"isthmus-system"}},"podSelector":{"matchLabels":{"app.kubernetes.io/name":"isthmus"}}},{"ipBlock":{"cidr":"10.9.0.0/16"}}],` +
			`"ports":[{"protocol":"TCP","port":50002},{"protocol":"TCP","port":50010}]},` +
			`{"ports":[{"protocol":"TCP","port":1,"endPort":50001},{"protocol":"TCP","port":50003,"endPort":50009},{"protocol":"TCP","port":50011,"endPort":65535},{"protocol":"UDP","port":1,"endPort":65535},{"protocol":"SCTP","port":1,"endPort":65535}]}]}`,
		Istio: `{"selector":{"matchLabels":{"dapr.io/app-id":"orders"}},"action":"ALLOW","rules":[` +
			`{"from":[{"source":{"principals":["cluster.local/ns/finance/sa/ledger","cluster.local/ns/shop/sa/checkout","cluster.local/ns/shop/sa/default","cluster.local/ns/shop/sa/orders","cluster.local/ns/isthmus-system/sa/isthmus"]}}],"to":[{"operation":{"ports":["50002","50010"]}}]},` +
			`{"to":[{"operation":{"notPorts":["50002","50010"]}}]}]}`,
		Linkerd: `{"identityRefs":[{"kind":"ServiceAccount","name":"ledger","namespace":"finance"},{"kind":"ServiceAccount","name":"checkout","namespace":"shop"},{"kind":"ServiceAccount","name":"default","namespace":"shop"},{"kind":"ServiceAccount","name":"orders","namespace":"shop"},{"kind":"ServiceAccount","name":"isthmus","namespace":"isthmus-system"}]}`,
		Dapr: `{"accessControl":{"defaultAction":"deny","trustDomain":"west.example","policies":[` +
			`{"appId":"ledger","namespace":"finance","trustDomain":"west.example","defaultAction":"allow"},{"appId":"checkout","namespace":"shop","trustDomain":"west.example","defaultAction":"allow"},{"appId":"orders","namespace":"shop","trustDomain":"west.example","defaultAction":"allow"},` +
			`{"appId":"web","namespace":"shop","trustDomain":"east.example","defaultAction":"allow"},{"appId":"web2","namespace":"shop","trustDomain":"near.example","defaultAction":"allow"}]}}`,
	} {
		objects, _ := writer().Write(kind, orders())
		got, err := json.Marshal(objects[0].Spec)
		if err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s (%v):\n%s\nwant\n%s", kind, err, got, want)
		}
		m := objects[0].Metadata
		if m.Name != "isthmus-orders" || m.Namespace != "shop" || m.Labels[ManagedBy] != Manager || m.Annotations[derivedFrom] != "AppEndpoints shop/checkout, AppExport shop/orders" {
			t.Errorf("%s: metadata %+v", kind, m)
		}
	}
}

// TestNoPolicyGuesses has apps whose callers a policy can't name.
func TestNoPolicyGuesses(t *testing.T) {
	with := func(change func(*topology.Fence)) *topology.Fence {
		f := orders()
		change(f)
		return f
	}
	w := writer()
	w.Sharing = map[string][]catalog.App{"shop/default": {app("shop", "checkout"), app("shop", "mallory")}}
	for _, c := range []struct {
		what    string
		kind    Kind
		fence   *topology.Fence
		objects int
		note    string
	}{
		{"an account that two share", Istio, orders(), 1, "shop/mallory gets in as well: it runs under the service account shop/default, as shop/checkout does"},
		{"a caller without an account", Istio, with(func(f *topology.Fence) { f.Callers[0].Accounts = nil }), 1, "caller finance/ledger is left out"},
		{"callers without a gateway", Linkerd, orders(), 5, "callers of near are left out"},
		{"no account at all", Istio, alone(), 0, "set instances.kubernetes.serviceAccounts"},
		{"no account at all", Linkerd, alone(), 0, "set instances.kubernetes.serviceAccounts"},
		{"no ranges", Network, with(func(f *topology.Fence) { f.Direct[0].Ranges = nil }), 1, "set spec.networkRanges"},
		{"any app of a cluster", Dapr, with(func(f *topology.Fence) { f.Remote[0].App = "" }), 0, "lets in any app of east"},
		{"an unknown trust domain", Dapr, with(func(f *topology.Fence) { f.Remote[0].Domain = "" }), 0, "trust domain of the apps of east is not known"},
		{"an app of two trust domains", Dapr, with(func(f *topology.Fence) { f.Remote[0].App = "checkout" }), 0, "calls from two trust domains"},
		{"an app-id that is no name", Network, with(func(f *topology.Fence) { f.App.ID = "Orders" }), 0, "no policy: app-id"},
	} {
		objects, notes := w.Write(c.kind, c.fence)
		if len(objects) != c.objects || !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, c.note) }) {
			t.Errorf("%s, %s: %d objects, notes %q; want %d and %q", c.what, c.kind, len(objects), notes, c.objects, c.note)
		}
	}
}

func TestSettings(t *testing.T) {
	for want, s := range map[string]Settings{
		"gateway.namespace: ":                    {Gateway: GatewayPods{Namespace: "A B"}},
		"gateway.labels: ":                       {Gateway: GatewayPods{Labels: map[string]string{}}},
		"meshDomain: ":                           {MeshDomain: "a/b"},
		"appDomain: ":                            {AppDomain: "a b"},
		"kubernetes.kinds: names none":           {Kubernetes: &Kubernetes{}},
		"kubernetes.kinds[0]: each change of a":  {Kubernetes: &Kubernetes{Kinds: []Kind{Dapr}}},
		`kubernetes.kinds[0]: "mesh" is no kind`: {Kubernetes: &Kubernetes{Kinds: []Kind{"mesh"}}},
		"kubernetes.kinds[1]: network is there":  {Kubernetes: &Kubernetes{Kinds: []Kind{Network, Network}}},
		"kubernetes.context: ":                   {Kubernetes: &Kubernetes{Kinds: []Kind{Network}, Context: "a"}},
	} {
		s.Default("isthmus-system")
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s := writer()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
