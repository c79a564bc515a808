package system

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Another process of the machine reaches the port of a bridge. Without a certificate it calls no actor.
func TestNobodySpeaksForABridge(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	before := m.carts.calls.Load()
	for _, b := range []*sandbox.Bridge{m.bridge, m.eastBridge} {
		conn, err := grpc.NewClient("passthrough:///"+b.Internal, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		plain, err := grpc.NewClient("passthrough:///"+b.Internal, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		for what, by := range map[string]*grpc.ClientConn{"TLS without a certificate": conn, "plain text": plain} {
			ctx := metadata.AppendToOutgoingContext(meshtest.Within(t, meshtest.Attempt), "isthmus-actor-caller", "shop/checkout")
			var answer []byte
			err := by.Invoke(ctx, "/dapr.proto.internals.v1.ServiceInvocation/CallActor", new(cartCall()), &answer, grpc.ForceCodec(raw{}))
			if status.Code(err) != codes.Unavailable {
				t.Errorf("by %s, %s answers %q, %v; want no connection", what, b.Name(), answer, err)
			}
		}
	}
	if n := m.carts.calls.Load() - before; n != 0 {
		t.Errorf("%d calls reached an actor", n)
	}
	m.reach(t, m.checkout.Daprd, "Cart/42") // and calls go on
}

// cartCall is a call of the actor Cart/42, as sidecars make it.
func cartCall() []byte {
	field := func(b []byte, n protowire.Number, v string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	request := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1) // InternalInvokeRequest: version 1
	request = field(request, 3, string(field(nil, 1, "echo")))
	return field(request, 4, string(field(field(nil, 1, "Cart"), 2, "42")))
}

// actor calls the actor Cart/42 as a caller's sidecar does that placement has sent to the callee, and
// returns all of the answer.
func (o *outsider) actor(t *testing.T) string {
	t.Helper()
	var answer []byte
	err := o.conn.Invoke(meshtest.Within(t, meshtest.Patience), "/dapr.proto.internals.v1.ServiceInvocation/CallActor", new(cartCall()), &answer, grpc.ForceCodec(raw{}), grpc.WaitForReady(true))
	return fmt.Sprintf("%s, %v", answer, err)
}

// Apps that have the name of one that may call, in another namespace or another cluster, call the
// bridge of a cluster as its own apps do.
func TestABridgeTakesAppsOfItsClusterAndNamespace(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	// West's gateway leads to its bridge, since west owns a type, too.
	m.apply(t, m.west, strings.NewReplacer("cart", "tray", "Cart", "Tray", "owner: east", "owner: west", "west, app: checkout", "east, app: neighbour").Replace(cartsOfEast))
	bridge, evil := catalog.BridgeApp("shop", "west"), catalog.App{Namespace: "evil", ID: "checkout"}
	gateway := []grpc.DialOption{grpc.WithAuthority("isthmus-actors-west.shop.west.isthmus.internal")}
	for _, c := range []struct {
		what string
		by   *outsider
		says string // empty: the actor runs
	}{
		{"checkout", m.outsiderIn(t, "public", m.app("checkout"), bridge, m.bridge.Internal), ""},
		{"another namespace's", m.outsiderIn(t, "public", evil, bridge, m.bridge.Internal), "is not of namespace shop"},
		{"another trust domain's", m.outsiderIn(t, "north.example", m.app("checkout"), bridge, m.bridge.Internal), "is an app of another cluster"},
		{"another trust domain's, by the gateway", m.outsiderIn(t, "north.example", m.app("checkout"), bridge, "passthrough:///"+m.west.Gateway, gateway...), "is an app of another cluster"},
		{"both, by the gateway", m.outsiderIn(t, "north.example", evil, bridge, "passthrough:///"+m.west.Gateway, gateway...), "is an app of another cluster"},
	} {
		before := m.carts.calls.Load()
		got := c.by.actor(t)
		if ran := m.carts.calls.Load() - before; !strings.Contains(got, c.says) || (ran == 1) != (c.says == "") {
			t.Errorf("%s: the actor ran %d times, answer %.400q; want %q", c.what, ran, got, c.says)
		}
	}
}
