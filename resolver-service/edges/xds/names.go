package xds

import (
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// resourceName is what the name of a resource stands for: an app wherever it is, "orders.shop",
// or an app in one cluster, "orders.shop.west".
type resourceName struct {
	app     catalog.App
	cluster string // empty: wherever the selection leads
	other   string // the name, if it is no app's
}

func parseName(s string) resourceName {
	id, rest, dotted := strings.Cut(s, ".")
	namespace, cluster, inCluster := strings.Cut(rest, ".")
	n := resourceName{app: catalog.App{Namespace: namespace, ID: id}, cluster: cluster}
	if !dotted || n.app.CheckHost() != nil || inCluster && catalog.CheckCluster(cluster) != nil {
		return resourceName{other: s}
	}
	return n
}

func (n resourceName) String() string {
	if n.app == (catalog.App{}) {
		return n.other
	}
	s := n.app.ID + "." + n.app.Namespace
	if n.cluster != "" {
		s += "." + n.cluster
	}
	return s
}
