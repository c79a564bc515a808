package resolverservice

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

func TestChecksFindSidecarsThatLackAPeersRoot(t *testing.T) {
	westCA, eastCA := identitytest.NewCA(t, identitytest.LongLived), identitytest.NewCA(t, identitytest.LongLived)
	west, east := start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", eastCA), eastCA)
	knows := func(name string, at *running, ca *identitytest.CA) string {
		return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {gateways: [{address: '%s'}], staleAfter: 1m, trust: {roots: %q}}\n", name, at.Addr("gateway"), ca.PEM())
	}
	east.sidecar(orders, listening(t))
	west.sidecar(checkout, listening(t))
	east.apply(export("west") + "---\n" + knows("west", west, westCA))
	west.apply(knows("east", east, eastCA) + "---\n" + selectsOrders)
	west.finds() // a sidecar that does not say what it trusts
	watches := func(at *running, app catalog.App, roots ...*identitytest.CA) (leave func()) {
		var text []byte
		for _, ca := range roots {
			text = append(text, ca.PEM()...)
		}
		ctx, leave := context.WithCancel(t.Context())
		stream, err := v1alpha1.NewResolverClient(at.connect(app)).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hello := &v1alpha1.Hello{App: wireApp(app), TrustAnchors: identity.Fingerprints(text)}
		if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}}); err != nil {
			t.Fatal(err)
		}
		return leave
	}
	watches(west, checkout, westCA, eastCA)
	watches(east, orders, westCA, eastCA)
	west.finds()
	east.finds()
	leave := watches(west, checkout, westCA)
	watches(east, orders, eastCA)
	watches(west, catalog.App{Namespace: "shop", ID: "alone"}, westCA) // calls nobody there
	west.finds("sidecar-roots fail shop/checkout")
	west.faulty("1 of 3 sidecars of shop/checkout trust no root of cluster east; add its roots to the trust anchors of Dapr's sidecars here, and restart these")
	east.finds("sidecar-roots fail shop/orders")
	leave()
	west.finds()
	west.faulty("")
}

// faulty compares what is said of the calls of checkout to orders by the route to east.
func (r *running) faulty(want string) {
	r.t.Helper()
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		d, err := v1alpha1.NewResolverClient(r.connect(identity.CLIApp(identity.SystemNamespace))).Resolve(r.t.Context(),
			&v1alpha1.ResolveRequest{Caller: wireApp(checkout), App: wireApp(orders)})
		if err != nil {
			r.t.Fatal(err)
		}
		got = ""
		for _, route := range d.GetRoutes() {
			got += route.GetFault()
		}
		if got == want {
			return
		}
	}
	r.t.Errorf("the fault is %q, want %q", got, want)
}
