package kubernetes

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var (
	eastKey     = catalog.Key{Kind: catalog.KindCluster, Name: "east"}
	checkoutKey = catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}
)

// apply applies YAML as kubectl does.
func (c *cluster) apply(t testing.TB, text string) {
	t.Helper()
	if out, err := c.Run(text, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// read reads a resource.
func (c *cluster) read(t testing.TB, key catalog.Key) item {
	t.Helper()
	body, err := c.admin.Call(t.Context(), apiserver.Request{Method: http.MethodGet, Path: objectPath(key)})
	if err != nil {
		t.Fatal(err)
	}
	i, err := resourceOf(key.Kind).parse(body)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func (c *cluster) awaitCondition(t testing.TB, key catalog.Key, status string) condition {
	t.Helper()
	var got condition
	serverstest.Await(t, key.String()+" with Accepted "+status, func() bool {
		i := c.read(t, key)
		got, _ = verdict{item: i}.has()
		return got.Status == status && got.ObservedGeneration == i.meta.Generation
	})
	return got
}

// follow watches a store until the test ends, and waits for the full set.
func follow(t testing.TB, s *Store) *storetest.Reader {
	t.Helper()
	r := storetest.Watch(t, storetest.Closing(t, s), "")
	serverstest.Await(t, "the full set", func() bool { return len(r.All()) > 0 })
	return r
}

const badEast = `{apiVersion: isthmus.dev/v1alpha1, kind: Cluster, metadata: {name: east}, spec: {netwrk: a}}`

func TestStatusSaysWhichFieldAndWhy(t *testing.T) {
	c := lax(t)
	c.wipe(t)
	follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	c.apply(t, badEast)
	bad := c.awaitCondition(t, eastKey, "False")
	if bad.Reason != reasonInvalid || !strings.Contains(bad.Message, `spec.netwrk: unknown field; did you mean "network"?`) || strings.Contains(bad.Message, "isthmus.dev") {
		t.Errorf("condition %+v; want the field, why, and not the object's own name", bad)
	}
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a, netwrk: null}"))
	good := c.awaitCondition(t, eastKey, "True")
	if good.Reason != reasonAccepted || good.LastTransitionTime == "" {
		t.Errorf("condition %+v; want it accepted", good)
	}
}

func TestStatusIsWrittenOnceAndIsNoChange(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	first := follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	second := follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a}"))
	c.awaitCondition(t, eastKey, "True")
	c.apply(t, apitest.Object("Cluster", "{name: west}", "{network: a}")) // what comes after it shows that east came no second time
	serverstest.Await(t, "Cluster west", func() bool { return heard(first, "west") == 1 && heard(second, "west") == 1 })
	version := c.read(t, eastKey).meta.ResourceVersion
	third := follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	serverstest.Await(t, "Cluster east with a third service", func() bool { return heard(third, "east") == 1 })
	c.awaitCondition(t, catalog.Key{Kind: catalog.KindCluster, Name: "west"}, "True")
	time.Sleep(10 * statusPause) // for what must not come there is nothing to wait for
	if now := c.read(t, eastKey).meta.ResourceVersion; now != version {
		t.Errorf("Cluster east is at resourceVersion %s, was %s; want that its status is written once", now, version)
	}
	for i, w := range []*storetest.Reader{first, second} {
		if n := heard(w, "east"); n != 1 {
			t.Errorf("service %d was told %d times of Cluster east; want once: a status is no change", i, n)
		}
	}
}

// heard is how often a Watch was told of an object.
func heard(w *storetest.Reader, name string) int {
	n := 0
	for _, c := range w.All() {
		for _, o := range c.Objects {
			if o.Object.Key().Name == name {
				n++
			}
		}
	}
	return n
}

func TestConditionsOfOthersStay(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a}"))
	theirs := `{"status":{"conditions":[{"type":"Audited","status":"True","reason":"Fine","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if err := c.Kubectl("patch", "cluster.isthmus.dev", "east", "--subresource=status", "--type=merge", "-p", theirs); err != nil {
		t.Fatal(err)
	}
	follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	c.awaitCondition(t, eastKey, "True")
	if all := c.read(t, eastKey).conditions; len(all) != 2 {
		t.Errorf("conditions %+v; want Accepted, and Audited as it was", all)
	}
}

// TestNoPermissionForStatuses holds that one warning is said, and that all goes on.
func TestNoPermissionForStatuses(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	var log logged.Buffer
	s, err := Open(c.config(t, "reader"), configstore.Scope{}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w := follow(t, s)
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a}"))
	serverstest.Await(t, "a warning", func() bool { return strings.Contains(log.String(), "statuses can't be written") })
	c.apply(t, apitest.Object("Cluster", "{name: west}", "{network: a}"))
	serverstest.Await(t, "Cluster west", func() bool { return heard(w, "west") == 1 })
	text := log.String()
	if n := strings.Count(text, "level=WARN"); n != 1 || !strings.Contains(text, `verb \"patch\" on clusters/status.isthmus.dev`) {
		t.Errorf("logged %d warnings:\n%s\nwant one, with the permission that is missing", n, text)
	}
}

// TestNewestVerdictFirst holds the order in which many statuses are written.
func TestNewestVerdictFirst(t *testing.T) {
	p := newReporter(nil, slog.New(slog.DiscardHandler))
	report := func(name string, generation int64, conditions ...condition) {
		i := item{key: catalog.Key{Kind: catalog.KindCluster, Name: name}, meta: meta{Name: name, UID: name, Generation: generation}, conditions: conditions}
		p.report(i, nil)
	}
	report("a", 1)
	report("b", 1)
	report("done", 2, verdict{item: item{meta: meta{Generation: 2}}}.wanted())
	for generation := range int64(1000) {
		report("a", 2+generation)
	}
	p.inbox.Look(func(all *verdicts) {
		if len(all.pending) != 2 {
			t.Errorf("%d verdicts of two objects; want that they do not pile up", len(all.pending))
		}
	})
	var got []string
	for {
		v, ok := p.next()
		if !ok {
			break
		}
		got = append(got, v.item.key.Name)
	}
	if text := strings.Join(got, " "); text != "a b" {
		t.Errorf("written in the order %q; want the newest first, each once, and none that stands there already", text)
	}
}

func TestTheColumnsThatKubectlShows(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	c.makeNamespaces(t, "shop")
	follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	c.apply(t, apitest.Object("Cluster", "{name: east}", `{network: net-1, gateways: [{address: "gw.east.example:15443"}, {address: gw2}]}`)+"---\n"+apitest.Selection("  - app: orders\n"))
	c.awaitCondition(t, eastKey, "True")
	c.awaitCondition(t, checkoutKey, "True")
	for args, want := range map[string][]string{
		"get icl":         {"NAME NETWORK GUEST UNTIL GATEWAY ACCEPTED REASON AGE", "east net-1 gw.east.example:15443 True Accepted"},
		"get aep -n shop": {"NAME ACCEPTED REASON AGE", "checkout True Accepted"},
		"get isthmus -A":  {"appendpoints.isthmus.dev/checkout", "cluster.isthmus.dev/east"},
		"explain aep.spec.endpoints.routes.weight": {"The share within one priority, 0 to 10000; 1 by default."},
	} {
		out, err := c.Run("", strings.Fields(args)...)
		flat := strings.Join(strings.Fields(out), " ")
		for _, w := range want {
			if err != nil || !strings.Contains(flat, w) {
				t.Errorf("kubectl %s (%v) shows\n%s\nwant %q", args, err, out, w)
			}
		}
	}
}

// FuzzParse holds that no resource, however odd, gets past the decoder's rules or makes the
// store fail.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"Cluster","metadata":{"name":"east","uid":"a","generation":1,"resourceVersion":"7"},"spec":{"network":"a"},"status":{"conditions":[{"type":"Accepted"}]}}`))
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":null,"status":7}`))
	f.Add([]byte(`{"metadata":{"name":"a\"b"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, r := range kindsByName() {
			i, err := r.parse(raw)
			if err != nil {
				continue
			}
			objects, refused := decode([]item{i})
			if len(objects)+len(refused) != 1 {
				t.Fatalf("%d objects and %d refusals of one resource", len(objects), len(refused))
			}
			for _, o := range objects {
				if _, err := api.DecodeJSON(api.KeyPath(o.Object.Key()), api.EncodeJSON(o.Object)); err != nil || o.Object.Key() != i.key {
					t.Errorf("%s came in as %s: %v", i.key, o.Object.Key(), err)
				}
			}
			if v := (verdict{item: i}); !json.Valid([]byte(`"` + v.wanted().Status + `"`)) {
				t.Error("no status")
			}
		}
	})
}
