package policies

import (
	"strconv"

	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

type linkerdServer struct {
	PodSelector   selector `json:"podSelector"`
	Port          int      `json:"port"`
	ProxyProtocol string   `json:"proxyProtocol"`
}

type linkerdAuthentication struct {
	IdentityRefs []linkerdIdentity `json:"identityRefs"`
}

type linkerdIdentity struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type linkerdPolicy struct {
	TargetRef                  linkerdRef   `json:"targetRef"`
	RequiredAuthenticationRefs []linkerdRef `json:"requiredAuthenticationRefs"`
}

type linkerdRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

const linkerdGroup = "policy.linkerd.io"

// linkerd is a Server for each port, the identities of the callers, and an AuthorizationPolicy that
// joins them. What sidecars say to each other is TLS already, so to Linkerd it is opaque.
func (w *Writer) linkerd(f *topology.Fence) ([]Object, []string) {
	accounts, notes := w.accounts(f)
	if len(accounts) == 0 {
		return nil, append(notes, noAccounts)
	}
	var who linkerdAuthentication
	for _, a := range accounts {
		who.IdentityRefs = append(who.IdentityRefs, linkerdIdentity{"ServiceAccount", a.name, a.namespace})
	}
	all := []Object{object(linkerdGroup+"/v1alpha1", "MeshTLSAuthentication", f, who)}
	for i, p := range portsOf(f) {
		server := object(linkerdGroup+"/v1beta3", "Server", f, linkerdServer{pods(f.App), int(p), "opaque"})
		if i > 0 {
			server.Metadata.Name += "." + strconv.Itoa(int(p))
		}
		policy := object(linkerdGroup+"/v1alpha1", "AuthorizationPolicy", f, linkerdPolicy{
			linkerdRef{linkerdGroup, "Server", server.Metadata.Name},
			[]linkerdRef{{linkerdGroup, "MeshTLSAuthentication", all[0].Metadata.Name}},
		})
		policy.Metadata.Name = server.Metadata.Name
		all = append(all, server, policy)
	}
	return all, notes
}
