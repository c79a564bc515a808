package system

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// guested is west, and a guest, anna, which dials it. Nobody invited the guest: both have one root, and
// the objects that the test writes. So the guest may do what no laptop's command would.
type guested struct {
	*mesh
	guest *sandbox.Cluster
}

func withGuest(t *testing.T) *guested {
	t.Helper()
	needsBinaries(t)
	s, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	g := &guested{mesh: &mesh{Sandbox: s}}
	t.Cleanup(func() {
		if err := g.close(); err != nil {
			t.Error(err)
		}
	})
	if g.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		to      **sandbox.Cluster
		gateway string
	}{"west": {&g.west, ""}, "anna": {&g.guest, sandbox.NoGateway}} {
		if *c.to, err = s.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{Name: name, Authority: g.authority, Gateway: c.gateway}); err != nil {
			t.Fatal(err)
		}
	}
	g.apply(t, g.guest, meshtest.Cluster("west", g.west.Gateway)+"  tunnel: dial\n")
	return g
}

// takes is the object of the guest with these takes, until a moment.
func (g *guested) takes(until time.Time, apps string, takes ...string) string {
	text := fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: anna}\nspec:\n  tunnel: accept\n  guest:\n    until: %q\n    apps: [%s]\n    takes:\n", until.UTC().Format(time.RFC3339), apps)
	for _, take := range takes {
		text += "    - {" + take + "}\n"
	}
	return text
}

// callingWith is a call over HTTP with a header.
func callingWith(from *sandbox.Sidecar, id string, header http.Header) call {
	header = header.Clone()
	header["Traceparent"] = untraced["Traceparent"]
	return func(ctx context.Context) (string, error) {
		reply, err := from.Invoke(ctx, id, "hello?takes="+takes(), header)
		if err != nil {
			return "", err
		}
		return reply.Instance, nil
	}
}

// proxyingWith is a call proxied over gRPC with metadata.
func proxyingWith(conn *grpc.ClientConn, id, value string) call {
	return func(ctx context.Context) (string, error) {
		reply, err := sandbox.Proxy(ctx, conn, id, map[string]string{"takes": takes(), "x-dev": value})
		if err != nil {
			return "", err
		}
		return reply.Instance, nil
	}
}

// A guest gets the calls that it takes, and no other: by a caller and by a header, over HTTP and gRPC,
// under load. Its app, and then the whole guest, is killed, and no call that may be repeated is lost.
func TestAGuestGetsWhatItTakesAndNothingElse(t *testing.T) {
	t.Parallel()
	g := withGuest(t)
	app := func(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }
	g.apply(t, g.west,
		selection("shop", "checkout", "app: orders", "app: quotes", "app: ledger", "app: payments, routes: [{cluster: local}, {cluster: anna}]"),
		selection("shop", "checkout-dev", "app: orders", "app: ledger"), selection("shop", "orders", "app: payments", "app: audit"))
	// The guest offers more than it may run, to everybody.
	g.apply(t, g.guest, selection("shop", "orders", "app: payments", "app: audit", "app: vault"), selection("shop", "thief", "app: audit"),
		export("shop", "orders", "west"), export("shop", "quotes", "west"), export("shop", "ledger", "west"), export("shop", "payments", "west"))
	for _, id := range []string{"orders", "ledger", "payments", "audit", "vault"} {
		g.app(t, g.west, "shop", id)
	}
	g.sidecar(t, g.west, sandbox.SidecarOptions{App: app("quotes"), GRPC: true})
	orders := g.app(t, g.guest, "shop", "orders")
	g.app(t, g.guest, "shop", "ledger")
	g.app(t, g.guest, "shop", "payments")
	thief := g.app(t, g.guest, "shop", "thief")
	g.sidecar(t, g.guest, sandbox.SidecarOptions{App: app("quotes"), GRPC: true})
	checkout, dev := g.app(t, g.west, "shop", "checkout"), g.app(t, g.west, "shop", "checkout-dev")
	conn, err := checkout.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })

	object := g.takes(time.Now().Add(time.Hour), "shop/orders, shop/quotes",
		"app: shop/orders, caller: shop/checkout-dev", "app: shop/orders, header: {name: X-Dev, value: anna}", "app: shop/quotes, header: {name: x-dev, value: anna}")
	dry, errs, err := g.isthmus(t, g.west, object, "apply", "--dry-run", "-f", "-")
	for _, want := range []string{"shop/checkout-dev", "guest anna takes all calls", "guest anna takes x-dev: anna"} {
		if err != nil || !strings.Contains(dry, want) {
			t.Errorf("a dry run lacks %q: %v\n%s%s", want, err, dry, errs)
		}
	}
	g.apply(t, g.west, object)
	anna, other := http.Header{"X-Dev": {"anna"}}, http.Header{"X-Dev": {"ben"}}
	loads := map[string]*load{
		"with the header":            startLoad(t, "with the header", callingWith(checkout, "orders", anna)),
		"of the caller":              startLoad(t, "of the caller", calling(dev, "orders")),
		"with another value":         startLoad(t, "with another value", callingWith(checkout, "orders", other)),
		"without a header":           startLoad(t, "without a header", calling(checkout, "orders")),
		"of another app":             startLoad(t, "of another app", callingWith(dev, "ledger", anna)),
		"by a route":                 startLoad(t, "by a route", callingWith(checkout, "payments", anna)),
		"proxied with another value": startLoad(t, "proxied with another value", proxyingWith(conn, "quotes", "ben")),
	}
	proxied := startLoad(t, "proxied with the header", proxyingWith(conn, "quotes", "anna"))
	taken := []*load{loads["with the header"], loads["of the caller"]}
	all := func(want string, more ...*load) {
		t.Helper()
		for _, l := range append(more, taken...) {
			l.anew()
			l.answersFrom(want)
		}
	}
	all("anna", proxied)

	said, _, _ := g.isthmus(t, g.west, "", "explain", "--from", "shop/checkout", "orders", "--header", "x-dev:anna")
	for _, want := range []string{"anna, a guest until", "takes calls with x-dev: anna", "takes the call if the guest can't"} {
		if !strings.Contains(said, want) {
			t.Errorf("explain lacks %q:\n%s", want, said)
		}
	}
	if said, _, _ = g.isthmus(t, g.west, "", "explain", "--from", "shop/checkout", "orders"); !strings.Contains(said, "calls with x-dev: anna go to anna") || !strings.Contains(said, "west has 1 ready") {
		t.Errorf("explain without the header:\n%s", said)
	}
	if said, _, _ = g.isthmus(t, g.west, "", "explain", "--from", "shop/checkout", "payments"); !strings.Contains(said, "is a guest, which gets the calls that it takes and no other") {
		t.Errorf("explain of a route to a guest:\n%s", said)
	}
	// What orders may call in west, its instance with the guest may, and nothing else of the guest may.
	answers(t, orders, "audit", "west")
	for from, id := range map[*sandbox.Sidecar]string{orders: "vault", thief: "audit"} {
		if reply, err := from.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", untraced); err == nil {
			t.Errorf("%s of the guest has called %s: %+v", from.App, id, reply)
		}
	}
	if d, _, err := g.isthmus(t, g.west, "", "explain", "--from", "anna:shop/orders", "audit"); err != nil || !strings.Contains(d, "Cluster anna, spec.guest") {
		t.Errorf("explain for the guest's app: %v\n%s", err, d)
	}

	if err := orders.Kill(); err != nil {
		t.Fatal(err)
	}
	all("west")
	g.app(t, g.guest, "shop", "orders")
	all("anna")
	if err := g.guest.Service.Kill(); err != nil { // and the tunnel with it
		t.Fatal(err)
	}
	all("west")
	if err := g.guest.Service.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	all("anna")
	// Its time ends: its object counts as not there.
	g.apply(t, g.west, g.takes(time.Now().Add(2*time.Second), "shop/orders", "app: shop/orders, caller: shop/checkout-dev", "app: shop/orders, header: {name: x-dev, value: anna}"))
	all("west")

	proxied.end() // its calls are not repeated, for they may not be safe to repeat
	for _, l := range loads {
		l.noneFailed()
		if n := l.answeredBy("anna"); n > 0 && l != taken[0] && l != taken[1] {
			t.Errorf("%s: %d calls reached the guest", l.what, n)
		}
	}
	for _, l := range append(taken, proxied) {
		if n := l.answeredBy("anna"); n == 0 {
			t.Errorf("%s: no call reached the guest", l.what)
		}
	}
}
