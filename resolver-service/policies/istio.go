package policies

import "github.com/isthmus-mesh/isthmus/resolver-service/topology"

type istioSpec struct {
	Selector selector    `json:"selector"`
	Action   string      `json:"action"`
	Rules    []istioRule `json:"rules"`
}

type istioRule struct {
	From []istioFrom `json:"from,omitempty"`
	To   []istioTo   `json:"to"`
}

type istioFrom struct {
	Source istioSource `json:"source"`
}

type istioSource struct {
	Principals []string `json:"principals"`
}

type istioTo struct {
	Operation istioOperation `json:"operation"`
}

type istioOperation struct {
	Ports    []string `json:"ports,omitempty"`
	NotPorts []string `json:"notPorts,omitempty"`
}

// istio is an AuthorizationPolicy (security.istio.io/v1). Where one allows anything, whatever none
// allows is refused: so the second rule allows all other ports.
func (w *Writer) istio(f *topology.Fence) ([]Object, []string) {
	accounts, notes := w.accounts(f)
	if len(accounts) == 0 { // a rule without principals would let anybody in
		return nil, append(notes, noAccounts)
	}
	var principals []string
	for _, a := range accounts {
		principals = append(principals, w.MeshDomain+"/ns/"+a.namespace+"/sa/"+a.name)
	}
	ports := texts(portsOf(f))
	spec := istioSpec{pods(f.App), "ALLOW", []istioRule{
		{[]istioFrom{{istioSource{principals}}}, []istioTo{{istioOperation{Ports: ports}}}},
		{nil, []istioTo{{istioOperation{NotPorts: ports}}}},
	}}
	return []Object{object("security.istio.io/v1", "AuthorizationPolicy", f, spec)}, notes
}
