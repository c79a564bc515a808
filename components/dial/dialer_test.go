package dial

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestACallReachesTheGatewayUnderTheAppsNameThere(t *testing.T) {
	for mode, prefix := range map[string]string{"standalone": "", "kubernetes": "dns:///"} {
		t.Run(mode, func(t *testing.T) {
			gw := startGateway(t)
			w := newEastDialer(t, gw.Address)
			mustCall(t, mustDial(t, w.Dialer, prefix+w.Name(planOf(orders))))
			if sni, _ := gw.seen(); !slices.Equal(sni, []string{"orders.default.east.isthmus.internal"}) {
				t.Errorf("SNI %q, want the app's name in east", sni)
			}
		})
	}
}

func TestRegisterAnswersDialsThatKnowNothingOfIt(t *testing.T) {
	for _, scheme := range Schemes() {
		stock := resolver.Get(scheme)
		t.Cleanup(func() { resolver.Register(stock) })
	}
	gw := startGateway(t)
	w := newTestDialer(t)
	registered := catalog.App{Namespace: "default", ID: "registered"} // the hook stays for all tests that follow
	w.setRoutesOf(registered, nil, localRoute(gw.Address))
	if err := w.Register(); err != nil {
		t.Fatal(err)
	}
	ignorant := New(nil, nil, nil) // wraps what is registered by now, and answers nothing itself
	for _, prefix := range []string{"", "dns:///"} {
		if got := mustCall(t, mustDial(t, ignorant, prefix+w.Name(planOf(registered)))); got != gw.Address {
			t.Errorf("a dial with prefix %q reached %s, want %s", prefix, got, gw.Address)
		}
	}
}

// stock is a resolver that notes what it was asked for.
type stock struct {
	resolver.Builder
	asked []string
}

func (s *stock) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	s.asked = append(s.asked, target.String())
	return s.Builder.Build(target, cc, opts)
}

func TestOtherNamesGoWhereTheyWentBefore(t *testing.T) {
	w := newEastDialer(t, deadAddress(t))
	w.Name(planOf(orders))
	for what, name := range map[string]string{
		"an instance's address":   "127.0.0.1:50002",
		"a Kubernetes service":    "orders-dapr.default.svc.cluster.local:50002",
		"a name at a gateway":     "orders.default.east.isthmus.internal:15443",
		"an app not looked up":    "stock.default.isthmus.internal:15443",
		"the name, another port":  "orders.default.isthmus.internal:50002",
		"the name without a port": "orders.default.isthmus.internal",
	} {
		t.Run(what, func(t *testing.T) {
			s := &stock{Builder: resolver.Get("passthrough")}
			conn := mustDial(t, w.Dialer, name, grpc.WithResolvers(w.Wrap(s)))
			conn.Connect()
			if want := []string{"passthrough:///" + name}; !slices.Equal(s.asked, want) {
				t.Errorf("stock resolver was asked for %q, want %q", s.asked, want)
			}
		})
	}
}

func TestADialerOfOnesOwnGetsTheName(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, deadAddress(t))
	var dialled string
	conn := w.dial(t, grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
		dialled = name
		return new(net.Dialer).DialContext(ctx, "tcp", gw.Address)
	}))
	mustCall(t, conn)
	if want := w.Name(planOf(orders)); dialled != want {
		t.Errorf("the dialer got %q, want %q", dialled, want)
	}
}

// planOf is a plan of an app, for its name.
func planOf(app catalog.App) *catalog.Entry { return &catalog.Entry{Plan: &catalog.Plan{App: app}} }

func TestAClusterWithoutGatewaysIsAnErrorThatNamesIt(t *testing.T) {
	_, err := call(t, newEastDialer(t).dial(t))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "object Cluster east") {
		t.Fatalf("call: %v, want Unavailable and the name of the object Cluster east", err)
	}
}

func TestStockResolversLeaveAuthorityToGRPC(t *testing.T) {
	for _, scheme := range Schemes() {
		if _, ok := resolver.Get(scheme).(resolver.AuthorityOverrider); ok {
			t.Errorf("gRPC's resolver %q now chooses the authority itself; the wrapper must pass that on", scheme)
		}
	}
}
