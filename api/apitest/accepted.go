package apitest

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Accepted are YAML texts of one object each, at the bounds of the rules.
func Accepted() map[string]string {
	const shop, east = "{namespace: shop, name: checkout}", "{name: east}"
	cluster := func(spec string) string { return Object("Cluster", east, spec) }
	return map[string]string{
		"labels and introductions":      cluster("{gateways: [{address: gw}], labels: [region=eu, example.com/tier=Edge-1], introduceTo: {names: [\"*\", eu-1], labels: [region=eu]}, introduces: {names: [\"eu-*\"], labels: [region=eu], trustDomains: [\"*.example\"]}}"),
		"introductions by label":        cluster("{gateways: [{address: gw}], introduceTo: {labels: [a=b]}, introduces: {labels: [a=b]}}"),
		"an app-id as long as can be":   Object("AppExport", "{namespace: shop, name: "+strings.Repeat("a", 58)+"}", "{}"),
		"a namespace as long as can be": Object("AppExport", "{namespace: "+strings.Repeat("n", 63)+", name: a}", "{}"),
		"names with digits and hyphens": Object("AppExport", "{namespace: \"0\", name: 9a--b-0}", "{}"),
		"an actor type":                 Object("ActorType", "{namespace: shop, name: cart}", "{type: Cart, owner: east, allow: [{cluster: west, app: checkout}], draining: true}"),
		"an actor type for nobody":      Object("ActorType", "{namespace: shop, name: cart-v2}", "{type: "+strings.Repeat("A", catalog.MaxActorType)+", owner: east}"),
		"actors of other clusters":      Object("AppEndpoints", shop, "{actors: [{type: Cart}, {type: shop.Basket_2, routes: [{cluster: east}, {cluster: north}]}]}"),
		"an export to nobody":           Object("AppExport", shop, "{allow: []}"),
		"an export to anybody":          Object("AppExport", shop, `{allow: [{cluster: "*", namespace: "*", app: "*"}, {cluster: "*"}]}`),
		"an export to some":             Object("AppExport", shop, "{allow: [{cluster: west}, {cluster: local, namespace: billing}, {namespace: shop}, {app: cart}, {cluster: west, namespace: shop, app: cart}]}"),
		"a selection of nothing":        Object("AppEndpoints", shop, "{}"),
		"a selection of an empty list":  Object("AppEndpoints", shop, "{endpoints: []}"),
		"a default of a namespace":      Object("AppEndpoints", "{namespace: shop, name: default.isthmus.dev}", "{endpoints: [{app: orders}]}"),
		"a default of all namespaces":   Object("AppEndpoints", "{namespace: isthmus-system, name: cluster-default.isthmus.dev}", "{endpoints: [{app: orders}, {app: ledger, namespace: finance}]}"),
		"the same app elsewhere":        Selection("  - {app: checkout, namespace: finance}\n  - app: orders\n  - {app: orders, namespace: finance}\n"),
		"an endpoint with no route":     Selection("  - {app: a, routes: [], whenStale: withdraw}\n"),
		"a locality":                    Selection("  - {app: a, locality: prefer}\n  - {app: b, locality: none, whenStale: serve}\n  - {app: c}\n"),
		"routes at their bounds":        Selection("  - {app: a, whenStale: serve, routes: [{cluster: local, priority: 0, weight: 0}, {cluster: east, priority: 100, weight: 10000}]}\n"),
		"calls that stay together":      Selection("  - {app: a, hash: {header: X-User_id.v1}}\n  - {app: b, hash: {source: app}}\n"),
		"another name":                  Selection("  - {app: a, namespace: finance, as: a}\n  - {app: b_2, as: B_2}\n"),
		"another name for a namespace":  Object("AppEndpoints", "{namespace: shop, name: default.isthmus.dev}", "{endpoints: [{app: a, as: b}]}"),
		"instances that it takes":       Selection("  - {app: a, routes: [{cluster: local, minReady: 3}, {cluster: east, minReady: \"100000\"}, {cluster: north, minReady: 50%}, {cluster: south, minReady: 100%}]}\n"),
		"versions":                      Selection("  - {app: a, routes: [{cluster: local, minReady: 3, versions: [\"1.*\"]}, {cluster: east, versions: [2.1.0+build-7, \"2.?\"]}, {cluster: north, minReady: 50%, versions: []}]}\n"),
		"as many routes as can be":      Selection("  - app: a\n    routes:" + strings.ReplaceAll(items(catalog.MaxRoutes, "cluster: c"), "\n", "\n    ") + "\n"),
		"two hundred endpoints":         Selection(strings.TrimPrefix(items(200, "app: a"), "\n") + "\n"),
		"a cluster in reach":            cluster("{network: net-1/A.b_c}"),
		"a network as long as can be":   cluster("{network: " + strings.Repeat("n", 63) + "}"),
		"a name as long as can be":      Object("Cluster", "{name: "+strings.Repeat("c", 50)+"}", "{network: a}"),
		"gateways of every sort":        cluster(`{gateways: [{address: "203.0.113.7:15443"}, {address: 203.0.113.8}, {address: GW.east.example}, {address: "gw.east.example.:1"}, {address: "[2001:db8::1]:65535"}, {address: "[2001:db8::2]"}, {address: "2001:db8::3"}]}`),
		"gateways for one app each":     cluster(`{gateways: [{address: "203.0.113.7:15443"}, {address: "203.0.113.8:50002", app: orders, namespace: shop}, {address: "[2001:db8::8]:50002", app: orders, namespace: shop}, {address: "gw.east.example:50003", app: orders, namespace: finance}]}`),
		"as many gateways as can be":    cluster(`{gateways: [` + manyGateways() + `]}`),
		"ranges of a network":           cluster(`{network: a, networkRanges: [10.2.0.0/16, "2001:db8::/32", 0.0.0.0/0]}`),
		"no ranges of a network":        cluster("{network: a, networkRanges: []}"),
		"the shortest lease":            cluster("{network: a, staleAfter: 100ms}"),
		"the longest lease":             cluster("{network: a, staleAfter: 24h}"),
		"a ramp of nothing":             cluster("{network: a, rampUp: 0s}"),
		"a zero without a unit":         cluster("{network: a, rampUp: \"0\"}"),
		"the longest ramp":              cluster("{network: a, rampUp: 10m}"),
		"a trust domain alone":          cluster("{network: a, trust: {domain: a-b_c.0}}"),
		"a root":                        Trusting(EastRoot),
		"several roots and other words": Trusting("Issuer: east\n" + EastRoot + "Issuer: north\n" + NorthRoot),
		"roots that follow":             Trusting(EastRoot) + "    rotation: accept\n",
		"a guest":                       Guest(`{app: shop/orders, caller: shop/checkout-dev}, {app: shop/orders, header: {name: X-Dev, value: "a:b~!"}}`),
		"a guest that only calls":       cluster("{tunnel: accept, guest: {until: \"2026-11-28T20:00:00.5+01:00\", apps: [a/b, " + strings.Repeat("n", 63) + "/" + strings.Repeat("a", 58) + "]}}"),
		"as many takes as can be":       Guest(strings.Repeat("{app: shop/orders, caller: "+strings.Repeat("n", 63)+"/"+strings.Repeat("a", 58)+"}, ", 100)),
		"an instance":                   Instance("address: \"10.0.0.5:50002\""),
		"an instance in IPv6":           Instance(`address: "[2001:db8::5]:65535", zone: "Rechenzentrum 1, Köln"`),
		"an instance of a version":      Instance(`address: "10.0.0.5:1", version: "2.1.0-rc.1"`),
		"an instance on loopback":       Instance(`address: "127.0.0.1:1", zone: ` + strings.Repeat("ö", 63)),
		"a check of a connection":       Checked("tcp: {}"),
		"a check of another port":       Checked("tcp: {port: 65535}, interval: 100ms, timeout: 100ms, healthyAfter: 100, unhealthyAfter: 1"),
		"a check by HTTP":               Checked("http: {port: 3500}, interval: 1h, timeout: 1h"),
		"a check by HTTPS":              Checked("http: {port: 443, scheme: https, path: \"/healthz?a=b%20c\", host: vm1.example}, timeout: 10ms"),
		"a check by gRPC":               Checked("grpc: {}"),
		"a check by gRPC of a service":  Checked("grpc: {port: 50001, service: shop.Orders, tls: true}"),
		"a check without TLS":           Checked("grpc: {tls: false}, interval: 100ms"),
		"a lease in several units":      cluster(fmt.Sprintf("{network: a, staleAfter: %q}", "+1h1m1.5s1ms1us1µs1ns")),
	}
}

func manyGateways() string {
	all := make([]string, 100)
	all[0] = "{address: gw.east.example}"
	for i := 1; i < len(all); i++ {
		all[i] = fmt.Sprintf(`{address: "%s-%d.example:50002", app: %s, namespace: %s}`, strings.Repeat("g", 60), i, strings.Repeat("a", 58), strings.Repeat("n", 63))
	}
	return strings.Join(all, ", ")
}
