package smimcs

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// documents reads a file in which there are only documents of other standards.
func documents(t testing.TB, text string) (all []*Document) {
	t.Helper()
	_, errs := api.DecodeFile("f.yaml", []byte(text), func(root *strict.Node) bool {
		d := Decode("f.yaml", root)
		if d != nil {
			all = append(all, d)
		}
		return d != nil
	})
	if err := errs.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// put is a set with the documents of a file, and the clusters east and north.
func put(t testing.TB, text string) *Set {
	t.Helper()
	s := NewSet()
	s.Cluster("east", true)
	s.Cluster("north", true)
	for _, d := range documents(t, text) {
		s.Put(d)
	}
	return s
}

// said is what a set derives for an app: its selection, its export, and what is wrong.
func said(s *Set, id string) string {
	var b strings.Builder
	app := catalog.App{Namespace: "shop", ID: id}
	if o, ok := s.Derive(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: id}).(*catalog.AppEndpoints); ok {
		b.WriteString("calls")
		for _, e := range o.Endpoints {
			b.WriteString(" " + e.App.Within("shop"))
			for _, r := range e.Routes {
				fmt.Fprintf(&b, " %s=%d", r.Cluster, r.Weight)
			}
		}
		b.WriteString("\n")
	}
	if o, ok := s.Derive(catalog.Key{Kind: catalog.KindAppExport, Namespace: app.Namespace, Name: app.ID}).(*catalog.AppExport); ok {
		b.WriteString("lets in")
		for _, a := range o.Allow {
			b.WriteString(" " + a.String())
		}
		b.WriteString("\n")
	}
	for _, p := range s.Problems() {
		b.WriteString(p.Err.Error() + "\n")
	}
	return strings.TrimSpace(b.String())
}

func target(name, to, from, more string) string {
	return fmt.Sprintf("apiVersion: access.smi-spec.io/v1alpha3\nkind: TrafficTarget\nmetadata: {name: %s, namespace: shop%s}\nspec:\n"+
		"  destination: {kind: ServiceAccount, name: %s}\n  sources: [{kind: ServiceAccount, name: %s}]\n---\n", name, more, to, from)
}

func split(name, version, backends string) string {
	return fmt.Sprintf("apiVersion: split.smi-spec.io/%s\nkind: TrafficSplit\nmetadata: {name: %s, namespace: shop}\nspec:\n  service: orders\n  backends: [%s]\n---\n", version, name, backends)
}

const (
	exported = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: orders, namespace: shop}\n---\n"
	imported = "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\nmetadata: {name: orders, namespace: shop%s}\nspec: {type: ClusterSetIP, ips: [10.0.0.7], ports: [{port: 80}]}\n---\n"
	callers  = ", annotations: {isthmus.dev/callers: \"checkout, cart\"}"
	ignoring = ", annotations: {isthmus.dev/ignore-rules: \"true\"}"
	half     = "{service: orders, weight: 1}, {service: orders-east, weight: 1}"
)

func TestWhatIsDerived(t *testing.T) {
	rules := "  rules: [{kind: HTTPRouteGroup, name: read, matches: [get]}]\n---\n"
	ruled := func(more string) string {
		return strings.Replace(target("a", "orders", "checkout", more), "---\n", rules, 1)
	}
	for name, c := range map[string]struct{ text, app, want string }{
		"a target":             {target("a", "orders", "checkout", ""), "checkout", "calls orders"},
		"and not for others":   {target("a", "orders", "checkout", ""), "cart", ""},
		"no export by itself":  {target("a", "orders", "checkout", ""), "orders", ""},
		"two targets":          {target("a", "orders", "checkout", "") + target("b", "ledger", "checkout", ""), "checkout", "calls ledger orders"},
		"the same twice":       {target("a", "orders", "checkout", "") + target("b", "orders", "checkout", ""), "checkout", "calls orders"},
		"itself":               {target("a", "checkout", "checkout", ""), "checkout", "calls"},
		"of another namespace": {target("a", "orders", "checkout, namespace: web", ""), "orders", ""},

		"a destination in another namespace": {target("a", "orders, namespace: bank", "checkout", ""), "checkout",
			"calls\nf.yaml:5:16: spec.destination: bank/orders is not in the namespace of TrafficTarget shop/a; write the TrafficTarget in the namespace of its destination"},
		"rules": {ruled(""), "checkout",
			"calls\nf.yaml:7:11: spec.rules[0]: HTTPRouteGroup read has no equivalent, and without it the sources could call more than was meant; " +
				"limit calls by the access control of Dapr's Configuration, then annotate isthmus.dev/ignore-rules: \"true\""},
		"rules that Dapr holds": {ruled(ignoring), "checkout", "calls orders"},
		"v1alpha1": {"apiVersion: access.smi-spec.io/v1alpha1\nkind: TrafficTarget\nmetadata: {name: a, namespace: shop}\ndestination: {kind: ServiceAccount, name: orders}\n" +
			"sources: [{kind: ServiceAccount, name: checkout, namespace: shop}]\n", "checkout", "calls orders"},
		"a port": {strings.Replace(target("a", "orders, port: 80", "checkout", ""), "v1alpha3", "v1alpha2", 1), "checkout",
			"calls\nf.yaml:5:59: spec.destination.port: a port has no equivalent, and without it the sources could call more than was meant; " +
				"limit calls by the access control of Dapr's Configuration, then annotate isthmus.dev/ignore-rules: \"true\""},
		"an account for other apps":   {target("a", "orders", "default", ", annotations: {isthmus.dev/apps: \"default=checkout, default=cart\"}"), "cart", "calls orders"},
		"which is then no app itself": {target("a", "orders", "default", ", annotations: {isthmus.dev/apps: \"default=checkout\"}"), "default", ""},
		"no pair":                     {target("a", "orders", "checkout", ", annotations: {isthmus.dev/apps: checkout}"), "checkout", "calls\nf.yaml:3:51: metadata.annotations.isthmus.dev/apps: \"checkout\" is no pair; write serviceaccount=app-id, with commas between pairs"},
		"a mistake":                   {strings.Replace(target("a", "orders", "checkout", ""), "sources", "source", 1), "checkout", "f.yaml:5:3: spec.sources: is missing; name the ServiceAccounts of the callers\nf.yaml:6:3: spec.source: unknown field; did you mean \"sources\"?"},
		"a later version":             {strings.Replace(target("a", "orders", "checkout", ""), "v1alpha3", "v1alpha4", 1), "checkout", "f.yaml:1:13: apiVersion: \"access.smi-spec.io/v1alpha4\" is not read; write one of v1alpha3, v1alpha2, v1alpha1"},

		"weights":             {target("a", "orders", "checkout", "") + split("s", "v1alpha4", "{service: orders, weight: 90}, {service: orders-east, weight: 10}"), "checkout", "calls orders local=90 east=10"},
		"quantities":          {target("a", "orders", "checkout", "") + split("s", "v1alpha1", "{service: orders, weight: 1}, {service: orders-east, weight: 500m}"), "checkout", "calls orders local=2 east=1"},
		"no quantities later": {split("s", "v1alpha2", "{service: orders, weight: 500m}"), "checkout", "f.yaml:6:40: spec.backends[0].weight: \"500m\" is no weight; write a whole number such as 50"},
		"large weights":       {target("a", "orders", "checkout", "") + split("s", "v1alpha4", "{service: orders, weight: 30000}, {service: orders-east, weight: 20000}"), "checkout", "calls orders local=3 east=2"},
		"weights too fine":    {split("s", "v1alpha4", "{service: orders, weight: 30001}, {service: orders-east, weight: 20000}"), "checkout", "f.yaml:6:13: spec.backends: weights take shares finer than 1 in 10000; write rounder weights"},
		"another app": {target("a", "orders", "checkout", "") + split("s", "v1alpha4", "{service: orders, weight: 1}, {service: cart, weight: 1}"), "checkout",
			"calls orders\nf.yaml:13:54: spec.backends[1].service: \"cart\" is another app, and daprd refuses a callee with another app-id than it called; name orders, which is the app in this cluster, or orders-<cluster>"},
		"no cluster": {target("a", "orders", "checkout", "") + split("s", "v1alpha4", "{service: orders-v1, weight: 1}, {service: orders-east, weight: 1}"), "checkout",
			"calls orders\nf.yaml:8:1: TrafficSplit shop/s: no Cluster object names the cluster of backend orders-v1, so the split is not used; add the Cluster; orders-v1 can't be another app, since daprd refuses a callee with another app-id than it called"},
		"two splits": {target("a", "orders", "checkout", "") + split("s", "v1alpha4", half) + split("u", "v1alpha4", half), "checkout",
			"calls orders\nf.yaml:8:1: TrafficSplit shop/s splits the same app as TrafficSplit shop/u (f.yaml:15), so neither is used; delete one\n" +
				"f.yaml:15:1: TrafficSplit shop/u splits the same app as TrafficSplit shop/s (f.yaml:8), so neither is used; delete one"},
		"matches": {target("a", "orders", "checkout", "") + strings.Replace(split("s", "v1alpha4", half), "  backends", "  matches: [{kind: HTTPRouteGroup, name: firefox}]\n  backends", 1), "checkout",
			"calls orders\nf.yaml:13:13: spec.matches[0]: HTTPRouteGroup firefox has no equivalent: Isthmus does not look into calls; leave matches out to split all calls"},
		"a split of what nobody calls": {split("s", "v1alpha4", half), "checkout",
			"f.yaml:1:1: TrafficSplit shop/s has no effect: no TrafficTarget and no ServiceImport with callers leads to shop/orders; write one, or give an AppEndpoints these routes"},
		"a backend twice": {split("s", "v1alpha4", "{service: orders, weight: 1}, {service: orders, weight: 1}"), "checkout", "f.yaml:6:54: spec.backends[1].service: \"orders\" is there twice; keep one of them"},

		"an export":               {exported, "orders", "lets in *:*/*"},
		"an export with a target": {exported + target("a", "orders", "checkout", ""), "orders", "lets in *:shop/checkout"},
		"an export with a refused target": {exported + ruled(""), "orders",
			"lets in\nf.yaml:11:11: spec.rules[0]: HTTPRouteGroup read has no equivalent, and without it the sources could call more than was meant; " +
				"limit calls by the access control of Dapr's Configuration, then annotate isthmus.dev/ignore-rules: \"true\""},
		"an import":                          {fmt.Sprintf(imported, callers), "cart", "calls orders"},
		"an import without callers":          {fmt.Sprintf(imported, ""), "cart", ""},
		"an import with weights":             {fmt.Sprintf(imported, callers) + split("s", "v1alpha4", half), "cart", "calls orders local=1 east=1"},
		"an import does not limit an export": {fmt.Sprintf(imported, callers) + exported, "orders", "lets in *:*/*"},
		"an app-id that no name can have":    {strings.Replace(exported, "orders", "Orders", 1), "Orders", "f.yaml:3:18: metadata.name: app-id \"Orders\" has 'O' at position 1; Isthmus puts it into DNS names, which have lower-case letters, digits and hyphens only; name an app that other clusters can call"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(put(t, c.text), c.app); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestAnEarlierVersionStandsWhileANewOneIsRefused(t *testing.T) {
	good := target("a", "orders", "checkout", "") + exported
	s := put(t, good)
	bad := documents(t, strings.Replace(target("a", "ledger", "checkout", ""), "---\n", "  rules: [{kind: TCPRoute, name: all}]\n", 1))[0]
	s.Put(bad)
	if got := said(s, "checkout"); !strings.HasPrefix(got, "calls orders\nf.yaml:7:11: spec.rules[0]: TCPRoute all") {
		t.Errorf("while it is refused: %s", got)
	}
	s.Put(documents(t, target("a", "ledger", "checkout", ""))[0])
	if got := said(s, "checkout"); got != "calls ledger" {
		t.Errorf("mended: %s", got)
	}
	s.Delete(bad.ID)
	if got := said(s, "checkout") + said(s, "orders"); got != "lets in *:*/*" {
		t.Errorf("deleted: %s", got)
	}
}

func TestADocumentThatIsThereTwiceLetsNobodyIn(t *testing.T) {
	twice := documents(t, target("a", "orders", "checkout", "")+target("a", "orders", "cart", ""))
	s := NewSet()
	s.Put(Doubled(twice[0], twice[1]))
	for _, id := range []string{"checkout", "cart"} {
		if got := said(s, id); got != "calls\nf.yaml:8:1: TrafficTarget shop/a is there twice, first in line 1; neither is taken; keep one of them" {
			t.Errorf("%s: %s", id, got)
		}
	}
}

func TestAClusterMakesASplitUsable(t *testing.T) {
	s := put(t, target("a", "orders", "checkout", "")+split("s", "v1alpha4", half))
	want := catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}
	if touched := s.Cluster("east", false); !slices.Contains(touched, want) || s.Cluster("east", false) != nil || s.Cluster("south", true) != nil {
		t.Errorf("touched %v", touched)
	}
	if got := said(s, "checkout"); !strings.HasPrefix(got, "calls orders\nf.yaml:8:1: TrafficSplit shop/s: no Cluster") {
		t.Errorf("without it: %s", got)
	}
	s.Cluster("east", true)
	if got := said(s, "checkout"); got != "calls orders local=1 east=1" {
		t.Errorf("with it: %s", got)
	}
}

// TestChangesTouchWhatDerivesFromThem makes random changes, derives only what they touch, and
// compares that with a set that is made afresh.
func TestChangesTouchWhatDerivesFromThem(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	ids := []string{"checkout", "cart", "orders", "ledger"}
	pick := func() string { return ids[random.IntN(len(ids))] }
	s, derived := NewSet(), map[catalog.Key]catalog.Object{}
	clusters := map[string]bool{}
	for round := range 3000 {
		var touched []catalog.Key
		name := fmt.Sprint("n", random.IntN(6))
		switch random.IntN(7) {
		case 0:
			clusters["east"] = !clusters["east"]
			touched = s.Cluster("east", clusters["east"])
		case 1, 2:
			touched = s.Put(documents(t, target(name, pick(), pick(), ""))[0])
		case 3:
			touched = s.Put(documents(t, strings.ReplaceAll(split(name, "v1alpha4", half), "orders", pick()))[0])
		case 4:
			touched = s.Put(documents(t, strings.ReplaceAll(exported, "orders", pick()))[0])
		case 5:
			touched = s.Put(documents(t, strings.ReplaceAll(fmt.Sprintf(imported, callers), "orders", pick()))[0])
		default:
			for id := range s.docs {
				touched = s.Delete(id)
				break
			}
		}
		for _, key := range touched {
			derived[key] = s.Derive(key)
		}
		fresh := NewSet()
		fresh.Cluster("east", clusters["east"])
		for _, d := range s.docs {
			fresh.Put(d)
		}
		for _, kind := range []catalog.Kind{catalog.KindAppEndpoints, catalog.KindAppExport} {
			for _, id := range ids {
				key := catalog.Key{Kind: kind, Namespace: "shop", Name: id}
				if want := fresh.Derive(key); !reflect.DeepEqual(derived[key], want) && !(derived[key] == nil && want == nil) {
					t.Fatalf("round %d: %s is %+v, want %+v", round, key, derived[key], want)
				}
			}
		}
		if got, want := fmt.Sprint(errorsOf(s)), fmt.Sprint(errorsOf(fresh)); got != want {
			t.Fatalf("round %d: problems\n%s\nwant\n%s", round, got, want)
		}
	}
}

func errorsOf(s *Set) (all []string) {
	for _, p := range s.Problems() {
		all = append(all, p.Err.Error())
	}
	return all
}

func TestDocumentsWithoutAMeaningAreNoted(t *testing.T) {
	group := "apiVersion: specs.smi-spec.io/v1alpha4\nkind: HTTPRouteGroup\nmetadata: {name: read, namespace: shop}\nspec: {anything: 1}\n"
	d := documents(t, group)[0]
	if got := fmt.Sprint(d.Notes, d.Err); got != "[HTTPRouteGroup shop/read has no equivalent and is ignored] <nil>" {
		t.Error(got)
	}
	s := NewSet()
	if touched := s.Put(d); len(touched) > 0 || len(s.docs) > 0 {
		t.Errorf("touched %v", touched)
	}
}

func TestJSONOfAnAPIServer(t *testing.T) {
	d := DecodeJSON("traffictargets shop/a", []byte(`{"apiVersion":"access.smi-spec.io/v1alpha3","kind":"TrafficTarget","metadata":{"name":"a","namespace":"shop","uid":"7","managedFields":[{}]},`+
		`"spec":{"destination":{"kind":"ServiceAccount","name":"orders"},"sources":[{"kind":"User","name":"checkout"}],"rules":[]},"status":{}}`))
	if want := `traffictargets shop/a: spec.sources[0].kind: "User" is not known; write ServiceAccount`; d.String() != "TrafficTarget shop/a" || d.Err == nil || d.Err.Error() != want {
		t.Errorf("%s: %v, want %s", d, d.Err, want)
	}
	for _, text := range []string{"{", `[]`, `{"apiVersion":"v1","kind":"Pod"}`} {
		if DecodeJSON("x", []byte(text)) != nil {
			t.Errorf("%s is a document", text)
		}
	}
}

func TestStandardsAreChecked(t *testing.T) {
	if err := CheckStandards("translate", []string{"smi", "mcs"}); err != nil {
		t.Error(err)
	}
	if err := CheckStandards("translate", []string{"smi", "gamma"}); err == nil || err.Error() != `translate[1]: "gamma" is not known; write smi or mcs` {
		t.Error(err)
	}
}

// FuzzDecode holds that whatever is read gives objects that Isthmus takes as its own.
func FuzzDecode(f *testing.F) {
	f.Add(target("a", "orders", "checkout", ignoring) + exported)
	f.Add(split("s", "v1alpha1", half) + fmt.Sprintf(imported, callers))
	f.Add(`{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport","metadata":{"namespace":"shop","name":"orders"}}`)
	f.Add("apiVersion: access.smi-spec.io/v1alpha1\nkind: TrafficTarget\nmetadata: {name: a, namespace: shop}\nspecs: [{kind: a}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := NewSet()
		s.AnyCluster = true
		_, _ = api.DecodeFile("f.yaml", []byte(text), func(root *strict.Node) bool {
			d := Decode("f.yaml", root)
			if d == nil {
				return false
			}
			for _, key := range s.Put(d) {
				object := s.Derive(key)
				if object == nil {
					continue
				}
				if _, err := api.DecodeJSON(api.KeyPath(key), api.EncodeJSON(object)); err != nil {
					t.Errorf("%s is no object: %v", key, err)
				}
			}
			return true
		})
		_ = s.Problems()
		if d := DecodeJSON("x", []byte(text)); d != nil {
			s.Put(d)
		}
	})
}

// BenchmarkOneOfTenThousand changes one document of 10,000, and derives what it touches.
func BenchmarkOneOfTenThousand(b *testing.B) {
	s := NewSet()
	var text strings.Builder
	for n := range 10_000 {
		text.WriteString(target(fmt.Sprint("n", n), fmt.Sprint("callee", n%100), fmt.Sprint("caller", n/10), ""))
	}
	all := documents(b, text.String())
	for _, d := range all {
		s.Put(d)
	}
	b.ResetTimer()
	for n := range b.N {
		for _, key := range s.Put(all[n%len(all)]) {
			s.Derive(key)
		}
	}
}

// TestAChangeCostsWhatDerivesFromIt counts the documents that are looked at when one of many callers
// of one app comes to a set, and a cluster.
func TestAChangeCostsWhatDerivesFromIt(t *testing.T) {
	cost := func(callers int) int {
		s := NewSet()
		target := func(i int) *Document {
			return documents(t, fmt.Sprintf("apiVersion: access.smi-spec.io/v1alpha3\nkind: TrafficTarget\nmetadata: {namespace: shop, name: t%d}\nspec:\n"+
				"  destination: {kind: ServiceAccount, name: orders}\n  sources: [{kind: ServiceAccount, name: c%d}]\n", i, i))[0]
		}
		for i := range callers {
			s.Put(target(i))
		}
		s.looks = 0
		s.Cluster("east", true)
		for _, key := range s.Put(target(callers)) {
			if key.Kind == catalog.KindAppEndpoints {
				s.Derive(key)
			}
		}
		return s.looks
	}
	if few, many := cost(10), cost(1000); many > few {
		t.Errorf("%d documents are looked at beside 1,000 callers, and %d beside 10; want the same", many, few)
	}
}
