package storetest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Cluster is a Cluster that is told apart by its network.
func Cluster(name, network string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Network: network, StaleAfter: catalog.DefaultStaleAfter}
}

func full(name string) *catalog.Cluster {
	return &catalog.Cluster{
		Name: name, Gateways: []string{"203.0.113.7:15443", "gw.east.example:15443"}, Network: "net-1",
		NetworkRanges: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8::/32")},
		AppGateways:   []catalog.AppGateway{{App: catalog.App{Namespace: "shop", ID: "orders"}, Address: "203.0.113.8:50002"}},
		StaleAfter:    30 * time.Second, RampUp: time.Minute,
		Trust: catalog.Trust{Domain: "east.example", Roots: apitest.EastRoot + apitest.NorthRoot},
	}
}

// instance is an AppInstance that is told apart by its zone.
func instance(namespace, name, zone string) *catalog.AppInstance {
	return &catalog.AppInstance{
		Namespace: namespace, Name: name, App: "orders", Address: netip.MustParseAddrPort("10.0.0.5:50002"), Zone: zone,
		Check: &catalog.HealthCheck{
			Kind: catalog.CheckHTTP, Port: 3500, Path: "/", TLS: true, Interval: time.Second, Timeout: 500 * time.Millisecond,
			HealthyAfter: 1, UnhealthyAfter: 3,
		},
	}
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

// sized is a selection of exactly so many bytes of JSON.
func sized(t testing.TB, app string, bytes int) *catalog.AppEndpoints {
	t.Helper()
	s := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: app}}
	callee := func(id string, routes []catalog.RouteSpec) {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: id}, Routes: routes})
	}
	var routes []catalog.RouteSpec
	for i := range catalog.MaxRoutes {
		routes = append(routes, catalog.RouteSpec{Cluster: fmt.Sprintf("%s-%d", strings.Repeat("c", 40), i), Weight: 1})
	}
	callee("first", nil)
	left := bytes - len(api.EncodeJSON(s))
	withRoutes := func(id string) int {
		one := &catalog.AppEndpoints{App: s.App, Endpoints: []catalog.Endpoint{s.Endpoints[0], {App: catalog.App{Namespace: "shop", ID: id}, Routes: routes}}}
		return len(api.EncodeJSON(one)) - len(api.EncodeJSON(&catalog.AppEndpoints{App: s.App, Endpoints: s.Endpoints[:1]}))
	}
	for step := withRoutes("callee-0000"); left > 2*step; left -= step {
		callee(fmt.Sprintf("callee-%04d", len(s.Endpoints)), routes)
	}
	const empty = len(`,{"app":""}`)
	for left > 0 {
		length := min(left-empty, 40)
		if rest := left - empty - length; rest > 0 && rest < 30 {
			length = 20 // leaves room for the last name
		}
		name := fmt.Sprintf("n%d", len(s.Endpoints))
		callee(name+strings.Repeat("n", max(0, length-len(name))), nil)
		left -= empty + length
	}
	if got := len(api.EncodeJSON(s)); got != bytes {
		t.Fatalf("an object to be of %d bytes has %d", bytes, got)
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
