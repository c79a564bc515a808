package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func network(name string) *catalog.Cluster {
	return &catalog.Cluster{Name: "east", Network: name, StaleAfter: 10 * time.Second, RampUp: catalog.DefaultRampUp}
}

func TestADiffIsOfWhatIsHeldAndWhatWillBe(t *testing.T) {
	key := network("a").Key()
	held := api.EncodeJSON(network("a"))
	for _, c := range []struct {
		what   string
		result *v1alpha1.ApplyResult
		want   string
	}{
		{"changed", &v1alpha1.ApplyResult{Result: "changed", Revision: "7", Held: held},
			"--- Cluster east, revision 7\n+++ Cluster east, changed\n@@ -2,4 +2,4 @@\n kind: Cluster\n metadata: {name: east}\n spec:\n-  network: a\n+  network: b\n"},
		{"unchanged", &v1alpha1.ApplyResult{Result: "unchanged", Revision: "7", Held: api.EncodeJSON(network("b"))}, ""},
		{"created", &v1alpha1.ApplyResult{Result: "created"},
			"--- /dev/null\n+++ Cluster east, created\n@@ -0,0 +1,5 @@\n+apiVersion: isthmus.dev/v1alpha1\n+kind: Cluster\n+metadata: {name: east}\n+spec:\n+  network: b\n"},
		{"in the place of what can't be used", &v1alpha1.ApplyResult{Result: "changed", Unusable: "bad\nworse"},
			"--- Cluster east, which can't be used: bad; worse\n+++ Cluster east, changed\n@@ -0,0 +1,5 @@\n+apiVersion: isthmus.dev/v1alpha1\n+kind: Cluster\n+metadata: {name: east}\n+spec:\n+  network: b\n"},
	} {
		c.result.Key = &v1alpha1.ObjectKey{Kind: "Cluster", Name: "east"}
		answer := &v1alpha1.ApplyResponse{Results: []*v1alpha1.ApplyResult{c.result}}
		if err := AddDiffs(answer, []catalog.Object{network("b")}); err != nil || c.result.GetDiff() != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.what, err, c.result.GetDiff(), c.want)
		}
	}
	if got := Diff(key, Side{network("a"), "revision 7"}, Side{}); !strings.HasPrefix(got, "--- Cluster east, revision 7\n+++ /dev/null\n") {
		t.Errorf("deleted:\n%s", got)
	}
}

func TestADiffIsNotMadeOfAnAnswerThatDoesNotSayWhatIsHeld(t *testing.T) {
	for what, answer := range map[string]*v1alpha1.ApplyResponse{
		"no result": {},
		"no object": {Results: []*v1alpha1.ApplyResult{{Result: "changed", Revision: "7"}}},
		"nonsense":  {Results: []*v1alpha1.ApplyResult{{Result: "changed", Revision: "7", Held: []byte("{}")}}},
	} {
		if err := AddDiffs(answer, []catalog.Object{network("b")}); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	text := Diff(network("").Key(), Side{network("a"), "x"}, Side{network("b"), "y"})
	var plain, coloured bytes.Buffer
	if writeDiff(&plain, text, false) != nil || writeDiff(&coloured, text, true) != nil {
		t.Fatal("not written")
	}
	if plain.String() != text {
		t.Errorf("without colours:\n%s", plain.String())
	}
	for _, want := range []string{"\x1b[1m--- Cluster east, x\x1b[0m\n", "\x1b[36m@@", "\x1b[31m-  network: a\x1b[0m\n", "\x1b[32m+  network: b\x1b[0m\n", "\n spec:\n"} {
		if !strings.Contains(coloured.String(), want) {
			t.Errorf("no %q in\n%q", want, coloured.String())
		}
	}
	if Colours(&plain) {
		t.Error("a buffer is taken for a terminal")
	}
}

func TestAChangeInFewWords(t *testing.T) {
	app := func(id string, routes ...catalog.RouteSpec) catalog.Endpoint {
		return catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: id}, Routes: routes}
	}
	selects := func(endpoints ...catalog.Endpoint) catalog.Object {
		return &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: "checkout"}, Endpoints: endpoints}
	}
	exports := func(clusters ...string) catalog.Object {
		e := &catalog.AppExport{App: catalog.App{Namespace: "shop", ID: "orders"}}
		for _, c := range clusters {
			e.Allow = append(e.Allow, catalog.Allow{Cluster: c})
		}
		return e
	}
	finance := catalog.Endpoint{App: catalog.App{Namespace: "finance", ID: "pay"}}
	for want, c := range map[string][2]catalog.Object{
		"+finance/pay, ~cart, -orders": {selects(app("orders"), app("cart")), selects(app("cart", catalog.RouteSpec{Cluster: "east", Weight: 1}), finance)},
		"the order":                    {selects(app("a"), app("b")), selects(app("b"), app("a"))},
		"nothing":                      {selects(app("a")), selects(app("a"))},
		"+west:*/*, -east:*/*":         {exports("east"), exports("west")},
		"~network":                     {network("a"), network("b")},
		"+gateway g:1, -network":       {network("a"), &catalog.Cluster{Name: "east", Gateways: []string{"g:1"}, StaleAfter: 10 * time.Second, RampUp: catalog.DefaultRampUp}},
		"+check, ~address, -zone":      {&catalog.AppInstance{App: "a", Address: vm().Address, Zone: "b"}, &catalog.AppInstance{App: "a", Check: vm().Check}},
		"~rampUp, ~trust.roots":        {&catalog.Cluster{Trust: catalog.Trust{Roots: "a"}}, &catalog.Cluster{RampUp: time.Second, Trust: catalog.Trust{Roots: "b"}}},
		"+a, +b, +c, +d and 1 more":    {selects(), selects(app("a"), app("b"), app("c"), app("d"), app("e"))},
	} {
		if got := changeOf(c[0], c[1]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestVersionsThatCanNotBeUsedAreShown(t *testing.T) {
	key := network("a").Key()
	answer := &v1alpha1.HistoryResponse{Versions: []*v1alpha1.PastObject{
		{Revision: "4", Json: api.EncodeJSON(network("b")), AtUnixMs: 1_000_000_000_000},
		{Revision: "3", Unusable: "bad\nworse"},
		{Revision: "2", Json: api.EncodeJSON(network("a"))},
	}}
	if err := Compared(answer, key); err != nil {
		t.Fatal(err)
	}
	var table, text strings.Builder
	if History(&table, Table, key, answer.GetVersions()) != nil || History(&text, YAML, key, answer.GetVersions()) != nil {
		t.Fatal("not written")
	}
	for _, want := range []string{"mended\n", "3          unknown", "can't be used: bad; worse\n", "the oldest that is known\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if want := "# revision 4, 2001-09-09T01:46:40Z, mended\napiVersion: "; !strings.HasPrefix(text.String(), want) || !strings.Contains(text.String(), "---\n# revision 3, can't be used: bad; worse\n---\n# revision 2, the oldest") {
		t.Errorf("as YAML:\n%s", text.String())
	}
}
