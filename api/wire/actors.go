package wire

import (
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Actors is an actor view as a message.
func Actors(v *catalog.ActorView) *v1alpha1.ActorsResponse {
	m := &v1alpha1.ActorsResponse{Cluster: v.Cluster, Revision: v.Revision, Domains: v.Domains}
	for i := range v.Imports {
		a := &v.Imports[i]
		m.Imports = append(m.Imports, &v1alpha1.ImportedActors{
			Type: a.Type, Owner: a.Owner, Problem: a.Problem, Stale: a.Stale, Draining: a.Draining, Callers: a.Callers, Allow: Allow(a.Allow),
		})
	}
	for i := range v.Owned {
		a := &v.Owned[i]
		m.Owned = append(m.Owned, &v1alpha1.OwnedActors{Type: a.Type, Problem: a.Problem, Draining: a.Draining, Allow: Allow(a.Allow)})
	}
	for _, c := range v.Clusters {
		m.Clusters = append(m.Clusters, &v1alpha1.ActorCluster{Name: c.Name, Domain: c.Domain})
	}
	return m
}

// ParseActors is the inverse of [Actors], for a namespace. The service has sorted its lists.
func ParseActors(namespace string, m *v1alpha1.ActorsResponse) *catalog.ActorView {
	v := &catalog.ActorView{Namespace: namespace, Cluster: m.GetCluster(), Revision: m.GetRevision(), Domains: m.GetDomains()}
	for _, a := range m.GetImports() {
		v.Imports = append(v.Imports, catalog.ActorImport{
			Type: a.GetType(), Owner: a.GetOwner(), Problem: a.GetProblem(), Stale: a.GetStale(), Draining: a.GetDraining(),
			Callers: a.GetCallers(), Allow: ParseAllow(a.GetAllow()),
		})
	}
	for _, a := range m.GetOwned() {
		v.Owned = append(v.Owned, catalog.OwnedActors{Type: a.GetType(), Problem: a.GetProblem(), Draining: a.GetDraining(), Allow: ParseAllow(a.GetAllow())})
	}
	for _, c := range m.GetClusters() {
		v.Clusters = append(v.Clusters, catalog.ActorCluster{Name: c.GetName(), Domain: c.GetDomain()})
	}
	return v
}

// Allow are callers as messages.
func Allow(allow []catalog.Allow) (all []*v1alpha1.Allow) {
	for _, a := range allow {
		all = append(all, &v1alpha1.Allow{Cluster: a.Cluster, Namespace: a.Namespace, App: a.App})
	}
	return all
}

// ParseAllow is the inverse of [Allow].
func ParseAllow(allow []*v1alpha1.Allow) (all []catalog.Allow) {
	for _, a := range allow {
		all = append(all, catalog.Allow{Cluster: a.GetCluster(), Namespace: a.GetNamespace(), App: a.GetApp()})
	}
	return all
}
