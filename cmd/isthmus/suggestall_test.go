package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Whoever has the certificate of an app may tell of calls that it never made. They open no guard here,
// and lead to no file outside of the folder.
func TestACallersOwnWordOpensNoGuardHere(t *testing.T) {
	app := func(namespace, id string) catalog.App { return catalog.App{Namespace: namespace, ID: id} }
	seen := &seenCalls{own: "west", edges: map[seenCall]bool{}, unseen: map[catalog.App]string{app("shop", "stock"): "its sidecar is Dapr's own"}}
	say := func(caller, callee catalog.App, cluster string) {
		seen.addTraffic(&v1alpha1.TrafficEdge{Caller: wire.App(caller), CallerCluster: "west", Callee: wire.App(callee), Cluster: cluster})
	}
	mallory, checkout := app("shop", "mallory"), app("shop", "checkout")
	say(mallory, app("shop", "payments"), "west")
	say(mallory, app("finance", "ledger"), "west")
	say(mallory, app("../../etc", "passwd"), "west")
	if l := leastOf(seen, nil); len(l.objects)+len(l.adds) > 0 {
		t.Errorf("nobody but the caller says so, and %v is suggested: %q", l.objects, l.adds)
	}
	// What a guard sees, what none could see, and what another cluster is asked for.
	seen.addCall(&v1alpha1.Call{Callee: wire.App(app("shop", "payments")), Caller: "shop/checkout", Cluster: "local", LetIn: 1, LastUnixMs: time.Now().UnixMilli()}, 0)
	say(checkout, app("shop", "stock"), "west")
	say(checkout, app("shop", "orders"), "east")
	l := leastOf(seen, nil)
	if len(l.objects) != 1 || l.objects[0].Key().Name != "checkout" || len(l.objects[0].(*catalog.AppEndpoints).Endpoints) != 3 {
		t.Errorf("%v is suggested: %q", l.objects, l.adds)
	}
	if text := strings.Join(l.adds, "; "); !strings.Contains(text, "shop/checkout calls shop/orders in east") || strings.Contains(text, "mallory") {
		t.Errorf("what is added: %q", text)
	}
}

// Whom a guard refused is not let in for having tried, whatever its own sidecar tells.
func TestWhoWasRefusedIsNotSuggested(t *testing.T) {
	seen := &seenCalls{own: "west", edges: map[seenCall]bool{}, unseen: map[catalog.App]string{}}
	payments := &v1alpha1.App{Namespace: "shop", Id: "payments"}
	for _, cluster := range []string{"west", "east"} {
		mallory := catalog.App{Namespace: "shop", ID: "mallory"}
		seen.addTraffic(&v1alpha1.TrafficEdge{Caller: wire.App(mallory), CallerCluster: cluster, Callee: payments, Cluster: "west", ByCallee: true})
		seen.addCall(&v1alpha1.Call{Callee: payments, Caller: "shop/mallory", Cluster: strings.Replace(cluster, "west", "local", 1), Refused: 9, LastUnixMs: time.Now().UnixMilli()}, 0)
	}
	if l := leastOf(seen, nil); len(l.objects)+len(l.adds) > 0 {
		t.Errorf("the guard has refused it, and %v is suggested: %q", l.objects, l.adds)
	}
}

// What is cut off is cut off once the objects are applied: an export that nobody uses lets nobody in.
func TestAnExportThatNobodyUsesIsWrittenEmpty(t *testing.T) {
	seen := &seenCalls{own: "west", edges: map[seenCall]bool{}, unseen: map[catalog.App]string{}}
	export := &catalog.AppExport{App: catalog.App{Namespace: "shop", ID: "orders"}, Allow: []catalog.Allow{{Cluster: "east"}}}
	l := leastOf(seen, []catalog.Object{export})
	if len(l.objects) != 1 || len(l.objects[0].(*catalog.AppExport).Allow) != 0 || len(l.cuts) != 1 {
		t.Fatalf("%v is suggested, and cuts off %q", l.objects, l.cuts)
	}
	if l := leastOf(seen, l.objects); len(l.cuts) != 0 {
		t.Errorf("once that is applied, it still cuts off %q", l.cuts)
	}
}

// One object that apply refuses would keep all others of its folder from being applied. What no object
// can hold, as a sidecar may make up or an app-id be, is named instead.
func TestWhatIsSuggestedCanBeApplied(t *testing.T) {
	app := func(namespace, id string) catalog.App { return catalog.App{Namespace: namespace, ID: id} }
	seen := &seenCalls{own: "west", edges: map[seenCall]bool{}, unseen: map[catalog.App]string{}}
	say := func(caller, callee catalog.App, cluster string) {
		seen.addTraffic(&v1alpha1.TrafficEdge{Caller: wire.App(caller), CallerCluster: "west", Callee: wire.App(callee), Cluster: cluster})
	}
	for i := range 101 {
		say(app("shop", "mallory"), app("shop", "orders"), fmt.Sprint("east-", i))
	}
	say(app("shop", "trudy"), app("shop", "Orders_v2"), "east")
	for _, caller := range []string{"shop/Check_out", "shop/cart"} {
		seen.addCall(&v1alpha1.Call{Callee: wire.App(app("finance", "ledger")), Caller: caller, Cluster: "local", LetIn: 1, LastUnixMs: time.Now().UnixMilli()}, 0)
	}
	l := leastOf(seen, nil)
	for _, o := range l.objects {
		if _, errs := api.DecodeYAML("", api.EncodeYAML(o)); len(errs) > 0 {
			t.Errorf("%s: %v", o.Key(), errs)
		}
	}
	if len(l.objects) != 2 { // of shop/cart, and the export of the ledger to it
		t.Errorf("%d objects are suggested: %v", len(l.objects), l.objects)
	}
	if text := strings.Join(l.left, "\n"); !strings.Contains(text, "AppEndpoints shop/mallory") || !strings.Contains(text, "AppEndpoints shop/trudy") || !strings.Contains(text, "shop/Check_out of west calls finance/ledger") {
		t.Errorf("what is left out: %s", text)
	}
}

// A service that has just begun knows of no call before. What was called until then is not needless.
func TestCallsThatAreNotKnownAreNamed(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	m := &v1alpha1.TrafficResponse{FromUnixMs: now.Add(-time.Hour).UnixMilli(), ToUnixMs: now.UnixMilli(), WholeFromUnixMs: now.Add(-time.Minute).UnixMilli()}
	if said := unknownCalls(m, time.Hour); !strings.Contains(said, "only calls since "+now.Add(-time.Minute).UTC().Format("2006-01-02 15:04:05 UTC")) {
		t.Errorf("of an hour a minute is known, and it says %q", said)
	}
	if said := unknownCalls(m, time.Minute); said != "" {
		t.Errorf("all of a minute is known, and it says %q", said)
	}
}

// An app was called before another got its name. It can't have an endpoint beside that one.
func TestAFormerNameIsLeftOut(t *testing.T) {
	app := func(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }
	seen := &seenCalls{own: "west", edges: map[seenCall]bool{}, unseen: map[catalog.App]string{}}
	for _, id := range []string{"orders", "orders-v2"} {
		seen.add(seenCall{app("checkout"), app(id), "west", "west"}, true)
	}
	standing := &catalog.AppEndpoints{App: app("checkout"), Endpoints: []catalog.Endpoint{{App: app("orders-v2"), As: "orders"}}}
	l := leastOf(seen, []catalog.Object{standing})
	if len(l.objects) != 1 || len(l.objects[0].(*catalog.AppEndpoints).Endpoints) != 1 || strings.Join(l.left, "\n") != "shop/checkout called shop/orders before its name meant shop/orders-v2" {
		t.Errorf("%v is suggested, without %q", l.objects, l.left)
	}
}
