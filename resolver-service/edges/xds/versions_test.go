package xds

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// A client has one server name for a gateway's address. By a route to some versions it is the name of an
// instance, since the app's would lead to any.
func TestAVersionBehindAGatewayHasTheNameOfAnInstance(t *testing.T) {
	m := &maker{domain: catalog.DefaultDomain}
	gateways := func(*catalog.Route, catalog.App) []string { return []string{"203.0.113.7:15443"} }
	const instance = "i00000007.orders.shop.east.isthmus.internal"
	for want, r := range map[string]catalog.Route{
		instance:                            {RouteSpec: catalog.RouteSpec{Cluster: "east", Versions: "2.*"}, Gateway: true, Addresses: []string{instance + ":15443"}, Instances: []uint32{7, 8}},
		"orders.shop.east.isthmus.internal": {RouteSpec: catalog.RouteSpec{Cluster: "east"}, Gateway: true, Addresses: []string{"0.orders.shop.east.isthmus.internal:15443", "1.orders.shop.east.isthmus.internal:15443"}},
	} {
		all := m.endpointsBehind(shop("orders"), &r, gateways)
		if len(all) != 1 || all[0].GetEndpoint().GetHostname() != want {
			t.Errorf("the endpoints are %v, want one by the name of %s", all, want)
		}
	}
}
