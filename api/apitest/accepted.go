package apitest

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Accepted are YAML texts of one object each, at the bounds of what is taken.
func Accepted() map[string]string {
	const shop, east = "{namespace: shop, name: checkout}", "{name: east}"
	cluster := func(spec string) string { return Object("Cluster", east, spec) }
	return map[string]string{
		"an app-id as long as can be":   Object("AppExport", "{namespace: shop, name: "+strings.Repeat("a", 58)+"}", "{}"),
		"a namespace as long as can be": Object("AppExport", "{namespace: "+strings.Repeat("n", 63)+", name: a}", "{}"),
		"names with digits and hyphens": Object("AppExport", "{namespace: \"0\", name: 9a--b-0}", "{}"),
		"an export to nobody":           Object("AppExport", shop, "{allow: []}"),
		"an export to anybody":          Object("AppExport", shop, `{allow: [{cluster: "*", namespace: "*", app: "*"}, {cluster: "*"}]}`),
		"an export to some":             Object("AppExport", shop, "{allow: [{cluster: west}, {namespace: shop}, {app: cart}, {cluster: west, namespace: shop, app: cart}]}"),
		"a selection of nothing":        Object("AppEndpoints", shop, "{}"),
		"a selection of an empty list":  Object("AppEndpoints", shop, "{endpoints: []}"),
		"the same app elsewhere":        Selection("  - {app: checkout, namespace: finance}\n  - app: orders\n  - {app: orders, namespace: finance}\n"),
		"an endpoint with no route":     Selection("  - {app: a, routes: [], whenStale: withdraw}\n"),
		"routes at their bounds":        Selection("  - {app: a, whenStale: serve, routes: [{cluster: local, priority: 0, weight: 0}, {cluster: east, priority: 100, weight: 10000}]}\n"),
		"as many routes as can be":      Selection("  - app: a\n    routes:" + strings.ReplaceAll(items(catalog.MaxRoutes, "cluster: c"), "\n", "\n    ") + "\n"),
		"two hundred endpoints":         Selection(strings.TrimPrefix(items(200, "app: a"), "\n") + "\n"),
		"a cluster in reach":            cluster("{network: net-1/A.b_c}"),
		"a network as long as can be":   cluster("{network: " + strings.Repeat("n", 63) + "}"),
		"a name as long as can be":      Object("Cluster", "{name: "+strings.Repeat("c", 50)+"}", "{network: a}"),
		"gateways of every sort":        cluster(`{gateways: [{address: "203.0.113.7:15443"}, {address: 203.0.113.8}, {address: GW.east.example}, {address: "gw.east.example.:1"}, {address: "[2001:db8::1]:65535"}, {address: "[2001:db8::2]"}, {address: "2001:db8::3"}]}`),
		"the shortest lease":            cluster("{network: a, staleAfter: 100ms}"),
		"the longest lease":             cluster("{network: a, staleAfter: 24h}"),
		"a lease in several units":      cluster(fmt.Sprintf("{network: a, staleAfter: %q}", "+1h1m1.5s1ms1us1µs1ns")),
	}
}
