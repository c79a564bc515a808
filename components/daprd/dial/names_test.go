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
	"github.com/isthmus-mesh/isthmus/live"
)

func TestAGatewayNameReachesTheGatewayUnderItsOwnName(t *testing.T) {
	for mode, target := range map[string]string{
		"standalone": ordersInEast,
		"kubernetes": "dns:///" + ordersInEast,
	} {
		t.Run(mode, func(t *testing.T) {
			gw := startGateway(t)
			names, _ := east(gw.Address)
			mustCall(t, mustDial(t, names, target))

			sni, authority := gw.seen()
			if want := []string{"orders.default.east.isthmus.internal"}; !slices.Equal(sni, want) {
				t.Errorf("SNI %q, want %q", sni, want)
			}
			if want := []string{ordersInEast}; !slices.Equal(authority, want) {
				t.Errorf(":authority %q, want %q", authority, want)
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
	names, _ := east(gw.Address)
	if err := names.Register(); err != nil {
		t.Fatal(err)
	}
	ignorant := New(nil) // wraps what is registered by now, and answers nothing itself
	for _, target := range []string{ordersInEast, "dns:///" + ordersInEast} {
		if got := mustCall(t, mustDial(t, ignorant, target)); got != gw.Address {
			t.Errorf("dial %s reached %s, want %s", target, got, gw.Address)
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
	names, _ := east(deadAddress(t))
	for what, name := range map[string]string{
		"an instance's address":       "127.0.0.1:50002",
		"a Kubernetes service":        "orders-dapr.default.svc.cluster.local:50002",
		"a name outside the domain":   "orders.default.east.isthmus.example:15443",
		"a domain that ends the same": "orders.default.east.notisthmus.internal:15443",
		"a name without a cluster":    "orders.default.isthmus.internal:15443",
		"a resolver service's name":   "_resolver.east.isthmus.internal:15443",
		"a name without a port":       "orders.default.east.isthmus.internal",
	} {
		t.Run(what, func(t *testing.T) {
			s := &stock{Builder: resolver.Get("passthrough")}
			conn := mustDial(t, names, name, grpc.WithResolvers(names.Wrap(s)))
			conn.Connect()
			if want := []string{"passthrough:///" + name}; !slices.Equal(s.asked, want) {
				t.Errorf("stock resolver was asked for %q, want %q", s.asked, want)
			}
		})
	}
}

func TestADialerOfOnesOwnGetsTheName(t *testing.T) {
	gw := startGateway(t)
	names, _ := east(deadAddress(t))
	var dialled string
	conn := mustDial(t, names, ordersInEast, grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
		dialled = name
		return new(net.Dialer).DialContext(ctx, "tcp", gw.Address)
	}))
	mustCall(t, conn)
	if dialled != ordersInEast {
		t.Errorf("the dialer got %q, want %q", dialled, ordersInEast)
	}
}

func TestBeforeAnyViewNamesAreLeftAlone(t *testing.T) {
	names := New(nil)
	for what, gateways := range map[string]*live.Value[*catalog.Gateways]{
		"no component is loaded": nil,
		"no view has arrived":    new(live.Value[*catalog.Gateways]),
	} {
		t.Run(what, func(t *testing.T) {
			names.Use(gateways, nil, true)
			s := &stock{Builder: resolver.Get("passthrough")}
			mustDial(t, names, ordersInEast, grpc.WithResolvers(names.Wrap(s)))
			if len(s.asked) != 1 {
				t.Errorf("stock resolver was asked for %q, want the name once", s.asked)
			}
		})
	}
}

func TestAClusterWithoutGatewaysIsAnErrorThatNamesIt(t *testing.T) {
	names, _ := east()
	_, err := call(t, mustDial(t, names, ordersInEast))
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
