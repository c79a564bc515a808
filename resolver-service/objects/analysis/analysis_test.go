package analysis

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// cluster is west, which runs some apps and hears east.
func cluster(t *testing.T) *topology.Graph {
	t.Helper()
	g := topology.NewGraph(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain})
	g.Apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: decode(t, clusters)}})
	var here []catalog.Instance
	for i, app := range []string{"shop/orders", "shop/checkout", "shop/cart", "default/billing"} {
		namespace, id, _ := strings.Cut(app, "/")
		here = append(here, catalog.Instance{
			ID: "1", App: catalog.App{Namespace: namespace, ID: id}, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 50002),
		})
	}
	here[2].Version = "1.9"
	stock := slices.Clone(here[:1])
	stock[0].App = catalog.App{Namespace: "shop", ID: "mainframe"}
	stock[0].Address = netip.MustParseAddrPort("10.0.1.1:50002")
	byConsul := slices.Clone(here[:1])
	byConsul[0].App = catalog.App{Namespace: "finance", ID: "mainframe"}
	byConsul[0].Address = netip.MustParseAddrPort("10.0.1.2:50002")
	g.Apply(topology.Change{Instances: []topology.InstanceChange{
		{Source: "test", Rank: topology.Live, Put: here}, {Source: "static", Rank: topology.Written, Put: stock},
		{Source: topology.ConsulAPI, Rank: topology.Live, Put: byConsul},
	}})
	g.Apply(topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Full: true, Lease: topology.Fresh, Put: []topology.PeerExport{
		{App: catalog.App{Namespace: "shop", ID: "ledger"}, Ready: 1, Allow: []catalog.Allow{{Cluster: "west", App: "orders"}}},
		{App: catalog.App{Namespace: "shop", ID: "stock"}, Ready: 1, Allow: []catalog.Allow{{Cluster: "west"}}},
	}}}})
	return g
}

const clusters = `
apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec: {gateways: [{address: "203.0.113.7:15443"}]}
---
apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: silent}
spec: {gateways: [{address: "203.0.113.8:15443"}]}
`

func decode(t *testing.T, text string) []catalog.Object {
	t.Helper()
	objects, mistakes := api.DecodeYAML("f.yaml", []byte(text))
	if err := mistakes.Err(); err != nil {
		t.Fatal(err)
	}
	return objects
}

func selection(endpoints string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec: {endpoints: [" + endpoints + "]}\n"
}

func export(app, allow string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: " + app + "}\nspec: {allow: [" + allow + "]}\n"
}

func TestEachCheckFindsItsMistake(t *testing.T) {
	g := cluster(t)
	for what, test := range map[string]struct {
		object string
		want   []string // the beginning of each finding, with its level
	}{
		"all is well": {selection(`{app: orders}, {app: stock, routes: [{cluster: local}, {cluster: east, priority: 1}]}`), nil},
		"a tunnel without trust": {"apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: north}\nspec: {tunnel: accept}\n", []string{
			"note Cluster north: spec.trust: is missing: whoever has a certificate for north",
		}},
		"a tunnel with trust":                           {"apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: north}\nspec: {tunnel: accept, trust: {domain: north.example}}\n", nil},
		"an app with a stock sidecar, of the namespace": {selection(`{app: mainframe}`), nil},
		"the same, of another namespace": {selection(`{app: mainframe, namespace: finance}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].app: no sidecar of finance/mainframe has registered here, so it seems to be Dapr's own; " +
				"whoever may connect to it can have it call other apps with its certificate; run it with Isthmus in its daprd, or let only trusted callers connect to it [stock-sidecar]"}},
		"the same, exported": {export("mainframe", `{cluster: east}`), []string{"warning AppExport shop/mainframe: metadata.name: no sidecar of shop/mainframe has registered here"}},
		"a misspelt app": {selection(`{app: oders}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].app: no app shop/oders runs here, and no other cluster exports one; did you mean shop/orders? [unknown-app]"}},
		"a misspelt app of another cluster": {selection(`{app: legder}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].app: no app shop/legder runs here, and no other cluster exports one; did you mean shop/ledger? [unknown-app]"}},
		"an app of another namespace": {selection(`{app: billing}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].app: no app shop/billing runs here, and no other cluster exports one; did you mean default/billing? [unknown-app]"}},
		"an app that is still to come": {selection(`{app: invoices}`), []string{
			"note AppEndpoints shop/checkout: spec.endpoints[0].app: no app shop/invoices runs here, and no other cluster exports one; correct the name, or start the app; if it runs in another cluster, write AppExport shop/invoices there that lets shop/checkout of cluster west have it [unknown-app]"}},
		"an app that a cluster may have that is not heard": {selection(`{app: oders, routes: [{cluster: silent}]}`), nil},
		"a misspelt cluster": {selection(`{app: stock, routes: [{cluster: esat}]}`), []string{
			`warning AppEndpoints shop/checkout: spec.endpoints[0].routes[0].cluster: no Cluster object has the name "esat"; did you mean "east"? [unknown-cluster]`}},
		"a cluster that nobody knows": {selection(`{app: stock, routes: [{cluster: antarctica}]}`), []string{
			`warning AppEndpoints shop/checkout: spec.endpoints[0].routes[0].cluster: no Cluster object has the name "antarctica"; correct the name, or write the Cluster object [unknown-cluster]`}},
		"a cluster that another introduces in vain": {selection(`{app: stock, routes: [{cluster: asia}]}`), []string{
			`warning AppEndpoints shop/checkout: spec.endpoints[0].routes[0].cluster: no Cluster object has the name "asia"; hub introduces asia [unknown-cluster]`}},
		"an app that the cluster does not export": {selection(`{app: orders, routes: [{cluster: east}]}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].routes[0].cluster: cluster east does not export shop/orders, so the route is never taken; write AppExport shop/orders there, or leave the route out [not-exported]"}},
		"an app that the cluster exports to another caller": {selection(`{app: ledger, routes: [{cluster: east}]}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].routes[0].cluster: cluster east exports shop/ledger, but not to shop/checkout, so the route is never taken; " +
				"add {cluster: west, namespace: shop, app: checkout} to spec.allow of AppExport shop/ledger there [not-exported]"}},
		"the same without routes": {selection(`{app: ledger}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].app: shop/ledger does not run here, and no cluster that exports it lets shop/checkout call it; "}},
		"a minReady that there are": {selection(`{app: stock, routes: [{cluster: east, minReady: 1}, {cluster: silent, priority: 1}]}, {app: orders, routes: [{cluster: local, minReady: "100%"}, {cluster: silent, priority: 1}]}`), nil},
		"a minReady that there are not": {selection(`{app: stock, routes: [{cluster: east, minReady: 50}, {cluster: silent, priority: 1}]}, {app: orders, routes: [{cluster: local, minReady: 2}, {cluster: silent, priority: 1}]}`), []string{
			"note AppEndpoints shop/checkout: spec.endpoints[0].routes[0].minReady: is 50, and 1 of shop/stock are known there, so calls go to the next priority even if all are ready; write a percentage",
			"note AppEndpoints shop/checkout: spec.endpoints[1].routes[0].minReady: is 2, and 1 of shop/orders are known there"}},
		"a minReady of the last priority": {selection(`{app: stock, routes: [{cluster: east, minReady: 50}]}`), []string{
			"note AppEndpoints shop/checkout: spec.endpoints[0].routes[0].minReady: is 50, but no route has a later priority"}},
		"versions that there are": {selection(`{app: cart, routes: [{cluster: local, versions: ["1.*"]}, {cluster: silent, versions: ["3"]}]}`), nil},
		"versions that there are not": {selection(`{app: cart, routes: [{cluster: west, versions: ["2.*", "1"]}]}, {app: stock, routes: [{cluster: east, versions: ["*"]}]}`), []string{
			"warning AppEndpoints shop/checkout: spec.endpoints[0].routes[0].versions: match no instance of shop/cart that is ready there: 1.9: 1; correct the pattern, or have instances say their version [no-version]",
			"warning AppEndpoints shop/checkout: spec.endpoints[1].routes[0].versions: match no instance of shop/stock that is ready there: none says its version"}},
		"a weight of 0": {selection(`{app: stock, routes: [{cluster: local}, {cluster: east, weight: 0}]}`), []string{
			"note AppEndpoints shop/checkout: spec.endpoints[0].routes[1].weight: is 0, so the route takes no calls; give it a weight, or leave the route out [no-traffic]"}},

		"an export":             {export("orders", `{cluster: east, namespace: shop, app: checkout}, {cluster: silent}`), nil},
		"an export to all":      {export("orders", `{cluster: "*"}`), nil},
		"a misspelt exported":   {export("oders", `{cluster: east}`), []string{"warning AppExport shop/oders: metadata.name: no app shop/oders runs here; did you mean shop/orders? [export-of-nothing]"}},
		"an export before time": {export("invoices", `{cluster: east}`), []string{"note AppExport shop/invoices: metadata.name: no app shop/invoices runs here; correct the name, or start the app [export-of-nothing]"}},
		"an export of another cluster's app": {export("ledger", `{cluster: east}`), []string{
			"note AppExport shop/ledger: metadata.name: no app shop/ledger runs here, and cluster east exports one; start the app here, or delete the object [export-of-nothing]"}},
		"a misspelt importer": {export("orders", `{cluster: esat}`), []string{`warning AppExport shop/orders: spec.allow[0].cluster: no Cluster object has the name "esat"; did you mean "east"? [unknown-cluster]`}},
		"an export to its own namespace": {export("orders", `{cluster: west, namespace: shop}, {cluster: local, namespace: shop}`), []string{
			"note AppExport shop/orders: spec.allow[0]: is for callers of the app's own namespace in this cluster, which need none; leave it out, or name the caller's cluster [export-to-itself]",
			"note AppExport shop/orders: spec.allow[1]: is for callers of the app's own namespace in this cluster, which need none; "}},
		"an export to another namespace": {export("orders", `{cluster: local, namespace: finance}`), nil},
		"an app of another namespace that does not consent": {strings.Replace(selection(`{app: orders, namespace: shop}`), "namespace: shop, name: checkout", "namespace: finance, name: report", 1), []string{
			"warning AppEndpoints finance/report: spec.endpoints[0].app: shop/orders is of another namespace and does not consent, so its guard refuses finance/report where it enforces; " +
				"add {cluster: local, namespace: finance, app: report} to spec.allow of AppExport shop/orders [no-consent]"}},
		"an export to nobody": {export("orders", ``), []string{
			"note AppExport shop/orders: spec.allow: is empty, so no caller may have the app; name who may call it, or delete the object [export-to-nobody]"}},
		"a misspelt caller": {export("orders", `{cluster: east, namespace: shop, app: chekout}`), []string{
			"warning AppExport shop/orders: spec.allow[0].app: no app shop/chekout is known here; did you mean shop/checkout? [unknown-caller]"}},
		"a misspelt caller of any namespace": {export("orders", `{cluster: east, app: chekout}`), []string{
			"warning AppExport shop/orders: spec.allow[0].app: no app chekout is known here; did you mean shop/checkout? [unknown-caller]"}},
		"a caller that only the other cluster runs":                {export("orders", `{cluster: east, app: warehouse}`), nil},
		"a caller that runs here in another namespace":             {export("orders", `{cluster: east, namespace: shop, app: billing}`), nil},
		"an entry that another covers":                             {export("orders", `{cluster: east, app: checkout}, {cluster: east}`), []string{"note AppExport shop/orders: spec.allow[0]: allows nobody whom spec.allow[1] doesn't allow; leave one of the two out [covered]"}},
		"the same twice":                                           {export("orders", `{cluster: east}, {cluster: east}`), []string{"note AppExport shop/orders: spec.allow[1]: allows nobody whom spec.allow[0] doesn't allow; leave one of the two out [covered]"}},
		"a gateway that is the service's own":                      {strings.Replace(clusters, "203.0.113.7:15443", "10.9.9.9:7400", 1), []string{"warning Cluster east: spec.gateways: 10.9.9.9:7400 is a listener of this cluster's own resolver service; name the gateway of east [own-listener]"}},
		"the own cluster's object, as all clusters have it in Git": {strings.NewReplacer("203.0.113.7:15443", "10.9.9.9:7400", "name: east", "name: west").Replace(clusters), nil},
	} {
		t.Run(what, func(t *testing.T) {
			tried := decode(t, test.object)
			var finish func() []Finding
			service := Service{
				Listens: func(a netip.AddrPort) bool { return a == netip.MustParseAddrPort("10.9.9.9:7400") },
				Absent:  func(cluster string) string { return map[string]string{"asia": "hub introduces asia"}[cluster] },
			}
			if err := g.Inspect(topology.ObjectChange{Put: tried}, func(facts topology.Facts) {
				finish = Run(facts, service, slices.Values(tried))
			}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range finish() {
				level := "note "
				if f.Warning {
					level = "warning "
				}
				if f.Source.File != "f.yaml" || f.Source.Line == 0 {
					t.Errorf("%s is at %s:%d", f.Check, f.Source.File, f.Source.Line)
				}
				got = append(got, level+f.String())
			}
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// Which entry covers which is by definition a question of each pair.
func TestAnEntryIsCoveredByOneThatAllowsAllOfIt(t *testing.T) {
	anyone := func(pattern string) bool { return pattern == "" || pattern == "*" }
	covers := func(wide, narrow string) bool { return anyone(wide) || wide == narrow }
	all := func(wide, narrow catalog.Allow) bool {
		return covers(wide.Cluster, narrow.Cluster) && covers(wide.Namespace, narrow.Namespace) && covers(wide.App, narrow.App)
	}
	r := rand.New(rand.NewPCG(1, 2))
	patterns := []string{"", "*", "a", "b"}
	pick := func() string { return patterns[r.IntN(len(patterns))] }
	for range 1000 {
		var entries []catalog.Allow
		for range 1 + r.IntN(6) {
			entries = append(entries, catalog.Allow{Cluster: pick(), Namespace: pick(), App: pick()})
		}
		first := placesOf(entries)
		for i, narrow := range entries {
			want := slices.IndexFunc(entries, func(wide catalog.Allow) bool { return all(wide, narrow) && !all(narrow, wide) })
			if equal := slices.IndexFunc(entries[:i], func(wide catalog.Allow) bool { return all(wide, narrow) && all(narrow, wide) }); equal >= 0 && (want < 0 || equal < want) {
				want = equal
			}
			if got := first.covering(narrow, i); got != want {
				t.Fatalf("%v: entry %d is covered by %d, want %d", entries, i, got, want)
			}
		}
	}
}

// A cluster with many apps gets many objects before what they name: no finding takes long.
func BenchmarkNamesThatNobodyHas(b *testing.B) {
	names := &appNames{}
	for i := range 100_000 {
		names.apps = append(names.apps, catalog.App{Namespace: fmt.Sprintf("ns-%d", i%20), ID: fmt.Sprintf("app-%05d", i)})
	}
	for i := 0; b.Loop(); i++ {
		names.nearest(catalog.App{Namespace: "ns-3", ID: fmt.Sprintf("unknown-%d", i%2000)})
	}
}
