package objects

import (
	"cmp"
	"fmt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// CheckHosts checks that the host names of an object fit into DNS and SNI under a domain. An
// endpoint without routes may lead to any of the clusters.
func CheckHosts(domain catalog.Domain, cluster string, clusters []*catalog.Cluster, object catalog.Object) error {
	var mistakes api.Errors
	check := func(app catalog.App, in, path string, line int) {
		if err := domain.CheckHost(app, in); err != nil {
			mistakes = append(mistakes, &api.Error{
				File: cmp.Or(object.Origin().File, object.Origin().String()), Line: line, Key: object.Key(), Path: path,
				What: err.Error(), Fix: "use a shorter domain, cluster name, namespace or app-id",
			})
		}
	}
	switch o := object.(type) {
	case *catalog.AppExport:
		check(o.App, cluster, "metadata", o.Source.Line)
	case *catalog.AppEndpoints:
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			path := fmt.Sprintf("spec.endpoints[%d]", i)
			for _, in := range remotes(e, clusters) {
				check(e.App, in, path, int(e.Line))
			}
		}
	}
	return mistakes.Err()
}

// remotes returns the other clusters that an endpoint may lead to.
func remotes(e *catalog.Endpoint, clusters []*catalog.Cluster) []string {
	var names []string
	for _, r := range e.Routes {
		if r.Cluster != catalog.LocalCluster {
			names = append(names, r.Cluster)
		}
	}
	if len(e.Routes) == 0 {
		for _, c := range clusters {
			names = append(names, c.Name)
		}
	}
	return names
}
