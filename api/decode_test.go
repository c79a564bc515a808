package api

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// design is the example of docs/objects.md.
const design = `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints             # what shop/checkout may call
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - app: orders
  - app: ledger
    namespace: finance
    routes:
    - {cluster: local}
    - {cluster: east, priority: 1, weight: 90}
    - {cluster: north, priority: 1, weight: 10}
    whenStale: serve
---
apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec:
  gateways: [{address: "203.0.113.7:15443"}, {address: gw.east.example}]
  network: net-1
  staleAfter: 30s
---
apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: orders}
spec:
  allow:
  - {cluster: west, namespace: shop, app: checkout}
  - {cluster: "*", namespace: shop}
`

func designObjects() []catalog.Object {
	return []catalog.Object{
		&catalog.AppEndpoints{
			App: catalog.App{Namespace: "shop", ID: "checkout"},
			Endpoints: []catalog.Endpoint{
				{App: catalog.App{Namespace: "shop", ID: "orders"}, Line: 6},
				{App: catalog.App{Namespace: "finance", ID: "ledger"}, Line: 7, WhenStale: catalog.Serve, Routes: []catalog.RouteSpec{
					{Cluster: "local", Weight: 1}, {Cluster: "east", Priority: 1, Weight: 90}, {Cluster: "north", Priority: 1, Weight: 10},
				}},
			},
			Source: catalog.Source{File: "shop.yaml", Line: 1},
		},
		&catalog.Cluster{
			Name: "east", Gateways: []string{"203.0.113.7:15443", "gw.east.example:15443"}, Network: "net-1",
			StaleAfter: 30 * time.Second, Source: catalog.Source{File: "shop.yaml", Line: 15},
		},
		&catalog.AppExport{
			App:    catalog.App{Namespace: "shop", ID: "orders"},
			Allow:  []catalog.Allow{{Cluster: "west", Namespace: "shop", App: "checkout"}, {Cluster: "*", Namespace: "shop"}},
			Source: catalog.Source{File: "shop.yaml", Line: 23},
		},
	}
}

func TestAFileOfObjects(t *testing.T) {
	for name, text := range map[string]string{
		"as written":                design,
		"with a byte order mark":    "\ufeff" + design,
		"with Windows line endings": strings.ReplaceAll(design, "\n", "\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := DecodeYAML("shop.yaml", []byte(text))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if want := designObjects(); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestFilesWithNoObject(t *testing.T) {
	for _, text := range []string{"", "\n", "---\n", "---\n---\n", "# nothing yet\n", "---\n# a\n---\n# b\n", "\ufeff", "\r\n"} {
		if objs, errs := DecodeYAML("f.yaml", []byte(text)); len(objs) != 0 || len(errs) != 0 {
			t.Errorf("%q: objects %v, errors %v; want neither", text, objs, errs)
		}
	}
}

func TestAliasesStandForTheirValue(t *testing.T) {
	text := selection(`  - app: a
    routes: &far [{cluster: east}, {cluster: north}]
  - app: b
    routes: *far
`)
	objs, errs := DecodeYAML("f.yaml", []byte(text))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	e := objs[0].(*catalog.AppEndpoints).Endpoints
	if !reflect.DeepEqual(e[0].Routes, e[1].Routes) || len(e[1].Routes) != 2 {
		t.Errorf("routes of a %v, of b %v; want the same two", e[0].Routes, e[1].Routes)
	}
}

// selection is an AppEndpoints whose endpoints begin in line 6.
func selection(endpoints string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec:\n  endpoints:\n" + endpoints
}

func object(kind, metadata, spec string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: %s\nmetadata: %s\nspec: %s\n", kind, metadata, spec)
}

// refusals are texts with one mistake each, and what is said of it.
func refusals() []refusal {
	const shop = "{namespace: shop, name: checkout}"
	long := strings.Repeat("a", 59)
	return []refusal{
		// The head of an object.
		{"not a mapping", "- a\n", `f.yaml:1:1: is a list where an object is wanted; begin with apiVersion, kind, metadata and spec`},
		{"no apiVersion and no kind", "spec: {}\n", `f.yaml:1:1: apiVersion: is missing; begin with "apiVersion: isthmus.dev/v1alpha1" and "kind: …", one of AppEndpoints, AppExport, Cluster`},
		{"no kind", "apiVersion: isthmus.dev/v1alpha1\n", `f.yaml:1:1: kind: is missing; begin with`},
		{"another apiVersion", "apiVersion: isthmus.dev/v2\nkind: Cluster\nmetadata: {name: east}\nspec: {network: a}\n", `f.yaml:1:13: apiVersion: "isthmus.dev/v2" is not known here; write isthmus.dev/v1alpha1`},
		{"a misspelt kind", "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoint\n", `f.yaml:2:7: kind: "AppEndpoint" is not a kind of object; did you mean "AppEndpoints"?`},
		{"a kind of something else", "apiVersion: isthmus.dev/v1alpha1\nkind: Deployment\n", `f.yaml:2:7: kind: "Deployment" is not a kind of object; write one of AppEndpoints, AppExport, Cluster`},
		{"no metadata", "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nspec: {}\n", `f.yaml:1:1: metadata: is missing; write "metadata: {namespace: …, name: …}"`},
		{"no namespace", object("AppExport", "{name: orders}", "{}"), `f.yaml:3:11: metadata.namespace: is missing; write the app's namespace`},
		{"no name", object("AppExport", "{namespace: shop}", "{}"), `f.yaml:3:11: metadata.name: is missing; write the app-id`},
		{"no cluster name", object("Cluster", "{}", "{network: a}"), `f.yaml:3:11: metadata.name: is missing; write the cluster's name`},
		{"no spec", "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: orders}\n", `f.yaml:1:1: spec: is missing; write who may call: "spec: {allow: []}" for nobody`},
		{"a spec with nothing in it", object("AppExport", shop, ""), `f.yaml:4:6: spec: has no value; give it one, or leave the field out`},
		{"an app-id in upper case", object("AppExport", "{namespace: shop, name: Orders}", "{}"), `f.yaml:3:35: metadata.name: app-id "Orders" has 'O' at position 1; SNI and DNS carry lower-case letters, digits and hyphens only; give the app another app-id`},
		{"an app-id with a dot", object("AppExport", "{namespace: shop, name: a.b}", "{}"), `metadata.name: app-id "a.b" has '.' at position 2`},
		{"an app-id that is too long", object("AppExport", "{namespace: shop, name: "+long+"}", "{}"), `is 59 characters long; at most 58 fit, since Dapr appends "-dapr"`},
		{"a namespace with a hyphen in front", object("AppExport", "{namespace: -shop, name: orders}", "{}"), `metadata.namespace: namespace "-shop" begins or ends with a hyphen`},
		{"a cluster in a namespace", object("Cluster", "{namespace: shop, name: east}", "{network: a}"), `f.yaml:3:23: metadata.namespace: a Cluster has no namespace; leave it out`},
		{"a cluster called local", object("Cluster", "{name: local}", "{network: a}"), `metadata.name: cluster name "local" is reserved`},

		// Fields.
		{"an unknown field", selection("  - app: a\n    rout: []\n"), `f.yaml:7:5: spec.endpoints[0].rout: unknown field; did you mean "routes"?`},
		{"a field in another spelling", selection("  - app: a\n    when_stale: serve\n"), `f.yaml:7:5: spec.endpoints[0].when_stale: unknown field; did you mean "whenStale"?`},
		{"a field like no other", selection("  - app: a\n    loadBalancer: serve\n"), `unknown field; the fields here are app, namespace, routes, whenStale`},
		{"a doubled field", selection("  - app: a\n    namespace: x\n    namespace: y\n"), `f.yaml:8:5: spec.endpoints[0].namespace: is there twice, first in line 7; keep one of them`},
		{"a number for a string", selection("  - app: 7\n"), `f.yaml:6:10: spec.endpoints[0].app: 7 is a whole number where a string is wanted; put it in quotes: "7"`},
		{"a fraction for a string", selection("  - app: 1.5\n"), `1.5 is a number with a fraction where a string is wanted`},
		{"true for a string", selection("  - app: true\n"), `true is true or false where a string is wanted; put it in quotes: "true"`},
		{"a date for a string", selection("  - app: 2020-01-01\n"), `is a date or another special value where a string is wanted`},
		{"a list for a string", selection("  - app: [a]\n"), `spec.endpoints[0].app: is a list where a string is wanted; write one value`},
		{"a string for a list", object("AppEndpoints", shop, "{endpoints: orders}"), `f.yaml:4:19: spec.endpoints: is a string where a list is wanted; begin each item with "- "`},
		{"a string for a mapping", selection("  - orders\n"), `f.yaml:6:5: spec.endpoints[0]: is a string where a mapping is wanted; write its fields: app, namespace, routes, whenStale`},
		{"a quoted number", selection("  - {app: a, routes: [{cluster: east, priority: \"1\"}]}\n"), `spec.endpoints[0].routes[0].priority: is a string where a whole number is wanted; write a number such as 1, without quotes`},
		{"a negative number", selection("  - {app: a, routes: [{cluster: east, weight: -1}]}\n"), `weight: -1 is not a number from 0 to`},
		{"a number in octal", selection("  - {app: a, routes: [{cluster: east, weight: 0o7}]}\n"), `weight: 0o7 is not a number from 0 to 4294967295 in plain digits`},
		{"a fraction for a number", selection("  - {app: a, routes: [{cluster: east, weight: 1.5}]}\n"), `weight: is a number with a fraction where a whole number is wanted`},
		{"null", selection("  - app: ~\n"), `f.yaml:6:10: spec.endpoints[0].app: has no value; give it one, or leave the field out`},
		{"a list with nothing in it", object("AppEndpoints", shop, "\n  endpoints:"), `spec.endpoints: has no value; write [] for an empty list, or leave the field out`},
		{"an empty string, which would allow anybody", object("AppExport", shop, `{allow: [{cluster: ""}]}`), `f.yaml:4:26: spec.allow[0].cluster: is empty; give it a value, or leave the field out`},

		// What YAML can do and objects can't.
		{"a merge key", selection("  - &a {app: a}\n  - {<<: *a, app: b}\n"), `spec.endpoints[1]: merge keys (<<) are not taken; write the fields out`},
		{"a tag", selection("  - app: !!str 7\n"), `f.yaml:6:10: tag !!str is not taken; leave it out`},
		{"a tag of one's own", selection("  - !app {app: a}\n"), `tag !app is not taken`},
		{"an alias within its own value", selection("  - &a {app: a, routes: [*a]}\n"), `alias *a stands within the value that it repeats; write the value out`},
		{"a billion laughs", laughs(), `aliases repeat more than 100000 values; write fewer, or write them out`},
		{"a deep nest", selection("  - app: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "\n"), `more than 32 levels deep`},
		{"a syntax error", "apiVersion: isthmus.dev/v1alpha1\nkind: {\n", `not YAML: did not find expected node content`},
		{"a tab for an indent", "apiVersion: isthmus.dev/v1alpha1\n\tkind: Cluster\n", `not YAML: `},
		{"bytes that are not text", "a: \xff\xfe\n", `not YAML: `},

		// What an AppEndpoints may say.
		{"an endpoint with no app", selection("  - {namespace: a}\n"), `f.yaml:6:5: spec.endpoints[0].app: is missing; write the app-id of the app to call`},
		{"an app that can't be carried", selection("  - app: Big\n"), `f.yaml:6:10: spec.endpoints[0].app: app-id "Big" has 'B' at position 1`},
		{"a namespace that can't be carried", selection("  - {app: a, namespace: a_b}\n"), `spec.endpoints[0].namespace: namespace "a_b" has '_' at position 2`},
		{"the app itself", selection("  - app: checkout\n"), `f.yaml:6:10: spec.endpoints[0].app: is shop/checkout itself, which always resolves to its own instance; leave this endpoint out`},
		{"a doubled endpoint", selection("  - app: a\n  - {app: a, namespace: shop}\n"), `f.yaml:7:5: spec.endpoints[1]: shop/a is there twice, first as spec.endpoints[0]; put all its routes into one of them`},
		{"a route to nowhere", selection("  - {app: a, routes: [{priority: 1}]}\n"), `spec.endpoints[0].routes[0].cluster: is missing; write "local" or the name of a Cluster`},
		{"a route to a name that can't be", selection("  - {app: a, routes: [{cluster: \"*\"}]}\n"), `spec.endpoints[0].routes[0].cluster: cluster name "*" has '*' at position 1`},
		{"a doubled route", selection("  - {app: a, routes: [{cluster: east}, {cluster: east, priority: 2}]}\n"), `spec.endpoints[0].routes[1].cluster: "east" is there twice, first as routes[0]; keep one of them`},
		{"no weight at all", selection("  - {app: a, routes: [{cluster: east, weight: 0}, {cluster: north, weight: 0}]}\n"), `spec.endpoints[0].routes: every route has weight 0, so none could ever be taken; give one a weight, or leave the endpoint out`},
		{"too much weight", selection("  - {app: a, routes: [{cluster: east, weight: 10001}]}\n"), `weight: 10001 is out of bounds; write a number from 0 to 10000`},
		{"too high a priority", selection("  - {app: a, routes: [{cluster: east, priority: 101}]}\n"), `priority: 101 is out of bounds; write a number from 0 to 100`},
		{"a misspelt whenStale", selection("  - {app: a, whenStale: Serve}\n"), `spec.endpoints[0].whenStale: "Serve" is not known; did you mean "serve"?`},
		{"another whenStale", selection("  - {app: a, whenStale: perhaps}\n"), `"perhaps" is not known; write withdraw or serve`},
		{"too many routes", selection("  - app: a\n    routes:" + strings.ReplaceAll(items(catalog.MaxRoutes+1, "cluster: c"), "\n", "\n    ") + "\n"), `spec.endpoints[0].routes: has 101 items; at most 100 are taken; leave some out`},
		{"too many endpoints", object("AppEndpoints", shop, "\n  endpoints:"+items(catalog.MaxEndpoints+1, "app: a")), `spec.endpoints: has 20001 items; at most 20000 are taken; select fewer apps`},

		// What a Cluster may say.
		{"a cluster with no way to it", object("Cluster", "{name: east}", "{staleAfter: 5s}"), `f.yaml:4:7: spec: has neither gateways nor a network, so nothing leads to the cluster; write at least one`},
		{"a gateway with no address", object("Cluster", "{name: east}", "{gateways: [{}]}"), `f.yaml:4:19: spec.gateways[0].address: is missing; write "host:port"`},
		{"a gateway that can't be", object("Cluster", "{name: east}", "{gateways: [{address: \"gw:99999\"}]}"), `spec.gateways[0].address: gateway address "gw:99999": port "99999" is not a number from 1 to 65535`},
		{"a doubled gateway", object("Cluster", "{name: east}", "{gateways: [{address: gw}, {address: \"gw:15443\"}]}"), `spec.gateways[1].address: gw:15443 is there twice, first as spec.gateways[0]; keep one of them`},
		{"a length of time without a unit", object("Cluster", "{name: east}", "{network: a, staleAfter: \"10\"}"), `spec.staleAfter: "10" is not a length of time; write one such as "10s" or "1m30s"`},
		{"a lease that is too short", object("Cluster", "{name: east}", "{network: a, staleAfter: 1ms}"), `spec.staleAfter: 1ms is out of bounds; write one from 100ms to 24h0m0s`},
		{"a network with a space", object("Cluster", "{name: east}", "{network: \"net 1\"}"), `spec.network: network "net 1" has ' ' at position 4`},
		{"a network with a long name", object("Cluster", "{name: east}", "{network: "+strings.Repeat("n", 64)+"}"), `is 64 characters long; at most 63 are taken`},

		// What an AppExport may say.
		{"a caller's cluster that can't be", object("AppExport", shop, "{allow: [{cluster: West}]}"), `spec.allow[0].cluster: cluster name "West" has 'W' at position 1; SNI and DNS carry lower-case letters, digits and hyphens only; write a name, or "*" for any`},
		{"a caller in this cluster", object("AppExport", shop, "{allow: [{cluster: local}]}"), `cluster name "local" is reserved`},
		{"a pattern", object("AppExport", shop, "{allow: [{app: \"check*\"}]}"), `spec.allow[0].app: app-id "check*" has '*' at position 6`},
	}
}

type refusal struct{ name, text, want string }

func TestRefusals(t *testing.T) {
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			objs, errs := DecodeYAML("f.yaml", []byte(c.text))
			if len(objs) != 0 {
				t.Errorf("decoded %v in spite of the mistake", objs)
			}
			if len(errs) != 1 {
				t.Fatalf("%d errors, want 1:\n%v", len(errs), errs)
			}
			if got := errs[0].Error(); !strings.Contains(got, c.want) {
				t.Errorf("error\n  %s\nwant\n  %s", got, c.want)
			}
			if errs[0].Line == 0 || errs[0].Column == 0 || errs[0].File != "f.yaml" {
				t.Errorf("error %+v has no place", errs[0])
			}
		})
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

func TestEveryMistakeOfAFileIsReportedAndTheGoodStand(t *testing.T) {
	text := object("Cluster", "{name: east}", "{network: a, netwrk: b, staleAfter: soon}") + "---\n" +
		object("Cluster", "{name: north}", "{network: a}") + "---\n" +
		object("AppExport", "{namespace: shop, name: orders}", "{allow: [{app: A}, {ap: b}]}")
	objs, errs := DecodeYAML("f.yaml", []byte(text))
	if len(objs) != 1 || objs[0].Key() != (catalog.Key{Kind: catalog.KindCluster, Name: "north"}) {
		t.Errorf("objects %v, want Cluster north alone", objs)
	}
	var got []string
	for _, e := range errs {
		got = append(got, fmt.Sprintf("%s %d:%d %s", e.Key, e.Line, e.Column, e.Path))
	}
	want := []string{
		"Cluster east 4:20 spec.netwrk", "Cluster east 4:43 spec.staleAfter",
		"AppExport shop/orders 14:22 spec.allow[0].app", "AppExport shop/orders 14:27 spec.allow[1].ap",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("errors\n%q\nwant\n%q", got, want)
	}
}

func TestADoubledObjectIsRefusedNamingBoth(t *testing.T) {
	text := object("Cluster", "{name: east}", "{network: a}") + "---\n" + object("Cluster", "{name: east}", "{network: b}")
	objs, errs := DecodeYAML("f.yaml", []byte(text))
	if len(objs) != 0 || len(errs) != 1 || errs[0].Key.Name != "east" {
		t.Fatalf("objects %v, errors %v; want one error about Cluster east", objs, errs)
	}
	if want := "f.yaml:6:1: Cluster east is there twice, first in line 1; neither is taken; keep one of them"; errs[0].Error() != want {
		t.Errorf("error %q, want %q", errs[0], want)
	}
}

func TestAFileThatIsCutOffGivesNothing(t *testing.T) {
	cut := design[:strings.Index(design, "gw.east")] // within a flow list
	objs, errs := DecodeYAML("f.yaml", []byte(cut))
	if len(objs) != 0 || len(errs) != 1 || errs[0].Key != (catalog.Key{}) {
		t.Errorf("objects %v, errors %v; want no object, and one error with no key", objs, errs)
	}
}

func TestMistakesOfOneObjectAreBounded(t *testing.T) {
	_, errs := DecodeYAML("f.yaml", []byte(selection(strings.Repeat("  - {ap: a}\n", 1000))))
	if len(errs) != maxErrors || !strings.Contains(errs[maxErrors-1].Error(), "more mistakes") {
		t.Errorf("%d errors, the last %v; want %d and a word of the rest", len(errs), errs[len(errs)-1], maxErrors)
	}
}

func TestJSONUnderAKey(t *testing.T) {
	for _, want := range designObjects() {
		path := KeyPath(want.Key())
		got, err := DecodeJSON(path, EncodeJSON(want))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got.Origin() != (catalog.Source{Line: 1}) {
			t.Errorf("%s: source %+v, want line 1 of no file", path, got.Origin())
		}
		if string(EncodeYAML(got)) != string(EncodeYAML(want)) {
			t.Errorf("%s: decoded %s\nwant %s", path, EncodeYAML(got), EncodeYAML(want))
		}
	}
}

func TestRefusalsOfJSON(t *testing.T) {
	const east, good = "isthmus/v1alpha1/Cluster/east", `{"apiVersion":"isthmus.dev/v1alpha1","kind":"Cluster","metadata":{"name":"east"},"spec":{"network":"a"}}`
	for _, c := range []struct{ name, path, text, want string }{
		{"another name than its key", "isthmus/v1alpha1/Cluster/west", good, `isthmus/v1alpha1/Cluster/west:1:1: metadata: the object is Cluster east, but its key is that of Cluster west`},
		{"a foreign key", "other/thing", good, `key "other/thing" does not begin with "isthmus/v1alpha1/"; it is not an object of Isthmus`},
		{"an unknown kind", "isthmus/v1alpha1/Gateway/east", good, `has the unknown kind "Gateway"`},
		{"a cluster in a namespace", "isthmus/v1alpha1/Cluster/shop/east", good, `want isthmus/v1alpha1/Cluster/<name>`},
		{"nothing", east, ``, `isthmus/v1alpha1/Cluster/east:1:1: not JSON: unexpected end of JSON input`},
		{"cut off", east, good[:40], `not JSON: unexpected end of JSON input`},
		{"a mistake behind others in a line", east, strings.Replace(good, `"a"`, `"ä","é":1`, 1), `Cluster/east:1:104: spec.é: unknown field`},
		{"two values", east, good + good, `not JSON: invalid character '{' after top-level value`},
		{"a comment", east, "{\n // no\n}", `east:2:2: not JSON: invalid character '/'`},
		{"bytes that are not UTF-8", east, "\"\xff\"", `the text is not UTF-8`},
		{"null", east, `null`, `is null where an object is wanted`},
		{"an unknown field", east, strings.Replace(good, "network", "netwrk", 1), `spec.netwrk: unknown field; did you mean "network"?`},
		{"a field in another case", east, strings.Replace(good, "network", "Network", 1), `spec.Network: unknown field; did you mean "network"?`},
		{"a doubled field", east, strings.Replace(good, `"network"`, `"network":"b","network"`, 1), `spec.network: is there twice, first in line 1`},
		{"a number for a string", east, strings.Replace(good, `"a"`, `1`, 1), `spec.network: 1 is a whole number where a string is wanted`},
		{"an exponent", "isthmus/v1alpha1/AppEndpoints/a/b", `{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppEndpoints","metadata":{"namespace":"a","name":"b"},"spec":{"endpoints":[{"app":"c","routes":[{"cluster":"d","weight":1e2}]}]}}`, `where a whole number is wanted`},
		{"too long", east, strings.Repeat(" ", MaxObjectBytes) + good, `an object has at most 4194304`},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj, err := DecodeJSON(c.path, []byte(c.text))
			if err == nil {
				t.Fatalf("decoded %v", obj)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error\n  %v\nwant\n  %s", err, c.want)
			}
		})
	}
}

// TestReadingTakesTimeInProportion would take minutes if a value cost more the further
// on in its line it stands.
func TestReadingTakesTimeInProportion(t *testing.T) {
	obj := manyObjects(1, 0)[0]
	for i := range catalog.MaxEndpoints {
		obj.Endpoints = append(obj.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("callee-%d", i)}, Routes: []catalog.RouteSpec{{Cluster: "east", Weight: 1}}})
	}
	text := EncodeJSON(obj)
	begin := time.Now()
	if _, err := DecodeJSON(KeyPath(obj.Key()), text); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%d bytes took %s", len(text), took)
	}
}

func TestErrorsAreFoundByType(t *testing.T) {
	_, err := DecodeJSON("isthmus/v1alpha1/Cluster/east", []byte(`{}`))
	var one *Error
	if !errors.As(err, &one) || one.Key.Name != "east" {
		t.Errorf("error %v, want an *Error about Cluster east", err)
	}
}

func TestHostNamesThatDoNotFitTheDomain(t *testing.T) {
	domain := catalog.Domain(strings.Repeat("d", 62) + "." + strings.Repeat("e", 62))
	long := strings.Repeat("n", 50)
	objs, errs := DecodeYAML("f.yaml", []byte(selection("  - app: a\n  - app: "+long+"\n    namespace: "+long+"\n    routes: [{cluster: local}, {cluster: "+long+"}]\n")))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	errs = Validate(objs[0], domain, "west")
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "f.yaml:7: spec.endpoints[1].routes[1]: host name") {
		t.Errorf("errors %v; want one, about the route in line 7", errs)
	}
	if errs := Validate(objs[0], catalog.DefaultDomain, "west"); len(errs) != 0 {
		t.Errorf("under the default domain: %v", errs)
	}
}
