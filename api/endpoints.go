package api

import (
	"fmt"
	"strings"
	"unique"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

func (v *validator) appEndpoints(m *v1alpha1.AppEndpoints) catalog.Object {
	s := &catalog.AppEndpoints{App: v.caller(m.Metadata), Source: v.source()}
	v.spec(m.Spec != nil, "write what the app may call: \"spec: {endpoints: []}\" for nothing")
	s.Actors = v.actors(m.GetSpec().GetActors())
	endpoints := m.GetSpec().GetEndpoints()
	if !v.atMost("spec.endpoints", len(endpoints), catalog.MaxEndpoints, "select fewer apps") || len(endpoints) == 0 {
		return s
	}
	s.Endpoints = make([]catalog.Endpoint, len(endpoints))
	first := make(map[catalog.App]int, len(endpoints))
	for i, e := range endpoints {
		s.Endpoints[i] = v.endpoint(i, e, s.App)
		app := s.Endpoints[i].App
		switch j, there := first[app]; {
		case app.ID == "": // reported
		case there:
			v.refuse(fmt.Sprintf("spec.endpoints[%d]", i), fmt.Sprintf("%s is there twice, first as spec.endpoints[%d]", app, j), "put all its routes into one of them")
		default:
			first[app] = i
		}
	}
	v.names(s, first)
	v.lines(s)
	return s
}

// caller is the app that a selection is for, or the name of a default.
func (v *validator) caller(m *v1alpha1.Metadata) catalog.App {
	a := catalog.FromKubernetes(m.GetNamespace(), m.GetName())
	switch {
	case m.GetName() == catalog.KubernetesClusterDefault && a.ID != catalog.DefaultName:
		v.refuse("metadata.namespace", fmt.Sprintf("is %q, and the default for all namespaces is in %s", strict.Shorten(a.Namespace), catalog.DefaultsNamespace),
			"write namespace: "+catalog.DefaultsNamespace+", or name: "+catalog.KubernetesDefault+" for a default of this namespace")
		return a
	case a.ID != catalog.DefaultName:
		return v.app(m)
	}
	if v.required(a.Namespace, "metadata.namespace", "write the namespace whose apps follow the default, or \"*\" for all") {
		v.check(a.CheckSelection(), "metadata.namespace", "write a namespace, or \"*\" for all")
	}
	return catalog.App{Namespace: intern(a.Namespace), ID: catalog.DefaultName}
}

// lines says where each endpoint begins.
func (v *validator) lines(s *catalog.AppEndpoints) {
	if !v.asWritten {
		canonicalLines(s)
		return
	}
	items := v.root.Field("spec").Field("endpoints")
	for i := range s.Endpoints {
		if n := items.Item(i); n != nil {
			s.Endpoints[i].Line = n.At.Line
		}
	}
}

func (v *validator) endpoint(i int, e *v1alpha1.Endpoint, caller catalog.App) catalog.Endpoint {
	path := func(name string) string { return fmt.Sprintf("spec.endpoints[%d].%s", i, name) }
	ep := catalog.Endpoint{App: catalog.App{Namespace: caller.Namespace, ID: intern(e.App)}}
	if e.App == "" {
		v.required("", path("app"), "write the app-id of the app to call")
	} else if err := catalog.CheckAppID(e.App); err != nil {
		v.refuse(path("app"), err.Error(), "write the app-id as daprd has it")
	}
	if e.Namespace != "" {
		ep.App.Namespace = intern(e.Namespace)
		if err := catalog.CheckNamespace(e.Namespace); err != nil {
			v.refuse(path("namespace"), err.Error(), "write the namespace as daprd has it")
		}
	}
	if ep.App == caller && caller.ID != "" && caller.ID != catalog.DefaultName {
		v.refuse(path("app"), fmt.Sprintf("is %s itself, which always resolves to its own instance", caller), "leave this endpoint out")
	}
	ep.WhenStale = v.whenStale(e.WhenStale, path)
	ep.Locality = v.locality(e.Locality, path)
	ep.Hash = v.hash(e.Hash, path)
	ep.As = v.as(e, &ep, caller, path)
	ep.Routes = v.routes(e.Routes, path)
	if err := catalog.CheckHostAppID(ep.App.ID); err != nil && catalog.CheckAppID(ep.App.ID) == nil {
		for j, r := range ep.Routes {
			if r.Cluster != catalog.LocalCluster {
				v.refuse(path(fmt.Sprintf("routes[%d].cluster", j)), "leads to another cluster, where nobody can call this app: "+err.Error(), "write local, or give the app another app-id")
			}
		}
	}
	return ep
}

func (v *validator) whenStale(s string, path func(string) string) catalog.WhenStale {
	return catalog.WhenStale(v.choice(s, path("whenStale"), catalog.Withdraw.String(), catalog.Serve.String()))
}

func (v *validator) locality(s string, path func(string) string) catalog.Locality {
	if s == "" {
		return catalog.DefaultLocality
	}
	return catalog.NoLocality + catalog.Locality(v.choice(s, path("locality"), catalog.NoLocality.String(), catalog.PreferZone.String()))
}

func (v *validator) hash(m *v1alpha1.Hash, path func(string) string) (h catalog.Hash) {
	switch {
	case m == nil:
	case (m.Header == "") == (m.Source == ""):
		v.refuse(path("hash"), "has both header and source, or none of them", "write one of the two, such as {header: x-user}")
	case m.Source != "" && m.Source != catalog.HashSource:
		v.refuse(path("hash.source"), fmt.Sprintf("%q is not known", strict.Shorten(m.Source)), "write "+catalog.HashSource)
	case m.Source != "":
		h.Source = catalog.HashSource
	default:
		h.Header = intern(strings.ToLower(m.Header))
		v.check(catalog.CheckHeader(h.Header), path("hash.header"), "write the name of a header, such as x-user")
	}
	return h
}

// as is the name by which the caller calls an app.
func (v *validator) as(e *v1alpha1.Endpoint, ep *catalog.Endpoint, caller catalog.App, path func(string) string) string {
	if e.As == "" {
		return ""
	}
	if err := catalog.CheckAppID(e.As); err != nil {
		v.refuse(path("as"), err.Error(), "write an app-id")
		return ""
	}
	switch name := (catalog.App{Namespace: caller.Namespace, ID: e.As}); {
	case caller.Namespace == catalog.DefaultName:
		v.refuse(path("as"), "is a name in the caller's namespace, and these are the endpoints of all namespaces", "move this endpoint to the AppEndpoints of one namespace or one app")
	case name == caller:
		v.refuse(path("as"), fmt.Sprintf("is %s itself, which always resolves to its own instance", name), "choose another name")
	case name == ep.App:
		v.refuse(path("as"), fmt.Sprintf("is the name that %s has anyway", name), "leave as out, or choose another name")
	}
	return intern(e.As)
}

// names has each name lead to one app, and no name to another name.
func (v *validator) names(s *catalog.AppEndpoints, first map[catalog.App]int) {
	as := map[catalog.App]int{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.As == "" {
			continue
		}
		name, path := e.Name(s.App), fmt.Sprintf("spec.endpoints[%d].as", i)
		if j, there := first[name]; there && j != i {
			v.refuse(path, fmt.Sprintf("%s is the app of spec.endpoints[%d], so this name would mean two apps", name, j), "choose a name that no endpoint has, or leave the other endpoint out")
			return // of a circle, the other half says the same
		}
		if j, there := as[name]; there {
			v.refuse(path, fmt.Sprintf("%s is the name of spec.endpoints[%d] already", name, j), "choose another name; to share calls out between two apps, give them one app-id")
		}
		as[name] = i
	}
}

// choice is 0 for the first of two words and 1 for the second; 0 where there is none.
func (w *written) choice(s, path, first, second string) int {
	switch s {
	case "", first:
		return 0
	case second:
		return 1
	}
	w.refuse(path, fmt.Sprintf("%q is not known", strict.Shorten(s)), strict.Hint(s, []string{first, second}, "write "+first+" or "+second))
	return 0
}

func (v *validator) routes(routes []*v1alpha1.Route, path func(string) string) []catalog.RouteSpec {
	if len(routes) == 0 {
		return nil
	}
	if len(routes) > catalog.MaxRoutes {
		v.atMost(path("routes"), len(routes), catalog.MaxRoutes, "leave some out")
		return nil
	}
	all := make([]catalog.RouteSpec, len(routes))
	idle := true
	first := make(map[string]int, len(routes))
	for i, r := range routes {
		all[i] = v.route(r, func(name string) string { return path(fmt.Sprintf("routes[%d].%s", i, name)) })
		idle = idle && all[i].Weight == 0
		switch j, there := first[r.Cluster]; {
		case r.Cluster == "": // reported
		case there:
			v.refuse(path(fmt.Sprintf("routes[%d].cluster", i)), fmt.Sprintf("%q is there twice, first as routes[%d]", r.Cluster, j), "keep one of them")
		default:
			first[r.Cluster] = i
		}
	}
	if idle {
		v.refuse(path("routes"), "every route has weight 0, so none could ever be taken", "give one a weight, or leave the endpoint out")
	}
	return all
}

func (v *validator) route(r *v1alpha1.Route, path func(string) string) catalog.RouteSpec {
	spec := catalog.RouteSpec{Cluster: intern(r.Cluster), Priority: r.Priority, Weight: catalog.DefaultWeight}
	if r.Cluster == "" {
		v.required("", path("cluster"), "write \"local\" or the name of a Cluster")
	} else if r.Cluster != catalog.LocalCluster {
		if err := catalog.CheckCluster(r.Cluster); err != nil {
			v.refuse(path("cluster"), err.Error(), "write \"local\" or the name of a Cluster")
		}
	}
	if r.Priority > catalog.MaxPriority {
		v.refuse(path("priority"), fmt.Sprintf("%d is out of bounds", r.Priority), fmt.Sprintf("write a number from 0 to %d", catalog.MaxPriority))
	}
	if r.Weight != nil {
		spec.Weight = *r.Weight
	}
	if spec.Weight > catalog.MaxWeight {
		v.refuse(path("weight"), fmt.Sprintf("%d is out of bounds", spec.Weight), fmt.Sprintf("write a number from 0 to %d", catalog.MaxWeight))
	}
	var err error
	if spec.MinReady, err = catalog.ParseMinReady(r.MinReady); err != nil {
		v.refuse(path("minReady"), fmt.Sprintf("%q %v", strict.Shorten(r.MinReady), err), "write how many instances must be ready, such as 3 or 50%")
	}
	spec.Versions = v.versions(r.Versions, path)
	if spec.MinReady < 0 && spec.Versions != "" {
		v.refuse(path("minReady"), "is a percentage beside versions, and how many instances of a version there are is not known while they aren't ready", "write a number of instances")
	}
	return spec
}

// versions takes the patterns of a route.
func (v *validator) versions(all []string, path func(string) string) catalog.Versions {
	if !v.atMost(path("versions"), len(all), catalog.MaxVersions, "write a pattern, such as 2.*") {
		return ""
	}
	for i, pattern := range all {
		if pattern == "" { // was refused
			return ""
		}
		v.check(catalog.CheckVersionPattern(pattern), path(fmt.Sprintf("versions[%d]", i)), "write a version, or a pattern such as 2.*")
	}
	return catalog.Versions(intern(strings.Join(all, ",")))
}

// endpointsToProto is the message of a selection, with defaults left out.
func endpointsToProto(s *catalog.AppEndpoints) proto.Message {
	spec := &v1alpha1.AppEndpointsSpec{Actors: actorsToProto(s.Actors)}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		m := &v1alpha1.Endpoint{App: e.App.ID}
		if e.App.Namespace != s.App.Namespace {
			m.Namespace = e.App.Namespace
		}
		for _, r := range e.Routes {
			route := &v1alpha1.Route{Cluster: r.Cluster, Priority: r.Priority, MinReady: r.MinReady.String(), Versions: r.Versions.List()}
			if r.Weight != catalog.DefaultWeight {
				route.Weight = proto.Uint32(r.Weight)
			}
			m.Routes = append(m.Routes, route)
		}
		if e.WhenStale != catalog.Withdraw {
			m.WhenStale = e.WhenStale.String()
		}
		m.Locality, m.As = e.Locality.String(), e.As
		if h := e.Hash; h.Source != "" {
			m.Hash = &v1alpha1.Hash{Source: catalog.HashSource}
		} else if h.Header != "" {
			m.Hash = &v1alpha1.Hash{Header: h.Header}
		}
		spec.Endpoints = append(spec.Endpoints, m)
	}
	return &v1alpha1.AppEndpoints{ApiVersion: catalog.Version, Kind: string(catalog.KindAppEndpoints), Metadata: appMetadata(s.App), Spec: spec}
}

// intern makes equal names share their memory, and keeps a name from holding on to
// the whole text that it was read from.
func intern(s string) string { return unique.Make(s).Value() }
