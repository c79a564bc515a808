package system

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// TestAnAppCallsAnotherByANameOfItsOwn has checkout call orders and quotes, and get apps of another
// name, namespace and cluster. An app that has the name itself gets none of the calls.
func TestAnAppCallsAnotherByANameOfItsOwn(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	caller := catalog.App{Namespace: "named", ID: "checkout"}
	target := func(id string) catalog.App { return catalog.App{Namespace: "next", ID: id} }
	allow := "west, namespace: named"
	m.apply(t, m.east, export("next", "orders-v2", allow), export("next", "quotes-v2", allow))
	const quotes = "app: quotes-v2, namespace: next, as: quotes, routes: [{cluster: east}]"
	m.apply(t, m.west, selection("named", "checkout", "app: orders-v2, namespace: next, as: orders, routes: [{cluster: east}]", quotes))
	m.app(t, m.west, "named", "orders") // which is not meant
	m.sidecar(t, m.east, sandbox.SidecarOptions{App: target("orders-v2"), Guard: true})
	m.sidecar(t, m.east, sandbox.SidecarOptions{App: target("quotes-v2"), GRPC: true})
	m.app(t, m.west, "named", "orders-v3")
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{App: caller})
	proxy := dial(t, checkout)

	var reply *sandbox.Reply
	call := func(user string) (err error) {
		header := untraced.Clone()
		header.Set("X-User", user)
		reply, err = checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", http.Header(header))
		return err
	}
	at := func(app string) error {
		if got := reply.Namespace + "/" + reply.App + " in " + reply.Cluster; got != app {
			return fmt.Errorf("%s answers, want %s", got, app)
		}
		return nil
	}
	meshtest.Eventually(t, meshtest.Patience, func() error { return call("anna") })
	if err := at("next/orders-v2 in east"); err != nil {
		t.Fatal(err)
	}
	if err := told(reply, nil, withoutID(truth(caller, "orders-v2", "west"))); err != nil {
		t.Errorf("by HTTP: %v", err)
	}
	for _, stream := range []bool{false, true} {
		var got *sandbox.Reply
		meshtest.Eventually(t, meshtest.Patience, func() (err error) {
			got, err = proxied(meshtest.Within(t, meshtest.Attempt), proxy, metadata.MD{}, stream)
			return err
		})
		if err := told(got, nil, withoutID(truth(caller, "quotes-v2", "west"))); err != nil || got.App != "quotes-v2" || got.Cluster != "east" {
			t.Errorf("by gRPC that is proxied, stream %t: %+v, %v", stream, got, err)
		}
	}
	// By its own name the app is in no selection.
	if _, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders-v2.next", "hello", nil); err == nil || !strings.Contains(err.Error(), "the caller calls next/orders-v2 as named/orders") {
		t.Errorf("by its own name: %v", err)
	}

	trace, traceparent := newTrace(true)
	if _, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", http.Header{"Traceparent": {traceparent}}); err != nil {
		t.Fatal(err)
	}
	named := false
	for _, s := range m.completeTrace(t, trace, "west", "east") {
		for _, e := range s.Events {
			named = named || e.Name == "isthmus.endpoint" && e.Attributes["isthmus.app"] == "next/orders-v2"
		}
	}
	if !named {
		t.Error("no span says which app it was")
	}
	d, err := m.explain(t, m.west, "named/checkout", "orders")
	if want := "named/orders is the caller's name for next/orders-v2, which certificates, the guard and traces go by"; err != nil || len(d.Notes) == 0 || d.Notes[0] != want || d.Cluster != "east" {
		t.Errorf("isthmus explain: %+v, %v, want %s", d, err, want)
	}

	if out, errs, err := m.isthmus(t, m.west, "", "explain", "--probe", "--from", "named/checkout", "orders"); !strings.Contains(out, "connected") { // by its own name a call was refused
		t.Errorf("isthmus explain --probe: %v\n%s%s", err, out, errs)
	}

	// The name leads to another app, with calls that stay together, and no call fails meanwhile.
	m.apply(t, m.west, selection("named", "checkout", "app: orders-v3, as: orders, hash: {header: x-user}", quotes))
	for i := 0; ; i++ {
		if err := call(fmt.Sprint("user-", i)); err != nil {
			t.Fatalf("call %d while the name is given to another app: %v", i, err)
		}
		if at("named/orders-v3 in west") == nil {
			break
		}
		if err := at("next/orders-v2 in east"); err != nil {
			t.Fatal(err)
		}
	}
	m.apply(t, m.west, selection("named", "checkout", "app: orders", quotes))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if err := call("anna"); err != nil {
			t.Fatalf("while the app of that name takes it back: %v", err)
		}
		return at("named/orders in west")
	})
	// Two apps of one name are refused by name, and what stands goes on.
	err = m.tryApply(t, m.west, selection("named", "checkout", "app: orders", "app: orders-v3, as: orders"))
	if err == nil || !strings.Contains(err.Error(), "named/orders is the app of spec.endpoints[0], so this name would mean two apps") {
		t.Errorf("a name for two apps: %v", err)
	}
}
