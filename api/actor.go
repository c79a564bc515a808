package api

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func (v *validator) actorType(m *v1alpha1.ActorType) catalog.Object {
	a := &catalog.ActorType{Source: v.source()}
	v.ownName(m.Metadata, &a.Namespace, &a.Name, "write the namespace of the apps that host the type", "write a name for the object, such as the type in lower case", "give the object another name; spec.type has the type as it is")
	v.spec(m.Spec != nil, "write the type and its owner: \"spec: {type: Cart, owner: east, allow: []}\"")
	if m.Spec == nil {
		return a
	}
	a.Type, a.Owner, a.Draining = intern(m.Spec.Type), intern(m.Spec.Owner), m.Spec.Draining
	if v.required(a.Type, "spec.type", "write the actor type as apps name it") {
		v.check(catalog.CheckActorType(a.Type), "spec.type", "write another type")
	}
	if v.required(a.Owner, "spec.owner", "write the name of the cluster that the actors run in") {
		v.check(catalog.CheckCluster(a.Owner), "spec.owner", "write a cluster's name")
	}
	a.Allow = v.allows(m.Spec.Allow, catalog.CheckCluster)
	return a
}

// actors are the actor types of a selection.
func (v *validator) actors(all []*v1alpha1.ActorEndpoint) []catalog.ActorEndpoint {
	if !v.atMost("spec.actors", len(all), catalog.MaxActors, "select fewer types") || len(all) == 0 {
		return nil
	}
	actors := make([]catalog.ActorEndpoint, len(all))
	first := make(map[string]int, len(all))
	for i, a := range all {
		path := func(name string) string { return fmt.Sprintf("spec.actors[%d].%s", i, name) }
		actors[i].Type = intern(a.Type)
		if v.required(a.Type, path("type"), "write the actor type as apps name it") {
			v.check(catalog.CheckActorType(a.Type), path("type"), "write another type")
		}
		if v.atMost(path("routes"), len(a.Routes), catalog.MaxRoutes, "leave some out") {
			actors[i].Clusters = v.owners(a.Routes, path)
		}
		switch j, there := first[a.Type]; {
		case a.Type == "": // reported
		case there:
			v.refuse(fmt.Sprintf("spec.actors[%d]", i), fmt.Sprintf("%s is there twice, first as spec.actors[%d]", a.Type, j), "put all its routes into one of them")
		default:
			first[a.Type] = i
		}
	}
	return actors
}

// owners are the clusters that may own a type.
func (v *validator) owners(routes []*v1alpha1.ActorRoute, path func(string) string) (clusters []string) {
	first := make(map[string]int, len(routes))
	for i, r := range routes {
		at := path(fmt.Sprintf("routes[%d].cluster", i))
		if v.required(r.Cluster, at, "write the name of a Cluster") {
			v.check(catalog.CheckCluster(r.Cluster), at, "write the name of another cluster; actors of this one need no route")
		}
		switch j, there := first[r.Cluster]; {
		case r.Cluster == "": // reported
		case there:
			v.refuse(at, fmt.Sprintf("%q is there twice, first as routes[%d]", r.Cluster, j), "keep one of them")
		default:
			first[r.Cluster] = i
		}
		clusters = append(clusters, intern(r.Cluster))
	}
	return clusters
}

func actorTypeToProto(a *catalog.ActorType) *v1alpha1.ActorType {
	return &v1alpha1.ActorType{
		ApiVersion: catalog.Version, Kind: string(catalog.KindActorType), Metadata: &v1alpha1.Metadata{Namespace: a.Namespace, Name: a.Name},
		Spec: &v1alpha1.ActorTypeSpec{Type: a.Type, Owner: a.Owner, Allow: wire.Allow(a.Allow), Draining: a.Draining},
	}
}

func actorsToProto(actors []catalog.ActorEndpoint) (all []*v1alpha1.ActorEndpoint) {
	for i := range actors {
		m := &v1alpha1.ActorEndpoint{Type: actors[i].Type}
		for _, cluster := range actors[i].Clusters {
			m.Routes = append(m.Routes, &v1alpha1.ActorRoute{Cluster: cluster})
		}
		all = append(all, m)
	}
	return all
}
