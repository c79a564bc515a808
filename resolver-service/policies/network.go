package policies

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

type networkSpec struct {
	PodSelector selector  `json:"podSelector"`
	PolicyTypes []string  `json:"policyTypes"`
	Ingress     []ingress `json:"ingress"`
}

type ingress struct {
	From  []peer `json:"from,omitempty"`
	Ports []port `json:"ports"`
}

type peer struct {
	NamespaceSelector *selector `json:"namespaceSelector,omitempty"`
	PodSelector       *selector `json:"podSelector,omitempty"`
	IPBlock           *ipBlock  `json:"ipBlock,omitempty"`
}

type ipBlock struct {
	CIDR string `json:"cidr"`
}

type port struct {
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	EndPort  int    `json:"endPort,omitempty"`
}

// network is a NetworkPolicy (networking.k8s.io/v1). A pod that any policy selects takes only what
// some policy allows, so this one allows all other ports.
func (w *Writer) network(f *topology.Fence) ([]Object, []string) {
	var notes []string
	from := w.callers(f)
	if len(f.Remote) > 0 {
		from = append(from, peer{namespaced(w.Gateway.Namespace), &selector{MatchLabels: w.Gateway.Labels}, nil})
	}
	for _, cluster := range f.Direct {
		for _, r := range cluster.Ranges {
			from = append(from, peer{IPBlock: &ipBlock{r.Masked().String()}})
		}
		if len(cluster.Ranges) == 0 {
			notes = append(notes, fmt.Sprintf("callers of %s that come without a gateway are left out: set spec.networkRanges of the Cluster object", cluster.Name))
		}
	}
	ports := portsOf(f)
	guarded := ingress{From: from}
	for _, p := range ports {
		guarded.Ports = append(guarded.Ports, port{Protocol: "TCP", Port: int(p)})
	}
	spec := networkSpec{PodSelector: pods(f.App), PolicyTypes: []string{"Ingress"}, Ingress: []ingress{guarded, {Ports: otherPorts(ports)}}}
	return []Object{object("networking.k8s.io/v1", "NetworkPolicy", f, spec)}, notes
}

func namespaced(namespace string) *selector {
	return &selector{MatchLabels: map[string]string{inNamespace: namespace}}
}

// callers are the pods of those in this cluster, by namespace.
func (w *Writer) callers(f *topology.Fence) (all []peer) {
	for i := 0; i < len(f.Callers); {
		namespace := f.Callers[i].App.Namespace
		var ids []string
		for ; i < len(f.Callers) && f.Callers[i].App.Namespace == namespace; i++ {
			ids = append(ids, f.Callers[i].App.ID)
		}
		all = append(all, peer{namespaced(namespace), &selector{MatchExpressions: []expression{{podLabel, "In", ids}}}, nil})
	}
	return all
}

// otherPorts are all but some, which are sorted.
func otherPorts(ports []uint16) (all []port) {
	const last = 1<<16 - 1
	from := 1
	add := func(to int) {
		switch {
		case from == to:
			all = append(all, port{Protocol: "TCP", Port: from})
		case from < to:
			all = append(all, port{Protocol: "TCP", Port: from, EndPort: to})
		}
	}
	for _, p := range ports {
		add(int(p) - 1)
		from = int(p) + 1
	}
	add(last)
	for _, protocol := range []string{"UDP", "SCTP"} {
		all = append(all, port{Protocol: protocol, Port: 1, EndPort: last})
	}
	return all
}
