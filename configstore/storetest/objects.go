package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// cluster is a Cluster that is told apart by its network.
func cluster(name, network string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Network: network, StaleAfter: catalog.DefaultStaleAfter}
}

func full(name string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Gateways: []string{"203.0.113.7:15443", "gw.east.example:15443"}, Network: "net-1", StaleAfter: 30 * time.Second}
}

func export(namespace, app string) *catalog.AppExport {
	return &catalog.AppExport{App: catalog.App{Namespace: namespace, ID: app}, Allow: []catalog.Allow{{Cluster: "*", Namespace: namespace}}}
}

// selection selects n apps with routes.
func selection(namespace, app string, n int) *catalog.AppEndpoints {
	s := &catalog.AppEndpoints{App: catalog.App{Namespace: namespace, ID: app}}
	for i := range n {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{
			App:    catalog.App{Namespace: namespace, ID: fmt.Sprintf("callee-%d", i)},
			Routes: []catalog.RouteSpec{{Cluster: "local", Weight: 1}, {Cluster: "east", Priority: 1, Weight: 90}},
		})
	}
	return s
}

// large is a selection of at least so many bytes of JSON.
func large(bytes int) *catalog.AppEndpoints {
	var routes []catalog.RouteSpec
	for i := range catalog.MaxRoutes {
		routes = append(routes, catalog.RouteSpec{Cluster: fmt.Sprintf("%s-%d", strings.Repeat("c", 40), i), Weight: 1})
	}
	s := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: "large"}}
	for size := 0; size < bytes; size += catalog.MaxRoutes * len(`{"cluster":"cccccccccccccccccccccccccccccccccccccccc-0"},`) {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{
			App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("callee-%d", len(s.Endpoints))}, Routes: routes,
		})
	}
	return s
}

// allowedNames has every character that a name can have, at every place that it can
// have it.
func allowedNames() []string {
	names := []string{"0", "a", "9a", "a9", "a--b", "0-0", "null", "true", "no", "1e3", "abcdefghijklmnopqrstuvwxyz-0123456789", strings.Repeat("z", 50), strings.Repeat("z", 58)}
	for c := 'a'; c <= 'z'; c++ {
		names = append(names, fmt.Sprintf("%c-%c", c, c))
	}
	return names
}
