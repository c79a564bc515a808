package api

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// design is the example of docs/reference/objects.md.
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
  rampUp: 5s
---
apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: orders}
spec:
  allow:
  - {cluster: west, namespace: shop, app: checkout}
  - {cluster: "*", namespace: shop}
---
apiVersion: isthmus.dev/v1alpha1
kind: AppInstance
metadata: {namespace: shop, name: orders-vm1}
spec:
  app: orders
  address: "10.0.0.5:50002"
  check:
    http: {port: 3500}
    interval: 5s
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
			StaleAfter: 30 * time.Second, RampUp: 5 * time.Second, Source: catalog.Source{File: "shop.yaml", Line: 15},
		},
		&catalog.AppExport{
			App:    catalog.App{Namespace: "shop", ID: "orders"},
			Allow:  []catalog.Allow{{Cluster: "west", Namespace: "shop", App: "checkout"}, {Cluster: "*", Namespace: "shop"}},
			Source: catalog.Source{File: "shop.yaml", Line: 24},
		},
		&catalog.AppInstance{
			Namespace: "shop", Name: "orders-vm1", App: "orders", Address: netip.MustParseAddrPort("10.0.0.5:50002"),
			Check: &catalog.HealthCheck{
				Kind: catalog.CheckHTTP, Port: 3500, Path: DefaultPath, Interval: 5 * time.Second, Timeout: time.Second,
				HealthyAfter: 1, UnhealthyAfter: 2,
			},
			Source: catalog.Source{File: "shop.yaml", Line: 32},
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
	text := apitest.Selection(`  - app: a
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

func TestRefusals(t *testing.T) {
	for _, c := range apitest.Refusals() {
		t.Run(c.Name, func(t *testing.T) {
			objs, errs := DecodeYAML("f.yaml", []byte(c.Text))
			if len(objs) != 0 {
				t.Errorf("decoded %v in spite of the mistake", objs)
			}
			if len(errs) != 1 {
				t.Fatalf("%d errors, want 1:\n%v", len(errs), errs)
			}
			if got := errs[0].Error(); !strings.Contains(got, c.Want) {
				t.Errorf("error\n  %s\nwant\n  %s", got, c.Want)
			}
			if errs[0].Line == 0 || errs[0].Column == 0 || errs[0].File != "f.yaml" {
				t.Errorf("error %+v has no place", errs[0])
			}
		})
	}
}

func TestEveryMistakeOfAFileIsReportedAndTheGoodStand(t *testing.T) {
	text := apitest.Object("Cluster", "{name: east}", "{network: a, netwrk: b, staleAfter: soon}") + "---\n" +
		apitest.Object("Cluster", "{name: north}", "{network: a}") + "---\n" +
		apitest.Object("AppExport", "{namespace: shop, name: orders}", "{allow: [{app: A}, {ap: b}]}")
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
	text := apitest.Object("Cluster", "{name: east}", "{network: a}") + "---\n" + apitest.Object("Cluster", "{name: east}", "{network: b}")
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
	_, errs := DecodeYAML("f.yaml", []byte(apitest.Selection(strings.Repeat("  - {ap: a}\n", 1000))))
	if len(errs) != strict.MaxErrors || !strings.Contains(errs[strict.MaxErrors-1].Error(), "stops here, after 100 mistakes") {
		t.Errorf("%d errors, the last %v; want %d and that reading stops", len(errs), errs[len(errs)-1], strict.MaxErrors)
	}
}

// TestMistakesOfOneFileAreBounded: what stands below the last that is read is not known.
func TestMistakesOfOneFileAreBounded(t *testing.T) {
	good := apitest.Object("Cluster", "{name: east}", "{network: a}")
	objs, errs := DecodeYAML("f.yaml", []byte(good+strings.Repeat("---\na: b\n", 1000)+"---\n"+good))
	last := errs[len(errs)-1]
	if len(objs) != 1 || len(errs) != strict.MaxErrors+1 || !strings.Contains(last.Error(), "stops here, after 100 objects") || last.Key != (catalog.Key{}) {
		t.Errorf("%d objects, %d errors, the last %v", len(objs), len(errs), last)
	}
}

// TestReadingStops holds that what stands below the last mistake that is told costs nothing.
func TestReadingStops(t *testing.T) {
	cost := func(keys int, text string) float64 {
		root := strict.Node{Kind: strict.Map}
		for name, value := range map[string]string{"apiVersion": catalog.Version, "kind": "AppEndpoints"} {
			root.Children = append(root.Children, strict.Node{Kind: strict.String, Text: name}, strict.Node{Kind: strict.String, Text: value})
		}
		spec := strict.Node{Kind: strict.Map}
		for n := range keys {
			spec.Children = append(spec.Children, strict.Node{Kind: strict.String, Text: fmt.Sprint(text, n)}, strict.Node{Kind: strict.String, Text: "x"})
		}
		root.Children = append(root.Children, strict.Node{Kind: strict.String, Text: "spec"}, spec)
		return testing.AllocsPerRun(1, func() { decodeObject(&root, &strict.Report{}, false) })
	}
	for _, text := range []string{"k", "a-key-that-is-rather-long-"} {
		if few, many := cost(1000, text), cost(100_000, text); many > few+few/10 { // what else allocates meanwhile counts, too
			t.Errorf("%q: 1,000 unknown keys cost %.0f allocations, and 100,000 cost %.0f", text, few, many)
		}
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
	if took := time.Since(begin); took > 30*time.Second {
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

func TestWhatIsAtTheBoundsIsAccepted(t *testing.T) {
	for name, text := range apitest.Accepted() {
		if objs, errs := DecodeYAML("f.yaml", []byte(text)); len(objs) != 1 || len(errs) > 0 {
			t.Errorf("%s: %d objects, %v; want one", name, len(objs), errs)
		}
	}
}

func TestDefaults(t *testing.T) {
	for metadata, want := range map[string]string{
		`{namespace: shop, name: "*"}`:                                   "shop/*",
		`{namespace: "*", name: "*"}`:                                    "*/*",
		`{namespace: shop, name: default.isthmus.dev}`:                   "shop/*",
		`{namespace: isthmus-system, name: cluster-default.isthmus.dev}`: "*/*",
		`{namespace: isthmus-system, name: default.isthmus.dev}`:         "isthmus-system/*",
	} {
		objects, errs := DecodeYAML("f.yaml", []byte(apitest.Object("AppEndpoints", metadata, "{endpoints: [{app: orders}, {app: ledger, namespace: finance}]}")))
		if len(errs) > 0 {
			t.Errorf("%s: %v", metadata, errs)
			continue
		}
		s := objects[0].(*catalog.AppEndpoints)
		if got := s.Key().NamespacedName(); got != want || !s.IsDefault() {
			t.Errorf("%s is %s, want %s", metadata, got, want)
		}
		web := s.For(catalog.App{Namespace: "web", ID: "a"})
		if first := web.Endpoints[0].App; s.App.Namespace == catalog.DefaultName && first != (catalog.App{Namespace: "web", ID: "orders"}) || web.Key() != s.Key() {
			t.Errorf("%s: for web/a it is %s with %s", metadata, web.Key(), first)
		}
		again, err := DecodeJSON(KeyPath(s.Key()), EncodeJSON(s))
		if err != nil || string(EncodeJSON(again)) != string(EncodeJSON(s)) {
			t.Errorf("%s comes back as %v, %v", metadata, again, err)
		}
		if key, err := ParseKeyPath(KeyPath(s.Key())); err != nil || key != s.Key() {
			t.Errorf("%s: key %v, %v", metadata, key, err)
		}
	}
	for text, want := range map[string]string{
		apitest.Object("AppEndpoints", `{namespace: "*", name: checkout}`, "{}"):                     `metadata.namespace: namespace "*" has`,
		apitest.Object("AppEndpoints", `{namespace: Shop, name: "*"}`, "{}"):                         `metadata.namespace: namespace "Shop" has`,
		apitest.Object("AppEndpoints", `{name: "*"}`, "{}"):                                          `metadata.namespace: is missing; write the namespace whose apps follow the default`,
		apitest.Object("AppEndpoints", `{namespace: shop, name: cluster-default.isthmus.dev}`, "{}"): `metadata.namespace: is "shop", and the default for all namespaces is in isthmus-system`,
		apitest.Object("AppExport", `{namespace: shop, name: "*"}`, "{}"):                            `metadata.name: app-id "*" has`,
		apitest.Object("AppEndpoints", `{namespace: shop, name: "*"}`, `{endpoints: [{app: "*"}]}`):  `spec.endpoints[0].app: app-id "*" has`,
	} {
		if _, errs := DecodeYAML("f.yaml", []byte(text)); len(errs) != 1 || !strings.Contains(errs.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, errs, want)
		}
	}
}
