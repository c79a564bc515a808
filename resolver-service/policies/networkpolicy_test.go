package policies

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Policy is a NetworkPolicy (networking.k8s.io/v1), as the API server has it.
type Policy struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		PodSelector Selector     `json:"podSelector"`
		PolicyTypes []string     `json:"policyTypes"`
		Ingress     []policyRule `json:"ingress"`
		Egress      []policyRule `json:"egress"`
	} `json:"spec"`
}

// policyRule is one of either direction; From is of ingress, To of egress.
type policyRule struct {
	From  []policyPeer `json:"from"`
	To    []policyPeer `json:"to"`
	Ports []policyPort `json:"ports"`
}

type policyPeer struct {
	PodSelector       *Selector `json:"podSelector"`
	NamespaceSelector *Selector `json:"namespaceSelector"`
	IPBlock           *struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except"`
	} `json:"ipBlock"`
}

type policyPort struct {
	Protocol string      `json:"protocol"` // TCP where empty
	Port     *portNumber `json:"port"`     // nil: all
	EndPort  int         `json:"endPort"`
}

// portNumber is a number, or the name of a port of the pod that is connected to.
type portNumber struct {
	number int
	name   string
}

// UnmarshalJSON is that of json.Unmarshaler: Kubernetes writes either.
func (p *portNumber) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte{'"'}) {
		return json.Unmarshal(b, &p.name)
	}
	n, err := strconv.Atoi(string(b))
	p.number = n
	return err
}

// Selector selects by labels. An empty one selects everything.
type Selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

// Selects tells whether it selects something with these labels.
func (s *Selector) Selects(labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := labels[e.Key]
		ok := false
		switch e.Operator {
		case "In":
			ok = has && slices.Contains(e.Values, value)
		case "NotIn":
			ok = !has || !slices.Contains(e.Values, value)
		case "Exists":
			ok = has
		case "DoesNotExist":
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return true
}

// End is one end of a connection: a pod, or something outside of the cluster.
type End struct {
	Namespace       string // empty: no pod
	NamespaceLabels map[string]string
	Labels          map[string]string
	Addresses       []netip.Addr   // of something outside, none: any that is not a pod
	Ports           map[string]int // of a pod, by name
	HostNetwork     bool           // then policies don't know it as a pod
}

func (e *End) pod() bool { return e.Namespace != "" && !e.HostNetwork }

// Port is what is connected to.
type Port struct {
	Protocol string // TCP, UDP or SCTP
	Number   int
}

// Blocking are the policies that keep a connection from being made, as namespace/name. All that
// select the pod on the blocking side are named, since any of them could let it through.
func Blocking(all []Policy, from, to *End, p Port) []string {
	if names := side(all, "Egress", from, to, to, p); names != nil {
		return names
	}
	return side(all, "Ingress", to, from, to, p)
}

// side are the policies of one direction that keep a pod from the other end; target is the end that
// is connected to.
func side(all []Policy, direction string, of, other, target *End, p Port) (names []string) {
	if !of.pod() {
		return nil
	}
	for i := range all {
		policy := &all[i]
		if policy.Metadata.Namespace != of.Namespace || !policy.has(direction) || !policy.Spec.PodSelector.Selects(of.Labels) {
			continue
		}
		rules := policy.Spec.Ingress
		if direction == "Egress" {
			rules = policy.Spec.Egress
		}
		for j := range rules {
			peers := rules[j].From
			if direction == "Egress" {
				peers = rules[j].To
			}
			if open(rules[j].Ports, target, p) && reaches(peers, policy.Metadata.Namespace, other) {
				return nil
			}
		}
		names = append(names, policy.Metadata.Namespace+"/"+policy.Metadata.Name)
	}
	return names
}

// has tells whether a policy is about a direction. One that does not say is about ingress, and about
// egress if it has such rules.
func (p *Policy) has(direction string) bool {
	if len(p.Spec.PolicyTypes) > 0 {
		return slices.Contains(p.Spec.PolicyTypes, direction)
	}
	return direction == "Ingress" || len(p.Spec.Egress) > 0
}

func open(ports []policyPort, target *End, p Port) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(o policyPort) bool {
		if o.Protocol == "" {
			o.Protocol = "TCP"
		}
		switch {
		case o.Protocol != p.Protocol:
			return false
		case o.Port == nil:
			return true
		case o.Port.name != "":
			return target.Ports[o.Port.name] == p.Number
		}
		return o.Port.number == p.Number || o.Port.number <= p.Number && p.Number <= o.EndPort
	})
}

func reaches(peers []policyPeer, namespace string, other *End) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p policyPeer) bool {
		if p.IPBlock != nil {
			return inBlock(p.IPBlock.CIDR, p.IPBlock.Except, other)
		}
		if !other.pod() {
			return false
		}
		if p.NamespaceSelector == nil {
			return other.Namespace == namespace && p.PodSelector != nil && p.PodSelector.Selects(other.Labels)
		}
		return p.NamespaceSelector.Selects(other.NamespaceLabels) && (p.PodSelector == nil || p.PodSelector.Selects(other.Labels))
	})
}

// inBlock tells whether an end is in a block. Where it has no address, any block may have it.
func inBlock(cidr string, except []string, other *End) bool {
	if len(other.Addresses) == 0 {
		return !other.pod()
	}
	block, err := netip.ParsePrefix(cidr)
	return err == nil && slices.ContainsFunc(other.Addresses, func(a netip.Addr) bool {
		return block.Contains(a.Unmap()) && !slices.ContainsFunc(except, func(text string) bool {
			out, err := netip.ParsePrefix(text)
			return err == nil && out.Contains(a.Unmap())
		})
	})
}

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
