package main

import (
	"strings"
	"testing"
	"time"

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
