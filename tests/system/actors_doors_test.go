package system

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Another process of the machine reaches the ports of a bridge and of its sidecar. Neither believes
// it, so it calls no actor in an app's name.
func TestNobodySpeaksForABridgeOrItsSidecar(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	listens := regexp.MustCompile(`bridge for actors is running.* listen=(\S+)`)
	port := func(b *sandbox.Daprd) string {
		log, err := os.ReadFile(b.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		at := listens.FindSubmatch(log)
		if at == nil {
			t.Fatalf("no port in the log of %s", b.Name())
		}
		return string(at[1])
	}
	asCheckout := http.Header{
		"Isthmus-Caller": {"spiffe://public/ns/shop/checkout"}, "Isthmus-Actor-Caller": {"shop/checkout"},
		"Isthmus-Actor-Type": {"Cart"}, "Isthmus-Actor-Id": {"42"}, "Isthmus-Actor-Method": {"echo"},
	}
	asBridge := asCheckout.Clone()
	asBridge.Set("Isthmus-Caller", "spiffe://public/ns/shop/isthmus-actors-west")
	west, east := port(m.bridge), port(m.eastBridge)
	before := m.carts.calls.Load()
	for _, c := range []struct {
		what, verb, url string
		header          http.Header
	}{
		{"an actor of east by west's bridge", http.MethodPut, "http://" + west + "/actors/Cart/42/method/echo", asCheckout},
		{"an actor here by east's bridge, as west's", http.MethodPost, "http://" + east + "/isthmus/actors", asBridge},
		{"the types that a bridge hosts", http.MethodGet, "http://" + west + "/dapr/config", nil},
		{"east's bridge by the sidecar of west's", http.MethodPost, m.bridge.InvokeURL("isthmus-actors-east", "isthmus/actors"), asCheckout},
		{"an actor here by the sidecar of east's", http.MethodPost, m.eastBridge.ActorURL("Cart/42", "echo"), asCheckout},
		{"the end of a bridge's sidecar", http.MethodPost, "http://" + m.bridge.HTTP + "/v1.0/shutdown", nil},
	} {
		for _, token := range []string{"", "guessed"} {
			req, err := http.NewRequestWithContext(meshtest.Within(t, meshtest.Patience), c.verb, c.url, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if req.Header = c.header.Clone(); req.Header == nil {
				req.Header = http.Header{}
			}
			req.Header.Set("Dapr-Api-Token", token)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", c.what, res.StatusCode, body)
			}
		}
	}
	if n := m.carts.calls.Load() - before; n != 0 {
		t.Errorf("%d calls reached an actor", n)
	}
	// Nor does anybody read a token where processes show their arguments.
	for _, b := range []*sandbox.Daprd{m.bridge, m.eastBridge} {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", b.PID()))
		if err == nil && strings.Contains(string(args), "TOKEN") {
			t.Errorf("%s runs with %q", b.Name(), args)
		}
	}
	m.reach(t, m.checkout.Daprd, "Cart/42") // and calls go on
}

// actor calls the actor Cart/42 as a caller's sidecar does that placement has sent to the callee, and
// returns all of the answer.
func (o *outsider) actor(t *testing.T) string {
	t.Helper()
	field := func(b []byte, n protowire.Number, v string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	request := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1) // InternalInvokeRequest: version 1
	request = field(request, 3, string(field(nil, 1, "echo")))
	request = field(request, 4, string(field(field(nil, 1, "Cart"), 2, "42")))
	var answer []byte
	err := o.conn.Invoke(meshtest.Within(t, meshtest.Patience), "/dapr.proto.internals.v1.ServiceInvocation/CallActor", &request, &answer, grpc.ForceCodec(raw{}), grpc.WaitForReady(true))
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
