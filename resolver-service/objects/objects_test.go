package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// service is a server over a real store, and the topology that follows it.
type service struct {
	*Server
	t     *testing.T
	store *embedded.Store
}

func background(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// newService makes a service; write says whether it may write its store.
func newService(t *testing.T, domain catalog.Domain, write bool) *service {
	t.Helper()
	store, err := embedded.Open(filepath.Join(t.TempDir(), "isthmus.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	top := topology.New(topology.Config{Cluster: "west", Domain: domain, Open: true}, quiet)
	background(t, top.Run)
	feed := NewFeed(store, top, quiet)
	background(t, feed.Run)
	if _, err := top.Ready().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var writer configstore.Writer
	if write {
		writer = store
	}
	return &service{NewServer(Config{Cluster: "west", Domain: domain, Store: "embedded"}, writer, feed, top, quiet), t, store}
}

func selection(caller string, callees ...string) string {
	var endpoints []string
	for _, callee := range callees {
		endpoints = append(endpoints, fmt.Sprintf(`{"app":%q}`, callee))
	}
	return fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppEndpoints","metadata":{"namespace":"shop","name":%q},"spec":{"endpoints":[%s]}}`,
		caller, strings.Join(endpoints, ","))
}

const east = `{"apiVersion":"isthmus.dev/v1alpha1","kind":"Cluster","metadata":{"name":"east"},"spec":{"gateways":[{"address":"203.0.113.7:15443"}]}}`

func (s *service) apply(dryRun bool, objects ...string) (*v1alpha1.ApplyResponse, error) {
	req := &v1alpha1.ApplyRequest{DryRun: dryRun}
	for _, o := range objects {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: []byte(o)})
	}
	return s.Apply(s.t.Context(), req)
}

func (s *service) mustApply(objects ...string) *v1alpha1.ApplyResponse {
	s.t.Helper()
	answer, err := s.apply(false, objects...)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

// results are the results of a write, such as "checkout created".
func results(a *v1alpha1.ApplyResponse) string {
	var all []string
	for _, r := range a.GetResults() {
		all = append(all, r.GetKey().GetName()+" "+r.GetResult())
	}
	return strings.Join(all, ", ")
}

func effects(a *v1alpha1.ApplyResponse) string {
	var all []string
	for _, e := range a.GetEffects() {
		all = append(all, fmt.Sprintf("%s>%s %s>%s", e.GetCaller().GetId(), e.GetApp().GetId(), e.GetBefore().GetOutcome(), e.GetAfter().GetOutcome()))
	}
	return strings.Join(all, ", ")
}

func (s *service) outcome(caller, callee string) string {
	d := s.topology.Resolve(catalog.App{Namespace: "shop", ID: caller}, catalog.App{Namespace: "shop", ID: callee})
	return d.Outcome.String()
}

func TestAnAnswerComesOnceLookupsFollow(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	for i := range 100 {
		callee := fmt.Sprintf("orders-%d", i)
		answer := s.mustApply(selection("checkout", callee))
		if got := s.outcome("checkout", callee); got != "unavailable" {
			t.Fatalf("after the answer a lookup of a selected app is %s", got)
		}
		if got := s.outcome("checkout", "other"); got != "denied" {
			t.Fatalf("after the answer a lookup of an app that is not selected is %s", got)
		}
		if answer.GetRevision() == 0 || answer.GetResults()[0].GetRevision() == "" {
			t.Fatalf("answer without revisions: %v", answer)
		}
		_, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: "AppEndpoints", Namespace: "shop", Name: "checkout"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.outcome("checkout", callee); got != "not found" {
			t.Fatalf("after the deletion a lookup is %s", got)
		}
	}
}

func TestAnApplySaysWhatBecameOfEachObject(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	for _, step := range []struct {
		objects []string
		want    string
	}{
		{[]string{selection("checkout", "orders"), east}, "checkout created, east created"},
		{[]string{selection("checkout", "orders"), east}, "checkout unchanged, east unchanged"},
		{[]string{selection("checkout", "orders", "ledger"), east, selection("cart")}, "checkout changed, east unchanged, cart created"},
	} {
		if got := results(s.mustApply(step.objects...)); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}

// An object that spells a default out is written, and changes nothing.
func TestAnObjectThatSpellsADefaultOut(t *testing.T) {
	object := func(kind, metadata, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":%q,"metadata":{%s},"spec":{%s}}`, kind, metadata, spec)
	}
	endpoints := func(spec string) string { return object("AppEndpoints", `"namespace":"shop","name":"checkout"`, spec) }
	export := func(allow string) string {
		return object("AppExport", `"namespace":"shop","name":"orders"`, `"allow":[`+allow+"]")
	}
	cluster := func(spec string) string { return object("Cluster", `"name":"east"`, spec) }
	for what, c := range map[string]struct{ short, spelled, want string }{
		"namespace":       {endpoints(`"endpoints":[{"app":"a"}]`), endpoints(`"endpoints":[{"app":"a","namespace":"shop"}]`), "unchanged"},
		"weight":          {endpoints(`"endpoints":[{"app":"a","routes":[{"cluster":"local"}]}]`), endpoints(`"endpoints":[{"app":"a","routes":[{"cluster":"local","weight":1,"priority":0}]}]`), "unchanged"},
		"whenStale":       {endpoints(`"endpoints":[{"app":"a"}]`), endpoints(`"endpoints":[{"app":"a","whenStale":"withdraw"}]`), "unchanged"},
		"the own cluster": {endpoints(`"endpoints":[{"app":"a","routes":[{"cluster":"local"}]}]`), endpoints(`"endpoints":[{"app":"a","routes":[{"cluster":"west"}]}]`), "unchanged in effect"},
		"locality":        {endpoints(`"endpoints":[{"app":"a"}]`), endpoints(`"endpoints":[{"app":"a","locality":"none"}]`), "unchanged in effect"},
		"other locality":  {endpoints(`"endpoints":[{"app":"a"}]`), endpoints(`"endpoints":[{"app":"a","locality":"prefer"}]`), "changed"},
		"any cluster":     {export(`{"namespace":"shop"}`), export(`{"cluster":"*","namespace":"shop","app":"*"}`), "unchanged in effect"},
		"some cluster":    {export(`{"namespace":"shop"}`), export(`{"cluster":"east","namespace":"shop"}`), "changed"},
		"staleAfter":      {cluster(`"gateways":[{"address":"192.0.2.1"}]`), cluster(`"gateways":[{"address":"192.0.2.1:15443"}],"staleAfter":"10s","rampUp":"10s"`), "unchanged"},
		"appDomain":       {cluster(`"trust":{"domain":"east.example"}`), cluster(`"trust":{"domain":"east.example","appDomain":"east.example"}`), "unchanged in effect"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newService(t, catalog.DefaultDomain, true)
			s.mustApply(c.short)
			for _, want := range []string{c.want, "unchanged"} {
				if got := s.mustApply(c.spelled).GetResults()[0].GetResult(); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
		})
	}
}

func TestADryRunSaysWhatWouldChangeAndChangesNothing(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(selection("checkout", "orders"))
	answer, err := s.apply(true, selection("checkout", "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	if results(answer) != "checkout changed" || effects(answer) != "checkout>ledger denied>unavailable, checkout>orders unavailable>denied" || answer.GetRevision() != 0 {
		t.Errorf("answer %s; %s; revision %d", results(answer), effects(answer), answer.GetRevision())
	}
	if got := s.outcome("checkout", "orders"); got != "unavailable" {
		t.Errorf("a dry run has changed a lookup to %s", got)
	}
	del := &v1alpha1.DeleteRequest{DryRun: true, Keys: []*v1alpha1.ObjectKey{{Kind: "AppEndpoints", Namespace: "shop", Name: "checkout"}}}
	if answer, err = s.Delete(t.Context(), del); err != nil || results(answer) != "checkout deleted" {
		t.Errorf("answer %s, %v", results(answer), err)
	}
	if _, err := s.store.Get(t.Context(), catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}); err != nil {
		t.Errorf("a dry run has deleted an object: %v", err)
	}
}

func TestAnApplyIsAllOrNothing(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	_, err := s.apply(false, selection("checkout", "orders"), selection("cart", "bad.app"), `{"kind":"Nothing"}`, `not json`)
	text := fmt.Sprint(err)
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("code %s", status.Code(err))
	}
	for _, want := range []string{"isthmus/v1alpha1/AppEndpoints/shop/cart:1:", "spec.endpoints[0].app", `object 3 of 4: unknown kind "Nothing"`, "object 4 of 4: not an object as JSON"} {
		if !strings.Contains(text, want) {
			t.Errorf("error without %q: %s", want, text)
		}
	}
	if got := s.outcome("checkout", "orders"); got != "not found" {
		t.Errorf("half of it was written: %s", got)
	}
}

func TestWhoWritesOverAnothersChangeIsTold(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	first := s.mustApply(selection("checkout", "orders")).GetResults()[0].GetRevision()
	write := func(object, revision string) error {
		_, err := s.Apply(t.Context(), &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: []byte(object), IfRevision: revision}}})
		return err
	}
	if err := write(selection("checkout", "ledger"), first); err != nil {
		t.Errorf("at the revision that stands: %v", err)
	}
	if err := write(selection("checkout", "cart"), first); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "get it again") {
		t.Errorf("at an old revision: %v", err)
	}
	if err := write(selection("checkout", "cart"), configstore.Absent); status.Code(err) != codes.Aborted {
		t.Errorf("as a new object: %v", err)
	}
	if err := write(selection("cart", "orders"), configstore.Absent); err != nil {
		t.Errorf("as a new object that is new: %v", err)
	}
}

func TestDeletingIsAllOrNothing(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(selection("checkout", "orders"))
	key := func(name string) *v1alpha1.ObjectKey {
		return &v1alpha1.ObjectKey{Kind: "AppEndpoints", Namespace: "shop", Name: name}
	}
	for what, c := range map[string]struct {
		keys []*v1alpha1.ObjectKey
		want codes.Code
	}{
		"one that is not there": {[]*v1alpha1.ObjectKey{key("checkout"), key("missing")}, codes.NotFound},
		"the same one twice":    {[]*v1alpha1.ObjectKey{key("checkout"), key("checkout")}, codes.InvalidArgument},
		"a key that can't be":   {[]*v1alpha1.ObjectKey{key("checkout"), key("Nope")}, codes.InvalidArgument},
	} {
		if _, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: c.keys}); status.Code(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
		if got := s.outcome("checkout", "orders"); got != "unavailable" {
			t.Errorf("%s: deleted all the same", what)
		}
	}
}

func TestObjectsAreListedByKindAndNamespace(t *testing.T) {
	for _, write := range []bool{true, false} {
		s := newService(t, catalog.DefaultDomain, write)
		writer := *s.Server
		writer.store = s.store
		for _, o := range []string{selection("checkout"), selection("cart"), east, strings.ReplaceAll(selection("pay"), `"shop"`, `"finance"`)} {
			if _, err := writer.Apply(t.Context(), &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: []byte(o)}}}); err != nil {
				t.Fatal(err)
			}
		}
		for want, key := range map[string]*v1alpha1.ObjectKey{
			"pay cart checkout east": {},
			"cart checkout":          {Namespace: "shop"},
			"pay cart checkout":      {Kind: "AppEndpoints"},
			"pay":                    {Kind: "AppEndpoints", Namespace: "finance"},
			"east":                   {Kind: "Cluster", Name: "east"},
			"":                       {Kind: "AppExport"},
		} {
			answer, err := s.Get(t.Context(), &v1alpha1.GetRequest{Key: key})
			var names []string
			for _, o := range answer.GetObjects() {
				names = append(names, o.GetKey().GetName())
				if len(o.GetJson()) == 0 || o.GetRevision() == "" {
					t.Errorf("object without content or revision: %v", o)
				}
			}
			if err != nil || strings.Join(names, " ") != want {
				t.Errorf("%v: %v, want %s (%v)", key, names, want, err)
			}
		}
		if _, err := s.Get(t.Context(), &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: "Cluster", Name: "north"}}); status.Code(err) != codes.NotFound {
			t.Errorf("one that is not there: %v", err)
		}
	}
}

func TestAStoreThatIsOnlyReadSaysSo(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, false)
	if _, err := s.apply(false, east); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "this service only reads it") {
		t.Errorf("got %v", err)
	}
}

func TestAHostNameThatSNICantCarryIsRefused(t *testing.T) {
	long := catalog.Domain(strings.Repeat("abcdefghi.", 12) + "abcdef") // as long as a domain may be
	s := newService(t, long, true)
	name, namespace := strings.Repeat("a", 58), strings.Repeat("n", 63)
	exported := fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppExport","metadata":{"namespace":%q,"name":%q},"spec":{"allow":[]}}`, namespace, name)
	if _, err := s.apply(true, exported); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "DNS and SNI carry at most 253") {
		t.Errorf("an export: %v", err)
	}
	selects := func(routes string) string {
		return fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppEndpoints","metadata":{"namespace":"shop","name":"checkout"},"spec":{"endpoints":[{"app":%q,"namespace":%q%s}]}}`, name, namespace, routes)
	}
	if _, err := s.apply(true, selects(`,"routes":[{"cluster":"east"}]`)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "spec.endpoints[0]") {
		t.Errorf("a route to a cluster: %v", err)
	}
	if _, err := s.apply(true, selects(`,"routes":[{"cluster":"local"}]`)); err != nil {
		t.Errorf("a route that needs no host name: %v", err)
	}
	if _, err := s.apply(true, selects("")); err != nil {
		t.Errorf("no cluster that it could lead to: %v", err)
	}
	s.mustApply(east)
	if _, err := s.apply(true, selects("")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("any cluster, and there is one: %v", err)
	}
}
