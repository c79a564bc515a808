// Package networkpolicy tells which connections the NetworkPolicies of a Kubernetes cluster let
// through, by the rules that Kubernetes documents. It reads nothing and knows no network plugin.
package networkpolicy

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
)

// Policy is a NetworkPolicy (networking.k8s.io/v1), as the API server has it.
type Policy struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		PodSelector Selector `json:"podSelector"`
		PolicyTypes []string `json:"policyTypes"`
		Ingress     []rule   `json:"ingress"`
		Egress      []rule   `json:"egress"`
	} `json:"spec"`
}

// rule is one of either direction; From is of ingress, To of egress.
type rule struct {
	From  []peer `json:"from"`
	To    []peer `json:"to"`
	Ports []port `json:"ports"`
}

type peer struct {
	PodSelector       *Selector `json:"podSelector"`
	NamespaceSelector *Selector `json:"namespaceSelector"`
	IPBlock           *struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except"`
	} `json:"ipBlock"`
}

type port struct {
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

func open(ports []port, target *End, p Port) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(o port) bool {
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

func reaches(peers []peer, namespace string, other *End) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p peer) bool {
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
