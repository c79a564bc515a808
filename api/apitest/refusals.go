// Package apitest has the objects that may not be, for the tests of whatever refuses them:
// package api, and the API server of Kubernetes by the definitions made from it.
package apitest

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Refusal is a YAML text with one mistake, and its error.
type Refusal struct{ Name, Text, Want string }

// Selection is an AppEndpoints whose endpoints begin in line 6.
func Selection(endpoints string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec:\n  endpoints:\n" + endpoints
}

// Object is an object as YAML, of flow texts.
func Object(kind, metadata, spec string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: %s\nmetadata: %s\nspec: %s\n", kind, metadata, spec)
}

// Refusals are texts with one mistake each, and its error.
func Refusals() []Refusal {
	const shop = "{namespace: shop, name: checkout}"
	long := strings.Repeat("a", 59)
	return []Refusal{
		// The head of an object.
		{"not a mapping", "- a\n", `f.yaml:1:1: is a list where an object is wanted; begin with apiVersion, kind, metadata and spec`},
		{"no apiVersion and no kind", "spec: {}\n", `f.yaml:1:1: apiVersion: is missing; begin with "apiVersion: isthmus.dev/v1alpha1" and "kind: …", one of ActorType, AppEndpoints, AppExport, AppInstance, Cluster`},
		{"no kind", "apiVersion: isthmus.dev/v1alpha1\n", `f.yaml:1:1: kind: is missing; begin with`},
		{"another apiVersion", "apiVersion: isthmus.dev/v2\nkind: Cluster\nmetadata: {name: east}\nspec: {network: a}\n", `f.yaml:1:13: apiVersion: "isthmus.dev/v2" is not known here; write isthmus.dev/v1alpha1`},
		{"a misspelt kind", "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoint\n", `f.yaml:2:7: kind: "AppEndpoint" is not a kind of object; did you mean "AppEndpoints"?`},
		{"a kind of something else", "apiVersion: isthmus.dev/v1alpha1\nkind: Deployment\n", `f.yaml:2:7: kind: "Deployment" is not a kind of object; write one of ActorType, AppEndpoints, AppExport, AppInstance, Cluster`},
		{"no metadata", "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nspec: {}\n", `f.yaml:1:1: metadata: is missing; write "metadata: {namespace: …, name: …}"`},
		{"no namespace", Object("AppExport", "{name: orders}", "{}"), `f.yaml:3:11: metadata.namespace: is missing; write the app's namespace`},
		{"no name", Object("AppExport", "{namespace: shop}", "{}"), `f.yaml:3:11: metadata.name: is missing; write the app-id`},
		{"no cluster name", Object("Cluster", "{}", "{network: a}"), `f.yaml:3:11: metadata.name: is missing; write the cluster's name`},
		{"no spec", "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: orders}\n", `f.yaml:1:1: spec: is missing; write who may call: "spec: {allow: []}" for nobody`},
		{"a spec with nothing in it", Object("AppExport", shop, ""), `f.yaml:4:6: spec: has no value; give it one, or leave the field out`},
		{"an app-id in upper case", Object("AppExport", "{namespace: shop, name: Orders}", "{}"), `f.yaml:3:35: metadata.name: app-id "Orders" has 'O' at position 1; Isthmus puts it into DNS names, which have lower-case letters, digits and hyphens only; give the app another app-id`},
		{"an app-id with a dot", Object("AppExport", "{namespace: shop, name: a.b}", "{}"), `metadata.name: app-id "a.b" has '.' at position 2`},
		{"an app-id that is too long", Object("AppExport", "{namespace: shop, name: "+long+"}", "{}"), `is 59 characters long; at most 58 fit, since Dapr appends "-dapr"`},
		{"a namespace with a hyphen in front", Object("AppExport", "{namespace: -shop, name: orders}", "{}"), `metadata.namespace: namespace "-shop" begins or ends with a hyphen`},
		{"a cluster in a namespace", Object("Cluster", "{namespace: shop, name: east}", "{network: a}"), `f.yaml:3:23: metadata.namespace: a Cluster has no namespace; leave it out`},
		{"a cluster called local", Object("Cluster", "{name: local}", "{network: a}"), `metadata.name: cluster name "local" is reserved`},

		// Fields.
		{"an unknown field", Selection("  - app: a\n    rout: []\n"), `f.yaml:7:5: spec.endpoints[0].rout: unknown field; did you mean "routes"?`},
		{"a field in another spelling", Selection("  - app: a\n    when_stale: serve\n"), `f.yaml:7:5: spec.endpoints[0].when_stale: unknown field; did you mean "whenStale"?`},
		{"a field like no other", Selection("  - app: a\n    loadBalancer: serve\n"), `unknown field; the fields here are app, namespace, routes, whenStale, locality`},
		{"a doubled field", Selection("  - app: a\n    namespace: x\n    namespace: y\n"), `f.yaml:8:5: spec.endpoints[0].namespace: is there twice, first in line 7; keep one of them`},
		{"a number for a string", Selection("  - app: 7\n"), `f.yaml:6:10: spec.endpoints[0].app: 7 is a whole number where a string is wanted; put it in quotes: "7"`},
		{"a fraction for a string", Selection("  - app: 1.5\n"), `1.5 is a number with a fraction where a string is wanted`},
		{"true for a string", Selection("  - app: true\n"), `true is true or false where a string is wanted; put it in quotes: "true"`},
		{"a date for a string", Selection("  - app: 2020-01-01\n"), `is a date or another special value where a string is wanted`},
		{"a list for a string", Selection("  - app: [a]\n"), `spec.endpoints[0].app: is a list where a string is wanted; write one value`},
		{"a string for a list", Object("AppEndpoints", shop, "{endpoints: orders}"), `f.yaml:4:19: spec.endpoints: is a string where a list is wanted; begin each item with "- "`},
		{"a string for a mapping", Selection("  - orders\n"), `f.yaml:6:5: spec.endpoints[0]: is a string where a mapping is wanted; write its fields: app, namespace, routes, whenStale, locality`},
		{"a quoted number", Selection("  - {app: a, routes: [{cluster: east, priority: \"1\"}]}\n"), `spec.endpoints[0].routes[0].priority: is a string where a whole number is wanted; write a number such as 1, without quotes`},
		{"a negative number", Selection("  - {app: a, routes: [{cluster: east, weight: -1}]}\n"), `weight: -1 is not a number from 0 to`},
		{"a number in octal", Selection("  - {app: a, routes: [{cluster: east, weight: 0o7}]}\n"), `weight: 0o7 is not a number from 0 to 4294967295 in plain digits`},
		{"a number that begins with 0", Selection("  - {app: a, routes: [{cluster: east, weight: 010}]}\n"), `weight: 010 is not a number from 0 to 4294967295 in plain digits`},
		{"a fraction for a number", Selection("  - {app: a, routes: [{cluster: east, weight: 1.5}]}\n"), `weight: is a number with a fraction where a whole number is wanted`},
		{"null", Selection("  - app: ~\n"), `f.yaml:6:10: spec.endpoints[0].app: has no value; give it one, or leave the field out`},
		{"a list with nothing in it", Object("AppEndpoints", shop, "\n  endpoints:"), `spec.endpoints: has no value; write [] for an empty list, or leave the field out`},
		{"an empty string, which would allow anybody", Object("AppExport", shop, `{allow: [{cluster: ""}]}`), `f.yaml:4:26: spec.allow[0].cluster: is empty; give it a value, or leave the field out`},

		// What YAML can do and objects can't.
		{"a merge key", Selection("  - &a {app: a}\n  - {<<: *a, app: b}\n"), `spec.endpoints[1].<<: merge keys (<<) are not taken; write the fields out`},
		{"a tag", Selection("  - app: !!str 7\n"), `f.yaml:6:10: tag !!str is not taken; leave it out`},
		{"a tag of one's own", Selection("  - !app {app: a}\n"), `tag !app is not taken`},
		{"an alias within its own value", Selection("  - &a {app: a, routes: [*a]}\n"), `alias *a stands within the value that it repeats; write the value out`},
		{"a billion laughs", laughs(), `aliases repeat more than 100000 values; write fewer, or write them out`},
		{"a deep nest", Selection("  - app: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "\n"), `more than 32 levels deep`},
		{"a syntax error", "apiVersion: isthmus.dev/v1alpha1\nkind: {\n", `not YAML: did not find expected node content`},
		{"a tab for an indent", "apiVersion: isthmus.dev/v1alpha1\n\tkind: Cluster\n", `not YAML: `},
		{"bytes that are not text", "a: b\nc: \u00e4\xff\xfe\n", `f.yaml:2:5: not YAML: the byte 0xff is not UTF-8; save the file as UTF-8`},
		{"UTF-16", "\xff\xfea\x00", `f.yaml:1:1: not YAML: the text is UTF-16; save it as UTF-8`},

		// What an AppEndpoints may say.
		{"an endpoint with no app", Selection("  - {namespace: a}\n"), `f.yaml:6:5: spec.endpoints[0].app: is missing; write the app-id of the app to call`},
		{"an app that can't be carried", Selection("  - app: b.ig\n"), `f.yaml:6:10: spec.endpoints[0].app: app-id "b.ig" has '.' at position 2; daprd's certificates have letters, digits, - and _ there`},
		{"a route to an app that can't be called from there", Selection("  - {app: orders_v2, routes: [{cluster: local}, {cluster: east}]}\n"), `f.yaml:6:59: spec.endpoints[0].routes[1].cluster: leads to another cluster, where nobody can call this app: app-id "orders_v2" has '_' at position 7; Isthmus puts it into DNS names, which have lower-case letters, digits and hyphens only; write local, or give the app another app-id`},
		{"a namespace that can't be carried", Selection("  - {app: a, namespace: a_b}\n"), `spec.endpoints[0].namespace: namespace "a_b" has '_' at position 2`},
		{"the app itself", Selection("  - app: checkout\n"), `f.yaml:6:10: spec.endpoints[0].app: is shop/checkout itself, which always resolves to its own instance; leave this endpoint out`},
		{"a doubled endpoint", Selection("  - app: a\n  - {app: a, namespace: shop}\n"), `f.yaml:7:5: spec.endpoints[1]: shop/a is there twice, first as spec.endpoints[0]; put all its routes into one of them`},
		{"a route to nowhere", Selection("  - {app: a, routes: [{priority: 1}]}\n"), `spec.endpoints[0].routes[0].cluster: is missing; write "local" or the name of a Cluster`},
		{"a route to a name that can't be", Selection("  - {app: a, routes: [{cluster: \"*\"}]}\n"), `spec.endpoints[0].routes[0].cluster: cluster name "*" has '*' at position 1`},
		{"a doubled route", Selection("  - {app: a, routes: [{cluster: east}, {cluster: east, priority: 2}]}\n"), `spec.endpoints[0].routes[1].cluster: "east" is there twice, first as routes[0]; keep one of them`},
		{"no weight at all", Selection("  - {app: a, routes: [{cluster: east, weight: 0}, {cluster: north, weight: 0}]}\n"), `spec.endpoints[0].routes: every route has weight 0, so none could ever be taken; give one a weight, or leave the endpoint out`},
		{"too much weight", Selection("  - {app: a, routes: [{cluster: east, weight: 10001}]}\n"), `weight: 10001 is out of bounds; write a number from 0 to 10000`},
		{"a name that can't be carried", Selection("  - {app: a, as: b.ig}\n"), `spec.endpoints[0].as: app-id "b.ig" has '.' at position 2`},
		{"the caller's own name for another", Selection("  - {app: a, as: checkout}\n"), `spec.endpoints[0].as: is shop/checkout itself, which always resolves to its own instance; choose another name`},
		{"an app by its own name", Selection("  - {app: a, as: a}\n"), `spec.endpoints[0].as: is the name that shop/a has anyway; leave as out, or choose another name`},
		{"another app's name", Selection("  - app: a\n  - {app: a, namespace: finance, as: a}\n"), `f.yaml:7:38: spec.endpoints[1].as: shop/a is the app of spec.endpoints[0], so this name would mean two apps; choose a name that no endpoint has, or leave the other endpoint out`},
		{"names in a circle", Selection("  - {app: a, as: b}\n  - {app: b, as: a}\n"), `spec.endpoints[0].as: shop/b is the app of spec.endpoints[1], so this name would mean two apps`},
		{"names in a row", Selection("  - {app: a, as: c}\n  - {app: b, as: a}\n"), `spec.endpoints[1].as: shop/a is the app of spec.endpoints[0], so this name would mean two apps`},
		{"one name for two apps", Selection("  - {app: a, as: c}\n  - {app: b, as: c}\n"), `spec.endpoints[1].as: shop/c is the name of spec.endpoints[0] already; choose another name; to share calls out between two apps, give them one app-id`},
		{"a name in all namespaces", Object("AppEndpoints", "{namespace: isthmus-system, name: cluster-default.isthmus.dev}", "{endpoints: [{app: a, as: b}]}"), `spec.endpoints[0].as: is a name in the caller's namespace, and these are the endpoints of all namespaces; move this endpoint`},
		{"a hash of nothing", Selection("  - {app: a, hash: {}}\n"), `spec.endpoints[0].hash: has both header and source, or none of them; write one of the two, such as {header: x-user}`},
		{"a hash of two things", Selection("  - {app: a, hash: {header: x, source: app}}\n"), `spec.endpoints[0].hash: has both header and source, or none of them`},
		{"a hash of no header", Selection("  - {app: a, hash: {header: \"x user\"}}\n"), `spec.endpoints[0].hash.header: has ' ' at position 2; a header here has lower-case letters, digits, '-', '_' and '.'`},
		{"a hash of another source", Selection("  - {app: a, hash: {source: pod}}\n"), `spec.endpoints[0].hash.source: "pod" is not known; write app`},
		{"no instance that it takes", Selection("  - {app: a, routes: [{cluster: east, minReady: 0}]}\n"), `spec.endpoints[0].routes[0].minReady: "0" is neither a number of instances from 1 to 100000 nor a percentage from 1% to 100%; write how many instances must be ready, such as 3 or 50%`},
		{"more than all instances", Selection("  - {app: a, routes: [{cluster: east, minReady: 101%}]}\n"), `minReady: "101%" is neither`},
		{"a word for instances", Selection("  - {app: a, routes: [{cluster: east, minReady: half}]}\n"), `minReady: "half" is neither`},
		{"a fraction of an instance", Selection("  - {app: a, routes: [{cluster: east, minReady: 1.5}]}\n"), `minReady: 1.5 is a number with a fraction where a string is wanted`},
		{"a version that can't be", Selection("  - {app: a, routes: [{cluster: east, versions: [\"2.*\", \"^2\"]}]}\n"), `spec.endpoints[0].routes[0].versions[1]: has '^' at position 1; it has letters, digits and . _ + - * ?; write a version, or a pattern such as 2.*`},
		{"a version as a number", Selection("  - {app: a, routes: [{cluster: east, versions: [2.0]}]}\n"), `versions[0]: 2.0 is a number with a fraction where a string is wanted; put it in quotes: "2.0"`},
		{"a percentage of a version", Selection("  - {app: a, routes: [{cluster: east, minReady: 50%, versions: [\"2\"]}]}\n"), `spec.endpoints[0].routes[0].minReady: is a percentage beside versions, and how many instances of a version there are is not known while they aren't ready; write a number of instances`},
		{"too many versions", Selection("  - {app: a, routes: [{cluster: east, versions: [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]}]}\n"), `versions: has 17 items; at most 16 are taken`},
		{"too high a priority", Selection("  - {app: a, routes: [{cluster: east, priority: 101}]}\n"), `priority: 101 is out of bounds; write a number from 0 to 100`},
		{"a misspelt whenStale", Selection("  - {app: a, whenStale: Serve}\n"), `spec.endpoints[0].whenStale: "Serve" is not known; did you mean "serve"?`},
		{"a misspelt locality", Selection("  - {app: a, locality: prefers}\n"), `spec.endpoints[0].locality: "prefers" is not known; did you mean "prefer"?`},
		{"another locality", Selection("  - {app: a, locality: near}\n"), `"near" is not known; write none or prefer`},
		{"another whenStale", Selection("  - {app: a, whenStale: perhaps}\n"), `"perhaps" is not known; write withdraw or serve`},
		{"too many routes", Selection("  - app: a\n    routes:" + strings.ReplaceAll(items(catalog.MaxRoutes+1, "cluster: c"), "\n", "\n    ") + "\n"), `spec.endpoints[0].routes: has 101 items; at most 100 are taken; leave some out`},
		{"too many endpoints", Object("AppEndpoints", shop, "\n  endpoints:"+items(catalog.MaxEndpoints+1, "app: a")), `spec.endpoints: has 20001 items; at most 20000 are taken; select fewer apps`},

		// What a Cluster may say.
		{"a gateway with no address", Object("Cluster", "{name: east}", "{gateways: [{}]}"), `f.yaml:4:19: spec.gateways[0].address: is missing; write "host:port"`},
		{"a gateway that can't be", Object("Cluster", "{name: east}", "{gateways: [{address: \"gw:99999\"}]}"), `spec.gateways[0].address: gateway address "gw:99999": port "99999" is not a number from 1 to 65535`},
		{"a gateway behind an interface", Object("Cluster", "{name: east}", "{gateways: [{address: \"[fe80::1%eth0]:443\"}]}"), `spec.gateways[0].address: gateway address "[fe80::1%eth0]:443" has a zone, which is a name that one machine alone knows; write an IP or a DNS name, with or without a port`},
		{"a tunnel of no kind", Object("Cluster", "{name: east}", "{tunnel: both}"), `f.yaml:4:16: spec.tunnel: "both" is neither accept nor dial; write accept where that cluster dials this one, dial where this one dials that, or leave it out`},
		{"a cluster that dials out, with a gateway", Object("Cluster", "{name: east}", "{tunnel: accept, gateways: [{address: gw}]}"), `f.yaml:4:34: spec.gateways: are of a cluster that dials this one by spec.tunnel, and so can't be reached; leave gateways out, or tunnel`},
		{"nothing to dial", Object("Cluster", "{name: east}", "{tunnel: dial}"), `spec.gateways: are missing, and spec.tunnel dials them; write how the cluster is reached`},
		{"an introduction without a way", Object("Cluster", "{name: east}", "{introduceTo: {names: [west]}}"), `f.yaml:4:21: spec.introduceTo: is for a cluster with gateways, at which others reach it; write the gateways beside it, or leave it out`},
		{"an introduction of a tunnel", Object("Cluster", "{name: east}", "{gateways: [{address: gw}], tunnel: dial, introduceTo: {names: [west]}}"), `spec.introduceTo: is for a cluster that others can reach at its gateways, as this one does; leave it out`},
		{"an introduction of roots for all", Object("Cluster", "{name: east}", "{gateways: [{address: gw}], trust: {roots: "+fmt.Sprintf("%q", EastRoot)+"}, introduceTo: {names: [west]}}"), `spec.introduceTo: is for a cluster with a trust domain, since nobody takes roots from another that would count for all; write spec.trust.domain beside its roots, or leave it out`},
		{"an introduction to nobody", Object("Cluster", "{name: east}", "{gateways: [{address: gw}], introduceTo: {}}"), `spec.introduceTo: selects by neither names nor labels; write at least one, such as names: ["*"] for every cluster`},
		{"an introducer of nothing", Object("Cluster", "{name: east}", "{introduces: {trustDomains: [a]}}"), `spec.introduces: selects by neither names nor labels`},
		{"an introducer that is a guest", Object("Cluster", "{name: anna}", "{tunnel: accept, introduces: {names: [a]}, guest: {until: \"2026-11-28T20:00:00Z\", apps: [shop/orders]}}"), `spec.introduces: is not for a guest, which gets calls and says nothing of other clusters; leave it out, or guest`},
		{"a pattern that is none", Object("Cluster", "{name: east}", "{introduces: {names: [\"eu-[1]\"]}}"), `f.yaml:4:29: spec.introduces.names[0]: the pattern has '[' at position 4; lower-case letters, digits and - . _ * are taken; write a name, or a pattern such as "eu-*"`},
		{"no pattern", Object("Cluster", "{name: east}", "{introduces: {names: []}}"), `spec.introduces.names: is empty, and matches nothing; write at least one, or leave it out`},
		{"a label that is none", Object("Cluster", "{name: east}", "{network: a, labels: [region]}"), `spec.labels[0]: "region" is no label; write it as name=value, such as region=eu`},
		{"a label twice", Object("Cluster", "{name: east}", "{network: a, labels: [a=b, a=b]}"), `spec.labels[1]: a=b is there twice, first as spec.labels[0]; keep one of them`},
		{"a guest in reach", Object("Cluster", "{name: anna}", "{guest: {until: \"2026-11-28T20:00:00Z\", apps: [shop/orders]}}"), `f.yaml:4:15: spec.guest: is for a cluster that dials this one, and spec.tunnel is not accept; write tunnel: accept beside it`},
		{"a guest on a network", Object("Cluster", "{name: anna}", "{tunnel: accept, network: a, guest: {until: \"2026-11-28T20:00:00Z\", apps: [shop/orders]}}"), `spec.network: is not for a guest, whose instances are reached through its tunnel alone; leave network out, or guest`},
		{"a guest for ever", Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {apps: [shop/orders]}}"), `spec.guest.until: is missing; write when the guest leaves, such as "2026-11-28T20:00:00Z"`},
		{"a guest until some time", Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {until: \"2026-11-28 20:00\", apps: [shop/orders]}}"), `spec.guest.until: "2026-11-28 20:00" is no time by RFC 3339; write one such as "2026-11-28T20:00:00Z"`},
		{"a guest until no day", Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {until: \"2026-02-30T20:00:00Z\", apps: [shop/orders]}}"), `is no time by RFC 3339`},
		{"a guest without an app", Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {until: \"2026-11-28T20:00:00Z\", apps: []}}"), `spec.guest.apps: are missing, and a guest without an app could do nothing; write the apps that it may run, such as [shop/orders]`},
		{"a guest with an app of no namespace", Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {until: \"2026-11-28T20:00:00Z\", apps: [orders]}}"), `spec.guest.apps[0]: "orders" is no namespace/app-id; write one such as shop/orders`},
		{"a guest with an app twice", Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {until: \"2026-11-28T20:00:00Z\", apps: [shop/orders, shop/orders]}}"), `spec.guest.apps[1]: shop/orders is there twice, first as spec.guest.apps[0]; keep one of them`},
		{"a guest that takes another app's calls", Guest("{app: shop/cart, caller: shop/checkout}"), `spec.guest.takes[0].app: "shop/cart" is none of spec.guest.apps; write it there too, or another here`},
		{"a guest that takes every call", Guest("{app: shop/orders}"), `spec.guest.takes[0]: says neither a caller nor a header, and would take every call; write one of them`},
		{"a guest that takes calls in two ways", Guest("{app: shop/orders, caller: shop/checkout, header: {name: x-dev, value: anna}}"), `spec.guest.takes[0]: says a caller and a header; keep one of them`},
		{"a guest that takes calls of any app", Guest("{app: shop/orders, caller: \"*\"}"), `spec.guest.takes[0].caller: "*" is no namespace/app-id; write one such as shop/orders`},
		{"a guest that takes its own calls", Guest("{app: shop/orders, caller: shop/orders}"), `spec.guest.takes[0].caller: is shop/orders itself, which always resolves to its own instance; write another app`},
		{"a guest that takes any value of a header", Guest("{app: shop/orders, header: {name: x-dev}}"), `spec.guest.takes[0].header.value: is missing; write the value that calls have`},
		{"a guest that takes a header of bytes", Guest("{app: shop/orders, header: {name: dev-bin, value: anna}}"), `spec.guest.takes[0].header: header dev-bin has a value in bytes, by its ending; choose one without -bin`},
		{"a guest that takes a header with a space", Guest("{app: shop/orders, header: {name: x-dev, value: \"anna b\"}}"), `spec.guest.takes[0].header: header value has ' ' at position 5; it has visible ASCII characters only; write one such as {name: x-dev, value: anna}`},
		{"a doubled gateway", Object("Cluster", "{name: east}", "{gateways: [{address: gw}, {address: \"gw:15443\"}]}"), `spec.gateways[1].address: gw:15443 is there twice, first as spec.gateways[0]; keep one of them`},
		{"gateways for single apps alone", Object("Cluster", "{name: east}", "{gateways: [{address: \"gw:50002\", app: orders, namespace: shop}]}"), `f.yaml:4:18: spec.gateways: are for single apps alone, and nothing would be heard from the cluster; list a gateway for all apps too, through which its resolver service is reached`},
		{"a gateway for an app of no namespace", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: \"gw:50002\", app: orders}]}"), `f.yaml:4:35: spec.gateways[1].namespace: is missing; write the app's namespace; a Cluster has none that could stand for it`},
		{"a gateway for a namespace", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: \"gw:50002\", namespace: shop}]}"), `f.yaml:4:35: spec.gateways[1].app: is missing; write the app-id beside its namespace, or leave both out for a gateway for all apps`},
		{"a gateway for an app that can't be", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: \"gw:50002\", app: Orders, namespace: shop}]}"), `f.yaml:4:62: spec.gateways[1].app: app-id "Orders" has 'O' at position 1`},
		{"a gateway for an app in a namespace that can't be", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: \"gw:50002\", app: orders, namespace: a_b}]}"), `spec.gateways[1].namespace: namespace "a_b" has '_' at position 2`},
		{"a gateway for an app at no port", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: gw, app: orders, namespace: shop}]}"), `f.yaml:4:45: spec.gateways[1].address: gateway address "gw" has no port, and callers without a server name dial the one that their own sidecars listen on; write an IP or a DNS name, and the port, such as "203.0.113.8:50002"`},
		{"a gateway for an app at two ports", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: \"gw:50002\", app: orders, namespace: shop}, {address: \"gx:50003\", app: orders, namespace: shop}]}"), `spec.gateways[2].address: has port 50003, and another gateway for shop/orders has 50002; DNS tells addresses and no port; give both one port, that of the sidecars that call`},
		{"a gateway for two apps", Object("Cluster", "{name: east}", "{gateways: [{address: all}, {address: \"gw:50002\", app: orders, namespace: shop}, {address: \"gw:50002\", app: cart, namespace: shop}]}"), `spec.gateways[2].address: gw:50002 is there twice, first as spec.gateways[1]; keep one of them`},
		{"a gateway for one app and for all", Object("Cluster", "{name: east}", "{gateways: [{address: gw}, {address: \"gw:15443\", app: cart, namespace: shop}]}"), `spec.gateways[1].address: gw:15443 is there twice, first as spec.gateways[0]; keep one of them`},
		{"a length of time without a unit", Object("Cluster", "{name: east}", "{network: a, staleAfter: \"10\"}"), `spec.staleAfter: "10" is not a length of time; write one such as "10s" or "1m30s"`},
		{"a length of time without its unit", Object("Cluster", "{name: east}", "{network: a, staleAfter: 2}"), `spec.staleAfter: 2 is a whole number where a length of time is wanted; write one with its unit, such as "2s"`},
		{"a lease that is too short", Object("Cluster", "{name: east}", "{network: a, staleAfter: 1ms}"), `spec.staleAfter: 1ms is out of bounds; write one from 100ms to 24h0m0s`},
		{"a network with a space", Object("Cluster", "{name: east}", "{network: \"net 1\"}"), `spec.network: network "net 1" has ' ' at position 4`},
		{"a network with a long name", Object("Cluster", "{name: east}", "{network: "+strings.Repeat("n", 64)+"}"), `is 64 characters long; at most 63 are taken`},
		{"a range that is none", Object("Cluster", "{name: east}", "{network: a, networkRanges: [10.0.0.1]}"), `f.yaml:4:36: spec.networkRanges[0]: "10.0.0.1" is no range of IP addresses; write one such as 10.2.0.0/16`},
		{"a range with a host in it", Object("Cluster", "{name: east}", "{network: a, networkRanges: [10.2.0.0/16, 10.0.0.1/8]}"), `spec.networkRanges[1]: "10.0.0.1/8" has bits set after its first 8; write 10.0.0.0/8`},
		{"a range in two forms", Object("Cluster", "{name: east}", "{network: a, networkRanges: [\"::ffff:10.0.0.0/104\"]}"), `is no range of IP addresses`},
		{"ranges of no network", Object("Cluster", "{name: east}", "{gateways: [{address: gw}], networkRanges: [10.2.0.0/16]}"), `spec.networkRanges: says where instances are on a shared network, and there is no spec.network; write the network's name beside it, or leave it out`},

		{"a ramp that is too long", Object("Cluster", "{name: east}", "{network: a, rampUp: 11m}"), `spec.rampUp: 11m0s is out of bounds; write one from 0s to 10m0s`},
		{"a ramp backwards", Object("Cluster", "{name: east}", "{network: a, rampUp: -0s}"), `spec.rampUp: 0s is out of bounds`},

		// What its trust may say.
		{"a trust in nothing", Object("Cluster", "{name: east}", "{network: a, trust: {}}"), `f.yaml:4:27: spec.trust: says neither a domain nor roots; write at least one, or leave trust out`},
		{"a SPIFFE ID for a trust domain", Object("Cluster", "{name: east}", "{network: a, trust: {domain: \"spiffe://east\"}}"), `spec.trust.domain: the trust domain is written without spiffe:// and without a path; write it as in the peer's SPIFFE IDs, such as east.example`},
		{"a trust domain in upper case", Object("Cluster", "{name: east}", "{network: a, trust: {domain: East}}"), `spec.trust.domain: the trust domain has 'E' at position 1; lower-case letters, digits and . _ - are taken`},
		{"a trust domain that is too long", Object("Cluster", "{name: east}", "{network: a, trust: {domain: "+strings.Repeat("d", 256)+"}}"), `spec.trust.domain: the trust domain is 256 characters long; at most 255 are taken`},
		{"a rotation without roots", Object("Cluster", "{name: east}", "{network: a, trust: {rotation: accept}}"), `spec.trust.rotation: is for a cluster with roots of its own, and there are no spec.trust.roots; write the roots beside it`},
		{"a rotation of its own kind", Trusting(EastRoot) + "    rotation: always\n", `spec.trust.rotation: is "always"; write accept, or leave it out`},
		{"roots that are none", Trusting("east"), `f.yaml:8:12: spec.trust.roots: has no certificate in it; write one or more blocks from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----`},
		{"a private key", Trusting(EastRoot + Key), `f.yaml:8:12: spec.trust.roots: block 2 is a private key, which everybody who can read the config store could now use; take it out, replace the key where it came from, and write certificates only`},
		{"a root that is cut off", Trusting(EastRoot + NorthRoot[:200]), `spec.trust.roots: block 2 is not PEM: its lines are broken, or its END is missing`},
		{"a root with bytes missing", Trusting(EastRoot + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), `spec.trust.roots: block 2 is no certificate that can be read: x509: malformed certificate`},
		{"a public key", Trusting(EastRoot + "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), `spec.trust.roots: block 2 is no certificate; write blocks of type CERTIFICATE only`},
		{"a certificate that is no root", Trusting(EastRoot + Leaf), `spec.trust.roots: block 2 is not the certificate of an authority (CA) but of "CN=orders"; write the root that signs the peer's certificates`},
		{"a doubled root", Trusting(EastRoot + NorthRoot + EastRoot), `spec.trust.roots: block 3 is the same certificate as block 1; keep one of them`},
		{"too many roots", Trusting(strings.Repeat(EastRoot, 21)), `spec.trust.roots: has 21 certificates; at most 20 are taken; keep the roots that are still used`},
		{"roots that are too long", Trusting(EastRoot + strings.Repeat("a", 65<<10)), `bytes long; at most 65536 are taken; keep the roots that are still used`},

		// What an AppInstance may say.
		{"an instance with no app", Object("AppInstance", "{namespace: shop, name: vm1}", "{address: \"10.0.0.5:1\"}"), `f.yaml:4:7: spec.app: is missing; write the app-id`},
		{"an instance with no address", Object("AppInstance", "{namespace: shop, name: vm1}", "{app: orders}"), `f.yaml:4:7: spec.address: is missing; write "ip:port" of the sidecar's internal gRPC server`},
		{"an instance with no name", Object("AppInstance", "{namespace: shop}", "{app: orders, address: \"10.0.0.5:1\"}"), `f.yaml:3:11: metadata.name: is missing; write a name for the instance`},
		{"an instance whose name can't be", Object("AppInstance", "{namespace: shop, name: VM1}", "{app: orders, address: \"10.0.0.5:1\"}"), `f.yaml:3:35: metadata.name: instance name "VM1" has 'V' at position 1`},
		{"an instance of an app that can't be", Object("AppInstance", "{namespace: shop, name: vm1}", "{app: ord.ers, address: \"10.0.0.5:1\"}"), `spec.app: app-id "ord.ers" has '.' at position 4`},
		{"an instance by its DNS name", Instance(`address: "vm1.example:50002"`), `spec.address: "vm1.example:50002" is no IP with a port; write "ip:port", such as 10.0.0.5:50002 or "[2001:db8::5]:50002"`},
		{"an instance without a port", Instance("address: 10.0.0.5"), `spec.address: "10.0.0.5" is no IP with a port`},
		{"an instance at port 0", Instance(`address: "10.0.0.5:0"`), `spec.address: "10.0.0.5:0" has the port 0`},
		{"an instance anywhere", Instance(`address: "0.0.0.0:50002"`), `spec.address: "0.0.0.0:50002" is not the address of one host`},
		{"an instance at many hosts", Instance(`address: "[ff02::1]:50002"`), `spec.address: "[ff02::1]:50002" is not the address of one host`},
		{"an instance at a metadata service", Instance(`address: "169.254.169.254:80"`), `spec.address: "169.254.169.254:80" is link-local, so only hosts on the same link reach it, and metadata services of clouds are there`},
		{"an instance on its link", Instance(`address: "[fe80::1]:50002"`), `spec.address: "[fe80::1]:50002" is link-local`},
		{"an instance behind an interface", Instance(`address: "[fe80::1%eth0]:50002"`), `has a zone, which is a name that one machine alone knows`},
		{"an instance in two families", Instance(`address: "[::ffff:10.0.0.5]:50002"`), `is an IPv4 address written as IPv6`},
		{"a version with a space", Instance(`address: "10.0.0.5:1", version: "2 1"`), `spec.version: has ' ' at position 2; it has letters, digits and . _ + -; write another, such as 2.1.0`},
		{"a zone that is too long", Instance(`address: "10.0.0.5:1", zone: ` + strings.Repeat("z", 64)), `spec.zone: the zone is 64 characters long; at most 63 are taken`},
		{"a zone that can't be shown", Instance(`address: "10.0.0.5:1", zone: "a\tb"`), `spec.zone: the zone has '\t' in it, which can't be printed`},
		{"a check of nothing", Checked("interval: 1s"), `spec.check: does not say how to check; write one of "tcp: {}", "http: {port: 3500}" and "grpc: {}"`},
		{"two ways to check", Checked("tcp: {}, grpc: {}"), `spec.check: says more than one way to check; keep one of tcp, http and grpc`},
		{"a misspelt way to check", Checked("tcp: {}, htttp: {port: 1}"), `spec.check.htttp: unknown field; did you mean "http"?`},
		{"a check by HTTP without a port", Checked("http: {}"), `spec.check.http.port: is missing; write the port, such as 3500 for a sidecar's own API`},
		{"a check of port 0", Checked("tcp: {port: 0}"), `spec.check.tcp.port: 0 is out of bounds; write a number from 1 to 65535`},
		{"a check of a port that can't be", Checked("grpc: {port: 65536}"), `spec.check.grpc.port: 65536 is out of bounds; write a number from 1 to 65535`},
		{"a path that is none", Checked("http: {port: 1, path: healthz}"), `spec.check.http.path: "healthz" does not begin with /; write one such as /v1.0/healthz`},
		{"a path with a space", Checked("http: {port: 1, path: \"/a b\"}"), `spec.check.http.path: the path has ' ' at position 3; printable ASCII without spaces is taken`},
		{"a path with half an escape", Checked("http: {port: 1, path: \"/a%2\"}"), `spec.check.http.path: the path has a % without two hexadecimal digits after it`},
		{"a path with a fragment", Checked("http: {port: 1, path: \"/a#b\"}"), `spec.check.http.path: the path has a #, and what stands behind one is never sent`},
		{"another scheme", Checked("http: {port: 1, scheme: ftp}"), `spec.check.http.scheme: "ftp" is not known; write http or https`},
		{"a host with a line end", Checked("http: {port: 1, host: \"a\\r\\nb\"}"), `spec.check.http.host: the host has '\r' at position 2`},
		{"a host that is too long", Checked("http: {port: 1, host: " + strings.Repeat("h", 256) + "}"), `the host is 256 characters long; at most 255 are taken`},
		{"a service that is none", Checked("grpc: {service: \"a b\"}"), `spec.check.grpc.service: the service has ' ' at position 2`},
		{"a word for true", Checked("grpc: {tls: \"yes\"}"), `spec.check.grpc.tls: is a string where true or false is wanted; write true or false, without quotes`},
		{"too many checks a second", Checked("tcp: {}, interval: 99ms, timeout: 50ms"), `spec.check.interval: 99ms is out of bounds; write one from 100ms to 1h0m0s`},
		{"a timeout that is too short", Checked("tcp: {}, timeout: 9ms"), `spec.check.timeout: 9ms is out of bounds; write one from 10ms to 2s`},
		{"a timeout beyond the interval", Checked("tcp: {}, timeout: 3s"), `spec.check.timeout: 3s is longer than the interval, 2s; write a shorter timeout or a longer interval`},
		{"ready after nothing", Checked("tcp: {}, healthyAfter: 0"), `spec.check.healthyAfter: 0 is out of bounds; write a number from 1 to 100`},
		{"not ready after too much", Checked("tcp: {}, unhealthyAfter: 101"), `spec.check.unhealthyAfter: 101 is out of bounds; write a number from 1 to 100`},

		// What an ActorType may say, and an AppEndpoints of actors.
		{"an actor type with no type", Object("ActorType", "{namespace: shop, name: cart}", "{owner: east}"), `f.yaml:4:7: spec.type: is missing; write the actor type as apps name it`},
		{"an actor type with no owner", Object("ActorType", "{namespace: shop, name: cart}", "{type: Cart}"), `f.yaml:4:7: spec.owner: is missing; write the name of the cluster that the actors run in`},
		{"an actor type that is a path", Object("ActorType", "{namespace: shop, name: cart}", "{type: a/b, owner: east}"), `f.yaml:4:14: spec.type: actor type "a/b" has '/' at position 2; letters, digits and - _ . are taken; write another type`},
		{"an actor type that is a dot", Object("ActorType", "{namespace: shop, name: cart}", "{type: \"..\", owner: east}"), `spec.type: actor type ".." has nothing but dots`},
		{"an actor type of a workflow", Object("ActorType", "{namespace: shop, name: cart}", "{type: dapr.internal.default.a.workflow, owner: east}"), `is one of Dapr's workflows, which stay in their cluster; write another type`},
		{"an actor type that is too long", Object("ActorType", "{namespace: shop, name: cart}", "{type: "+strings.Repeat("A", 129)+", owner: east}"), `is 129 characters long; at most 128 are taken`},
		{"an actor type in upper case by its name", Object("ActorType", "{namespace: shop, name: Cart}", "{type: Cart, owner: east}"), `f.yaml:3:35: metadata.name: instance name "Cart" has 'C' at position 1`},
		{"an actor type owned by this cluster", Object("ActorType", "{namespace: shop, name: cart}", "{type: Cart, owner: local}"), `spec.owner: cluster name "local" is reserved`},
		{"an actor's caller of whom nothing is said", Object("ActorType", "{namespace: shop, name: cart}", "{type: Cart, owner: east, allow: [{}]}"), `spec.allow[0]: says nothing of the caller, and so would allow anybody`},
		{"actors of no type", Object("AppEndpoints", shop, "{actors: [{routes: [{cluster: east}]}]}"), `f.yaml:4:17: spec.actors[0].type: is missing; write the actor type as apps name it`},
		{"doubled actors", Object("AppEndpoints", shop, "{actors: [{type: Cart}, {type: Cart, routes: [{cluster: east}]}]}"), `spec.actors[1]: Cart is there twice, first as spec.actors[0]; put all its routes into one of them`},
		{"actors of this cluster", Object("AppEndpoints", shop, "{actors: [{type: Cart, routes: [{cluster: local}]}]}"), `spec.actors[0].routes[0].cluster: cluster name "local" is reserved`},
		{"a doubled owner of actors", Object("AppEndpoints", shop, "{actors: [{type: Cart, routes: [{cluster: east}, {cluster: east}]}]}"), `spec.actors[0].routes[1].cluster: "east" is there twice, first as routes[0]; keep one of them`},
		{"a weight of actors", Object("AppEndpoints", shop, "{actors: [{type: Cart, routes: [{cluster: east, weight: 1}]}]}"), `spec.actors[0].routes[0].weight: unknown field; the fields here are cluster`},

		// What an AppExport may say.
		{"a caller's cluster that can't be", Object("AppExport", shop, "{allow: [{cluster: West}]}"), `spec.allow[0].cluster: cluster name "West" has 'W' at position 1; Isthmus puts it into DNS names, which have lower-case letters, digits and hyphens only; write a name, or "*" for any`},
		{"a caller at the command line", Object("AppExport", shop, "{allow: [{cluster: local}, {cluster: cli}]}"), `spec.allow[1].cluster: cluster name "cli" is reserved`},
		{"a caller of an actor in this cluster", Object("ActorType", shop, "{type: Cart, owner: east, allow: [{cluster: local}]}"), `spec.allow[0].cluster: cluster name "local" is reserved`},
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

// Guest is a Cluster that takes calls to shop/orders.
func Guest(takes string) string {
	return Object("Cluster", "{name: anna}", "{tunnel: accept, guest: {until: \"2026-11-28T20:00:00Z\", apps: [shop/orders], takes: ["+takes+"]}}")
}
