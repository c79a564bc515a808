package networkpolicy

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Ends of the tests' connections.
var ends = map[string]*End{
	"checkout": {Namespace: "shop", NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}, Labels: map[string]string{"app": "checkout", "tier": "front"}, Addresses: addresses("10.0.0.1")},
	"orders": {Namespace: "shop", NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}, Labels: map[string]string{"app": "orders"}, Addresses: addresses("10.0.0.2"),
		Ports: map[string]int{"dapr": 50002}},
	"gateway": {Namespace: "isthmus-system", NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "isthmus-system"}, Labels: map[string]string{"app": "isthmus"}, Addresses: addresses("10.0.1.1")},
	"host":    {Namespace: "shop", Labels: map[string]string{"app": "orders"}, Addresses: addresses("192.0.2.5"), HostNetwork: true},
	"east":    {Addresses: addresses("203.0.113.7")},
	"anybody": {},
}

func addresses(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }

func TestConnectionsThatPoliciesLetThrough(t *testing.T) {
	for _, c := range []struct {
		name, policies string // of the namespace shop, unless they say, one a line
		from, to       string
		port           int
		blocking       string // empty: it is let through
	}{
		{"no policy", "", "checkout", "orders", 50002, ""},
		{"of another namespace", "a in finance: {podSelector: {}}", "checkout", "orders", 50002, ""},
		{"all is denied", "deny: {podSelector: {}}", "checkout", "orders", 50002, "shop/deny"},
		{"another pod is selected", "deny: {podSelector: {matchLabels: {app: ledger}}}", "checkout", "orders", 50002, ""},
		{"policies add up", "deny: {podSelector: {}}\nopen: {podSelector: {}, ingress: [{}]}", "checkout", "orders", 50002, ""},
		{"a pod of the same namespace", "p: {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: checkout}}}]}]}", "checkout", "orders", 50002, ""},
		{"a pod selector alone is of the policy's namespace", "p: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}", "gateway", "orders", 50002, "shop/p"},
		{"any namespace", "p: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", "gateway", "orders", 50002, ""},
		{"any namespace is no outsider", "p: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", "east", "orders", 50002, "shop/p"},
		{"both selectors of one peer", "p: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: isthmus-system}}, podSelector: {matchLabels: {app: other}}}]}]}", "gateway", "orders", 50002, "shop/p"},
		{"either of two peers", "p: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: isthmus-system}}}, {podSelector: {matchLabels: {app: other}}}]}]}", "gateway", "orders", 50002, ""},
		{"a port", "p: {podSelector: {}, ingress: [{ports: [{port: 50002}]}]}", "checkout", "orders", 50002, ""},
		{"another port", "p: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}", "checkout", "orders", 50002, "shop/p"},
		{"another protocol", "p: {podSelector: {}, ingress: [{ports: [{port: 50002, protocol: UDP}]}]}", "checkout", "orders", 50002, "shop/p"},
		{"a protocol alone", "p: {podSelector: {}, ingress: [{ports: [{protocol: TCP}]}]}", "checkout", "orders", 50002, ""},
		{"a range", "p: {podSelector: {}, ingress: [{ports: [{port: 50000, endPort: 50002}]}]}", "checkout", "orders", 50002, ""},
		{"below a range", "p: {podSelector: {}, ingress: [{ports: [{port: 50003, endPort: 50009}]}]}", "checkout", "orders", 50002, "shop/p"},
		{"a named port", "p: {podSelector: {}, ingress: [{ports: [{port: dapr}]}]}", "checkout", "orders", 50002, ""},
		{"a name that the pod lacks", "p: {podSelector: {}, ingress: [{ports: [{port: http}]}]}", "checkout", "orders", 50002, "shop/p"},
		{"a block", "p: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}", "east", "orders", 50002, ""},
		{"its exception", "p: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/29]}}]}]}", "east", "orders", 50002, "shop/p"},
		{"a block may have whoever is unknown", "p: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}", "anybody", "orders", 50002, ""},
		{"everybody", "p: {podSelector: {}, ingress: [{}]}", "anybody", "orders", 50002, ""},
		{"on the host's network", "deny: {podSelector: {}}", "checkout", "host", 50002, ""},
		{"from the host's network", "p: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}", "host", "orders", 50002, "shop/p"},
		{"egress by its type", "deny: {podSelector: {}, policyTypes: [Egress]}", "checkout", "gateway", 7400, "shop/deny"},
		{"egress by its rules", "p: {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 53, protocol: UDP}]}]}", "checkout", "gateway", 7400, "shop/p"},
		{"rules of egress make it one", "p: {podSelector: {matchLabels: {app: checkout}}, egress: [{to: [{ipBlock: {cidr: 10.9.0.0/16}}]}]}", "checkout", "east", 15443, "shop/p"},
		{"egress is open", "p: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}", "checkout", "east", 15443, ""},
		{"ingress alone says nothing of egress", "deny: {podSelector: {matchLabels: {app: checkout}}, policyTypes: [Ingress]}", "checkout", "gateway", 7400, ""},
		{"both directions", "deny: {podSelector: {}, policyTypes: [Egress, Ingress], egress: [{}]}", "checkout", "orders", 50002, "shop/deny"},
		{"expressions", "p: {podSelector: {matchExpressions: [{key: app, operator: In, values: [orders]}, {key: tier, operator: DoesNotExist}]}, ingress: [{from: [{podSelector: {matchExpressions: [{key: tier, operator: Exists}, {key: app, operator: NotIn, values: [ledger]}]}}]}]}", "checkout", "orders", 50002, ""},
		{"expressions that don't hold", "p: {podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [checkout]}]}}]}]}", "checkout", "orders", 50002, "shop/p"},
		{"all that select are named", "a: {podSelector: {}}\nb: {podSelector: {matchLabels: {app: orders}}}", "checkout", "orders", 50002, "shop/a shop/b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(Blocking(parse(t, c.policies), ends[c.from], ends[c.to], Port{"TCP", c.port}), " ")
			if got != c.blocking {
				t.Errorf("blocked by %q, want %q", got, c.blocking)
			}
		})
	}
}

func parse(t *testing.T, text string) (all []Policy) {
	t.Helper()
	for line := range strings.Lines(text) {
		head, spec, _ := strings.Cut(line, ": ")
		name, namespace, ok := strings.Cut(head, " in ")
		if !ok {
			namespace = "shop"
		}
		var tree any
		if err := yaml.Unmarshal([]byte(spec), &tree); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(map[string]any{"metadata": map[string]string{"namespace": namespace, "name": name}, "spec": tree})
		if err != nil {
			t.Fatal(err)
		}
		var p Policy
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func FuzzPolicies(f *testing.F) {
	f.Add(`{"metadata":{"namespace":"shop"},"spec":{"podSelector":{},"ingress":[{"from":[{}],"ports":[{"port":"x"}]}]}}`)
	f.Fuzz(func(_ *testing.T, text string) {
		var p Policy
		if json.Unmarshal([]byte(text), &p) == nil {
			for _, from := range ends {
				Blocking([]Policy{p}, from, ends["orders"], Port{"TCP", 50002})
			}
		}
	})
}
