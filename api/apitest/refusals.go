// Package apitest has the objects that may not be, for the tests of whatever refuses them:
// package api, and the API server of Kubernetes by the definitions made from it.
package apitest

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Refusal is a YAML text with one mistake, and what is said of it.
type Refusal struct{ Name, Text, Want string }

// Selection is an AppEndpoints whose endpoints begin in line 6.
func Selection(endpoints string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec:\n  endpoints:\n" + endpoints
}

// Object is an object as YAML, of flow texts.
func Object(kind, metadata, spec string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: %s\nmetadata: %s\nspec: %s\n", kind, metadata, spec)
}

// Refusals are texts with one mistake each, and what is said of it.
func Refusals() []Refusal {
	const shop = "{namespace: shop, name: checkout}"
	long := strings.Repeat("a", 59)
	return []Refusal{
		// The head of an object.
		{"not a mapping", "- a\n", `f.yaml:1:1: is a list where an object is wanted; begin with apiVersion, kind, metadata and spec`},
		{"no apiVersion and no kind", "spec: {}\n", `f.yaml:1:1: apiVersion: is missing; begin with "apiVersion: isthmus.dev/v1alpha1" and "kind: …", one of AppEndpoints, AppExport, Cluster`},
		{"no kind", "apiVersion: isthmus.dev/v1alpha1\n", `f.yaml:1:1: kind: is missing; begin with`},
		{"another apiVersion", "apiVersion: isthmus.dev/v2\nkind: Cluster\nmetadata: {name: east}\nspec: {network: a}\n", `f.yaml:1:13: apiVersion: "isthmus.dev/v2" is not known here; write isthmus.dev/v1alpha1`},
		{"a misspelt kind", "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoint\n", `f.yaml:2:7: kind: "AppEndpoint" is not a kind of object; did you mean "AppEndpoints"?`},
		{"a kind of something else", "apiVersion: isthmus.dev/v1alpha1\nkind: Deployment\n", `f.yaml:2:7: kind: "Deployment" is not a kind of object; write one of AppEndpoints, AppExport, Cluster`},
		{"no metadata", "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nspec: {}\n", `f.yaml:1:1: metadata: is missing; write "metadata: {namespace: …, name: …}"`},
		{"no namespace", Object("AppExport", "{name: orders}", "{}"), `f.yaml:3:11: metadata.namespace: is missing; write the app's namespace`},
		{"no name", Object("AppExport", "{namespace: shop}", "{}"), `f.yaml:3:11: metadata.name: is missing; write the app-id`},
		{"no cluster name", Object("Cluster", "{}", "{network: a}"), `f.yaml:3:11: metadata.name: is missing; write the cluster's name`},
		{"no spec", "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: orders}\n", `f.yaml:1:1: spec: is missing; write who may call: "spec: {allow: []}" for nobody`},
		{"a spec with nothing in it", Object("AppExport", shop, ""), `f.yaml:4:6: spec: has no value; give it one, or leave the field out`},
		{"an app-id in upper case", Object("AppExport", "{namespace: shop, name: Orders}", "{}"), `f.yaml:3:35: metadata.name: app-id "Orders" has 'O' at position 1; SNI and DNS carry lower-case letters, digits and hyphens only; give the app another app-id`},
		{"an app-id with a dot", Object("AppExport", "{namespace: shop, name: a.b}", "{}"), `metadata.name: app-id "a.b" has '.' at position 2`},
		{"an app-id that is too long", Object("AppExport", "{namespace: shop, name: "+long+"}", "{}"), `is 59 characters long; at most 58 fit, since Dapr appends "-dapr"`},
		{"a namespace with a hyphen in front", Object("AppExport", "{namespace: -shop, name: orders}", "{}"), `metadata.namespace: namespace "-shop" begins or ends with a hyphen`},
		{"a cluster in a namespace", Object("Cluster", "{namespace: shop, name: east}", "{network: a}"), `f.yaml:3:23: metadata.namespace: a Cluster has no namespace; leave it out`},
		{"a cluster called local", Object("Cluster", "{name: local}", "{network: a}"), `metadata.name: cluster name "local" is reserved`},

		// Fields.
		{"an unknown field", Selection("  - app: a\n    rout: []\n"), `f.yaml:7:5: spec.endpoints[0].rout: unknown field; did you mean "routes"?`},
		{"a field in another spelling", Selection("  - app: a\n    when_stale: serve\n"), `f.yaml:7:5: spec.endpoints[0].when_stale: unknown field; did you mean "whenStale"?`},
		{"a field like no other", Selection("  - app: a\n    loadBalancer: serve\n"), `unknown field; the fields here are app, namespace, routes, whenStale`},
		{"a doubled field", Selection("  - app: a\n    namespace: x\n    namespace: y\n"), `f.yaml:8:5: spec.endpoints[0].namespace: is there twice, first in line 7; keep one of them`},
		{"a number for a string", Selection("  - app: 7\n"), `f.yaml:6:10: spec.endpoints[0].app: 7 is a whole number where a string is wanted; put it in quotes: "7"`},
		{"a fraction for a string", Selection("  - app: 1.5\n"), `1.5 is a number with a fraction where a string is wanted`},
		{"true for a string", Selection("  - app: true\n"), `true is true or false where a string is wanted; put it in quotes: "true"`},
		{"a date for a string", Selection("  - app: 2020-01-01\n"), `is a date or another special value where a string is wanted`},
		{"a list for a string", Selection("  - app: [a]\n"), `spec.endpoints[0].app: is a list where a string is wanted; write one value`},
		{"a string for a list", Object("AppEndpoints", shop, "{endpoints: orders}"), `f.yaml:4:19: spec.endpoints: is a string where a list is wanted; begin each item with "- "`},
		{"a string for a mapping", Selection("  - orders\n"), `f.yaml:6:5: spec.endpoints[0]: is a string where a mapping is wanted; write its fields: app, namespace, routes, whenStale`},
		{"a quoted number", Selection("  - {app: a, routes: [{cluster: east, priority: \"1\"}]}\n"), `spec.endpoints[0].routes[0].priority: is a string where a whole number is wanted; write a number such as 1, without quotes`},
		{"a negative number", Selection("  - {app: a, routes: [{cluster: east, weight: -1}]}\n"), `weight: -1 is not a number from 0 to`},
		{"a number in octal", Selection("  - {app: a, routes: [{cluster: east, weight: 0o7}]}\n"), `weight: 0o7 is not a number from 0 to 4294967295 in plain digits`},
		{"a fraction for a number", Selection("  - {app: a, routes: [{cluster: east, weight: 1.5}]}\n"), `weight: is a number with a fraction where a whole number is wanted`},
		{"null", Selection("  - app: ~\n"), `f.yaml:6:10: spec.endpoints[0].app: has no value; give it one, or leave the field out`},
		{"a list with nothing in it", Object("AppEndpoints", shop, "\n  endpoints:"), `spec.endpoints: has no value; write [] for an empty list, or leave the field out`},
		{"an empty string, which would allow anybody", Object("AppExport", shop, `{allow: [{cluster: ""}]}`), `f.yaml:4:26: spec.allow[0].cluster: is empty; give it a value, or leave the field out`},

		// What YAML can do and objects can't.
		{"a merge key", Selection("  - &a {app: a}\n  - {<<: *a, app: b}\n"), `spec.endpoints[1]: merge keys (<<) are not taken; write the fields out`},
		{"a tag", Selection("  - app: !!str 7\n"), `f.yaml:6:10: tag !!str is not taken; leave it out`},
		{"a tag of one's own", Selection("  - !app {app: a}\n"), `tag !app is not taken`},
		{"an alias within its own value", Selection("  - &a {app: a, routes: [*a]}\n"), `alias *a stands within the value that it repeats; write the value out`},
		{"a billion laughs", laughs(), `aliases repeat more than 100000 values; write fewer, or write them out`},
		{"a deep nest", Selection("  - app: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "\n"), `more than 32 levels deep`},
		{"a syntax error", "apiVersion: isthmus.dev/v1alpha1\nkind: {\n", `not YAML: did not find expected node content`},
		{"a tab for an indent", "apiVersion: isthmus.dev/v1alpha1\n\tkind: Cluster\n", `not YAML: `},
		{"bytes that are not text", "a: \xff\xfe\n", `not YAML: `},

		// What an AppEndpoints may say.
		{"an endpoint with no app", Selection("  - {namespace: a}\n"), `f.yaml:6:5: spec.endpoints[0].app: is missing; write the app-id of the app to call`},
		{"an app that can't be carried", Selection("  - app: Big\n"), `f.yaml:6:10: spec.endpoints[0].app: app-id "Big" has 'B' at position 1`},
		{"a namespace that can't be carried", Selection("  - {app: a, namespace: a_b}\n"), `spec.endpoints[0].namespace: namespace "a_b" has '_' at position 2`},
		{"the app itself", Selection("  - app: checkout\n"), `f.yaml:6:10: spec.endpoints[0].app: is shop/checkout itself, which always resolves to its own instance; leave this endpoint out`},
		{"a doubled endpoint", Selection("  - app: a\n  - {app: a, namespace: shop}\n"), `f.yaml:7:5: spec.endpoints[1]: shop/a is there twice, first as spec.endpoints[0]; put all its routes into one of them`},
		{"a route to nowhere", Selection("  - {app: a, routes: [{priority: 1}]}\n"), `spec.endpoints[0].routes[0].cluster: is missing; write "local" or the name of a Cluster`},
		{"a route to a name that can't be", Selection("  - {app: a, routes: [{cluster: \"*\"}]}\n"), `spec.endpoints[0].routes[0].cluster: cluster name "*" has '*' at position 1`},
		{"a doubled route", Selection("  - {app: a, routes: [{cluster: east}, {cluster: east, priority: 2}]}\n"), `spec.endpoints[0].routes[1].cluster: "east" is there twice, first as routes[0]; keep one of them`},
		{"no weight at all", Selection("  - {app: a, routes: [{cluster: east, weight: 0}, {cluster: north, weight: 0}]}\n"), `spec.endpoints[0].routes: every route has weight 0, so none could ever be taken; give one a weight, or leave the endpoint out`},
		{"too much weight", Selection("  - {app: a, routes: [{cluster: east, weight: 10001}]}\n"), `weight: 10001 is out of bounds; write a number from 0 to 10000`},
		{"too high a priority", Selection("  - {app: a, routes: [{cluster: east, priority: 101}]}\n"), `priority: 101 is out of bounds; write a number from 0 to 100`},
		{"a misspelt whenStale", Selection("  - {app: a, whenStale: Serve}\n"), `spec.endpoints[0].whenStale: "Serve" is not known; did you mean "serve"?`},
		{"another whenStale", Selection("  - {app: a, whenStale: perhaps}\n"), `"perhaps" is not known; write withdraw or serve`},
		{"too many routes", Selection("  - app: a\n    routes:" + strings.ReplaceAll(items(catalog.MaxRoutes+1, "cluster: c"), "\n", "\n    ") + "\n"), `spec.endpoints[0].routes: has 101 items; at most 100 are taken; leave some out`},
		{"too many endpoints", Object("AppEndpoints", shop, "\n  endpoints:"+items(catalog.MaxEndpoints+1, "app: a")), `spec.endpoints: has 20001 items; at most 20000 are taken; select fewer apps`},

		// What a Cluster may say.
		{"a cluster with no way to it", Object("Cluster", "{name: east}", "{staleAfter: 5s}"), `f.yaml:4:7: spec: has neither gateways nor a network, so nothing leads to the cluster; write at least one`},
		{"a cluster with no gateway in its list", Object("Cluster", "{name: east}", "{gateways: []}"), `f.yaml:4:7: spec: has neither gateways nor a network, so nothing leads to the cluster; write at least one`},
		{"a gateway with no address", Object("Cluster", "{name: east}", "{gateways: [{}]}"), `f.yaml:4:19: spec.gateways[0].address: is missing; write "host:port"`},
		{"a gateway that can't be", Object("Cluster", "{name: east}", "{gateways: [{address: \"gw:99999\"}]}"), `spec.gateways[0].address: gateway address "gw:99999": port "99999" is not a number from 1 to 65535`},
		{"a doubled gateway", Object("Cluster", "{name: east}", "{gateways: [{address: gw}, {address: \"gw:15443\"}]}"), `spec.gateways[1].address: gw:15443 is there twice, first as spec.gateways[0]; keep one of them`},
		{"a length of time without a unit", Object("Cluster", "{name: east}", "{network: a, staleAfter: \"10\"}"), `spec.staleAfter: "10" is not a length of time; write one such as "10s" or "1m30s"`},
		{"a lease that is too short", Object("Cluster", "{name: east}", "{network: a, staleAfter: 1ms}"), `spec.staleAfter: 1ms is out of bounds; write one from 100ms to 24h0m0s`},
		{"a network with a space", Object("Cluster", "{name: east}", "{network: \"net 1\"}"), `spec.network: network "net 1" has ' ' at position 4`},
		{"a network with a long name", Object("Cluster", "{name: east}", "{network: "+strings.Repeat("n", 64)+"}"), `is 64 characters long; at most 63 are taken`},

		// What an AppExport may say.
		{"a caller's cluster that can't be", Object("AppExport", shop, "{allow: [{cluster: West}]}"), `spec.allow[0].cluster: cluster name "West" has 'W' at position 1; SNI and DNS carry lower-case letters, digits and hyphens only; write a name, or "*" for any`},
		{"a caller in this cluster", Object("AppExport", shop, "{allow: [{cluster: local}]}"), `cluster name "local" is reserved`},
		{"a caller of whom nothing is said", Object("AppExport", shop, "{allow: [{cluster: west}, {}]}"), `f.yaml:4:33: spec.allow[1]: says nothing of the caller, and so would allow anybody; write {cluster: "*"} if that is meant`},
		{"a pattern", Object("AppExport", shop, "{allow: [{app: \"check*\"}]}"), `spec.allow[0].app: app-id "check*" has '*' at position 6`},
	}
}

func items(n int, field string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n  - {%s%d}", field, i)
	}
	return b.String()
}

func laughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}
