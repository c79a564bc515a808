package policies

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

type daprSpec struct {
	AccessControl accessControl `json:"accessControl"`
}

type accessControl struct {
	DefaultAction string       `json:"defaultAction"`
	TrustDomain   string       `json:"trustDomain"`
	Policies      []daprPolicy `json:"policies"`
}

type daprPolicy struct {
	AppID         string `json:"appId"`
	Namespace     string `json:"namespace"`
	TrustDomain   string `json:"trustDomain"`
	DefaultAction string `json:"defaultAction"`
}

// dapr is a Configuration (dapr.io/v1alpha1) with an access control list. daprd finds the entry of a
// caller by its app-id and namespace, so there is one for each, and none for any app.
func (w *Writer) dapr(f *topology.Fence) ([]Object, []string) {
	list := accessControl{"deny", w.Domain, nil}
	domains := map[catalog.App]string{}
	add := func(app catalog.App, domain string) {
		domains[app] = domain
		list.Policies = append(list.Policies, daprPolicy{app.ID, app.Namespace, domain, "allow"})
	}
	for _, c := range f.Callers {
		add(c.App, w.Domain)
	}
	for _, r := range f.Remote {
		app := catalog.App{Namespace: r.Namespace, ID: r.App}
		if r.Namespace == "" || r.App == "" {
			return nil, []string{fmt.Sprintf("no policy: AppExport %s lets in any app of %s, and accessControl names each; name them in spec.allow", f.App, r.Cluster)}
		}
		if r.Domain == "" {
			return nil, []string{fmt.Sprintf("no policy: the trust domain of the apps of %s is not known; set spec.trust.appDomain of the Cluster object", r.Cluster)}
		}
		other, there := domains[app]
		switch {
		case !there:
			add(app, r.Domain)
		case other != r.Domain:
			return nil, []string{fmt.Sprintf("no policy: %s calls from two trust domains, %s and %s, and accessControl has one entry for it", app, other, r.Domain)}
		}
	}
	return []Object{object("dapr.io/v1alpha1", "Configuration", f, daprSpec{list})}, nil
}
