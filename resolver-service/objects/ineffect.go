package objects

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// bare is an object that says nothing but what differs from the defaults. Two objects with the same
// one are equal in effect.
func (s *Server) bare(object catalog.Object) catalog.Object {
	switch o := object.(type) {
	case *catalog.AppEndpoints:
		c := *o
		c.Endpoints = slices.Clone(o.Endpoints)
		for i := range c.Endpoints {
			e := &c.Endpoints[i]
			if e.Locality != catalog.DefaultLocality && e.Locality.Prefers(false) == s.cfg.PreferZone {
				e.Locality = catalog.DefaultLocality
			}
			e.Routes = slices.Clone(e.Routes)
			for j := range e.Routes {
				e.Routes[j].Cluster = s.bareCluster(e.Routes[j].Cluster)
			}
		}
		return &c
	case *catalog.AppExport:
		c := *o
		c.Allow = s.bareAllow(o.Allow)
		return &c
	case *catalog.ActorType:
		c := *o
		c.Allow = s.bareAllow(o.Allow)
		return &c
	case *catalog.Cluster:
		c := *o
		if c.Trust.AppDomain == c.Trust.Domain {
			c.Trust.AppDomain = ""
		}
		return &c
	}
	return object
}

func (s *Server) bareCluster(name string) string {
	if name == s.cfg.Cluster {
		return catalog.LocalCluster
	}
	return name
}

func (s *Server) bareAllow(allow []catalog.Allow) (all []catalog.Allow) {
	any := func(pattern string) string {
		if pattern == "*" {
			return ""
		}
		return pattern
	}
	for _, a := range allow {
		all = append(all, catalog.Allow{Cluster: s.bareCluster(any(a.Cluster)), Namespace: any(a.Namespace), App: any(a.App)})
	}
	return all
}
