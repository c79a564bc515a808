package kubernetes

import (
	"net/url"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

const (
	// Dapr's operator marks its services so, and Kubernetes copies a service's labels to
	// its slices.
	daprServices = "dapr.io/enabled=true"
	// Dapr's injector marks pods so.
	daprPods = "dapr.io/sidecar-injected=true"
	// serviceLabel is which service a slice is of.
	serviceLabel = "kubernetes.io/service-name"
	// serviceSuffix is what the operator puts after an app-id.
	serviceSuffix = "-dapr"
	// internalPort is what the operator calls the port of the sidecar's internal server.
	internalPort = "dapr-internal"
)

// collection is what one stream is about.
type collection struct {
	apiserver.Collection
	resource  string // as RBAC and kubectl call it
	namespace string // empty: all
	role      string // that allows it
	pods      bool   // rather than slices
}

// Account is what the source needs in Kubernetes.
func (s *Source) Account() apiserver.Account {
	a := apiserver.Account{Server: s.api}
	for _, role := range []string{slicesOf("").role, podsOf("").role} {
		r := apiserver.Role{Name: role}
		for _, c := range s.config.collections() {
			if c.role == role {
				plural, group, _ := strings.Cut(c.resource, ".")
				r.Rights = append(r.Rights, apiserver.Rights(group, c.namespace, []string{plural}, "list", "watch")...)
			}
		}
		if len(r.Rights) > 0 {
			a.Roles = append(a.Roles, r)
		}
	}
	return a
}

// collections are all that a source reads.
func (c *Config) collections() (all []collection) {
	namespaces := []string{""}
	if len(c.Namespaces) > 0 {
		namespaces = c.Namespaces
	}
	for _, ns := range namespaces {
		all = append(all, slicesOf(ns))
		if c.readsPods() {
			pods := podsOf(ns)
			pods.OnlyMetadata = !c.ServiceAccounts
			all = append(all, pods)
		}
	}
	return all
}

func slicesOf(namespace string) collection {
	return collection{
		Collection: apiserver.Collection{Path: path("/apis/discovery.k8s.io/v1", namespace, "endpointslices"), Query: url.Values{"labelSelector": {daprServices}}},
		resource:   "endpointslices.discovery.k8s.io", role: "isthmus-instances",
	}
}

func podsOf(namespace string) collection {
	return collection{
		Collection: apiserver.Collection{Path: path("/api/v1", namespace, "pods"), Query: url.Values{"labelSelector": {daprPods}}, OnlyMetadata: true},
		resource:   "pods", role: "isthmus-instances-pods", pods: true,
	}
}

func path(group, namespace, plural string) string {
	if namespace != "" {
		return group + "/namespaces/" + namespace + "/" + plural
	}
	return group + "/" + plural
}
