package catalog

import (
	"fmt"
	"strings"
)

// ParseCallerHost reads <app>.<namespace>.<domain>, the name of an app wherever the
// caller's view has it, in any case, with or without a final dot. It allocates nothing for
// a name in lower case.
func (d Domain) ParseCallerHost(host string) (a App, ok bool) {
	return twoLabels(host, "", "."+string(d))
}

// Kubernetes is the domain of a Kubernetes cluster, such as "cluster.local". The zero value means
// none.
type Kubernetes string

// serviceLabel is the label between the names of Kubernetes' services and the domain.
const serviceLabel = ".svc."

// Host is the name of the headless service that Dapr makes for an app:
// <app>-dapr.<namespace>.svc.<kubernetes>. Dapr's resolver "kubernetes" dials it.
func (k Kubernetes) Host(a App) string {
	return a.ID + daprServiceSuffix + "." + a.Namespace + serviceLabel + string(k)
}

// ParseHost parses such a name, like [Domain.ParseCallerHost]. It accepts none if the domain is
// empty.
func (k Kubernetes) ParseHost(host string) (a App, ok bool) {
	if k == "" {
		return App{}, false
	}
	return twoLabels(host, daprServiceSuffix, serviceLabel+string(k))
}

// CheckKubernetes checks a domain of Kubernetes, whose names must not overlap with those of d.
func CheckKubernetes(k Kubernetes, d Domain) error {
	if err := CheckDomain(string(k)); err != nil {
		return err
	}
	if domain, found := strings.CutPrefix(string(k), serviceLabel[1:]); found {
		return fmt.Errorf("%q begins with the label of services, which is put before it; write %s", k, domain)
	}
	services, own := serviceLabel+string(k), "."+string(d)
	if strings.HasSuffix(services, own) || strings.HasSuffix(own, services) {
		return fmt.Errorf("the services of Kubernetes below %q and the domain %q have names in common; give Isthmus a domain that is not below the other", services[1:], d)
	}
	return nil
}

// twoLabels parses <app><after>.<namespace><suffix>. The suffix is in lower case.
func twoLabels(host, after, suffix string) (a App, ok bool) {
	host = strings.TrimSuffix(host, ".")
	if len(host) > maxHostName {
		return App{}, false
	}
	if host, ok = lowerASCII(host); !ok {
		return App{}, false
	}
	if host, ok = strings.CutSuffix(host, suffix); !ok {
		return App{}, false
	}
	id, ns, ok := strings.Cut(host, ".")
	if !ok || ns == "" || strings.IndexByte(ns, '.') >= 0 {
		return App{}, false
	}
	if id, ok = strings.CutSuffix(id, after); !ok || id == "" {
		return App{}, false
	}
	return App{Namespace: ns, ID: id}, true
}
