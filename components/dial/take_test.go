package dial

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

var xDev = catalog.HeaderValue{Name: "x-dev", Value: "anna"}

// guestRoute is the route to the one instance with a guest, by its name.
func guestRoute(cluster string) catalog.Route {
	r := gatewayRoute(cluster, 0)
	r.Instances = []uint32{7}
	return r
}

func noRoute(cluster string, state catalog.RouteState) catalog.Route {
	return catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: cluster, Weight: 1}, State: state}
}

// setTaken sets the routes to orders, and the takes before them.
func (w *testDialer) setTaken(gateways map[string][]string, takes []catalog.TakenRoute, routes ...catalog.Route) {
	e := catalog.NewEntry(orders, catalog.Rule{}, routes)
	e.Own = &catalog.Own{Takes: takes}
	w.views.Store(&catalog.View{
		Entries:  catalog.Table[*catalog.Entry]{}.With(catalog.Edit[*catalog.Entry]{App: orders, Value: e}),
		Gateways: &catalog.Gateways{Domain: catalog.DefaultDomain, Addresses: gateways},
	})
}

// startWho starts an instance that answers with its name.
func startWho(t testing.TB, name string) *gateway {
	return startGateway(t, func(s *grpc.Server) { internalv1.RegisterServiceInvocationServer(s, &whoServer{name: name}) })
}

// way is one way in which daprd makes a call with a header; it returns the address that answered.
type way func(ctx context.Context, conn *grpc.ClientConn, name, value string) (string, error)

var ways = map[string]way{
	"http": func(ctx context.Context, conn *grpc.ClientConn, name, value string) (string, error) {
		var p peer.Peer
		stream, err := internalv1.NewServiceInvocationClient(conn).CallLocalStream(ctx, grpc.Peer(&p))
		if err != nil {
			return "", err
		}
		request := &internalv1.InternalInvokeRequest{Metadata: map[string]*internalv1.ListStringValue{name: {Values: []string{value}}}}
		if err := stream.Send(&internalv1.InternalInvokeRequestStream{Request: request}); err != nil && err != io.EOF {
			return "", err
		}
		if _, err = stream.Recv(); err != nil {
			return "", err
		}
		if _, err = stream.Recv(); err != io.EOF {
			return "", fmt.Errorf("a second answer: %v", err)
		}
		return p.Addr.String(), nil
	},
	"grpc": func(ctx context.Context, conn *grpc.ClientConn, name, value string) (string, error) {
		var p peer.Peer
		request := &internalv1.InternalInvokeRequest{Metadata: map[string]*internalv1.ListStringValue{name: {Values: []string{value}}}}
		if _, err := internalv1.NewServiceInvocationClient(conn).CallLocal(ctx, request, grpc.Peer(&p)); err != nil {
			return "", err
		}
		return p.Addr.String(), nil
	},
	"proxied": func(ctx context.Context, conn *grpc.ClientConn, name, value string) (string, error) {
		var p peer.Peer
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
		if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
			return "", err
		}
		return p.Addr.String(), nil
	},
}

// TestAGuestGetsTheCallsThatItTakesAndNoOther tries each way of a call, with and without the header, for
// each sort of take and each state of the guest, beside an instance here and without one.
func TestAGuestGetsTheCallsThatItTakesAndNoOther(t *testing.T) {
	here, guest := startWho(t, "here"), startWho(t, "guest")
	gateways := map[string][]string{"anna": {guest.Address}, "dead": {deadAddress(t)}}
	for what, header := range map[string]catalog.HeaderValue{"caller": {}, "header": xDev} {
		for state, route := range map[string]catalog.Route{
			"heard": guestRoute("anna"), "stale": noRoute("anna", catalog.LeaseExpired), "no instance": noRoute("anna", catalog.Empty),
			"unheard": noRoute("anna", catalog.Unheard), "unreached": guestRoute("dead"),
		} {
			for beside, local := range map[string]catalog.Route{"here": localRoute(here.Address), "nowhere": noRoute("west", catalog.Empty)} {
				w := newTestDialer(t)
				w.Header = headerOf
				w.setTaken(gateways, []catalog.TakenRoute{{Route: route, Header: header}}, local)
				conn := w.dial(t)
				for how, call := range ways {
					for sent, headers := range map[string][2]string{
						"the header": {"X-Dev", "anna"}, "another value": {"x-dev", "Anna"}, "a longer value": {"x-dev", "anna, anna"}, "another header": {"x-devs", "anna"},
					} {
						t.Run(fmt.Sprintf("%s, %s, %s, %s with %s", what, state, beside, how, sent), func(t *testing.T) {
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							defer cancel()
							taken := state == "heard" && (what == "caller" || sent == "the header")
							address, err := call(ctx, conn, headers[0], headers[1])
							switch {
							case taken && address != guest.Address:
								t.Errorf("answered by %q, %v; want the guest", address, err)
							case !taken && beside == "here" && address != here.Address:
								t.Errorf("answered by %q, %v; want the instance here", address, err)
							case !taken && beside == "nowhere" && err == nil:
								t.Errorf("answered by %q, and no instance may get the call", address)
							}
						})
					}
				}
			}
		}
	}
	sni, _ := guest.seen()
	for _, name := range sni {
		if name != catalog.Domain(catalog.DefaultDomain).InstanceHost(7, orders, "anna") {
			t.Errorf("the guest was asked for %s", name)
		}
	}
}

// TestTheFirstTakeThatCanHasACall has several guests take calls.
func TestTheFirstTakeThatCanHasACall(t *testing.T) {
	here, anna, ben := startWho(t, "here"), startWho(t, "anna"), startWho(t, "ben")
	w := newTestDialer(t)
	w.Header = headerOf
	gateways := map[string][]string{"anna": {anna.Address}, "ben": {ben.Address}}
	both := []catalog.TakenRoute{{Route: guestRoute("anna"), Header: xDev}, {Route: guestRoute("ben")}}
	w.setTaken(gateways, both, localRoute(here.Address))
	conn := w.dial(t)
	// Nobody repeats a proxied call that begins on a connection which has ended unnoticed.
	goes := func(want *gateway, value string, unnoticed int) {
		t.Helper()
		for how, call := range ways {
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				address, err := call(t.Context(), conn, "x-dev", value)
				if err != nil {
					if unnoticed--; unnoticed < 0 || how != "proxied" || status.Code(err) != codes.Unavailable {
						t.Fatalf("%s with %s: %v", how, value, err)
					}
				}
				if err == nil && address == want.Address {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s with %s is answered by %s, %v; want %s", how, value, address, err, want.Address)
				}
			}
		}
	}
	goes(anna, "anna", 0)
	goes(ben, "other", 0)
	anna.stop()
	goes(ben, "anna", 3)
	w.setTaken(gateways, both[:1], localRoute(here.Address))
	goes(here, "anna", 0)
	goes(here, "other", 0)
}

// TestALostGuestLosesNoCall kills the guest under calls, which are safe to repeat.
func TestALostGuestLosesNoCall(t *testing.T) {
	here, guest := startWho(t, "here"), startWho(t, "guest")
	w := newTestDialer(t)
	w.Header = headerOf
	w.setTaken(map[string][]string{"anna": {guest.Address}}, []catalog.TakenRoute{{Route: guestRoute("anna"), Header: xDev}}, localRoute(here.Address))
	conn := w.dial(t)
	var atGuest, atHere, wrong atomic.Int64
	var calls sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range 8 {
		value := []string{"anna", "ben"}[i%2]
		calls.Go(func() {
			for ctx.Err() == nil {
				address, err := ways[[]string{"http", "grpc"}[i/2%2]](t.Context(), conn, "x-dev", value)
				switch {
				case err != nil:
					t.Errorf("a call failed: %v", err)
				case address != guest.Address:
					atHere.Add(1)
				case value != "anna":
					wrong.Add(1)
				default:
					atGuest.Add(1)
				}
			}
		})
	}
	await := func(n *atomic.Int64, more int64) {
		for want, end := n.Load()+more, time.Now().Add(time.Minute); n.Load() < want && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
	}
	await(&atGuest, 500)
	guest.stop()
	await(&atHere, 500)
	stop()
	calls.Wait()
	if atGuest.Load() < 500 || wrong.Load() > 0 {
		t.Errorf("%d calls reached the guest, and %d that it does not take", atGuest.Load(), wrong.Load())
	}
}

// TestATapTellsOfTakes has a call taken, and one that the guest can't take.
func TestATapTellsOfTakes(t *testing.T) {
	here, guest := startWho(t, "here"), startWho(t, "guest")
	for _, c := range []struct {
		take catalog.Route
		want string
	}{
		{guestRoute("anna"), `1 in "anna", not : guest anna takes x-dev: anna`},
		{noRoute("anna", catalog.LeaseExpired), `1 in "west", not anna: its lease has run out`},
		{guestRoute("dead"), `1 in "west", not anna: …`},
	} {
		w := newTestDialer(t)
		w.Header = headerOf
		newest := w.looks(t)
		gateways := map[string][]string{"anna": {guest.Address}}
		if c.take.Cluster == "dead" {
			c.take.Cluster, gateways["anna"] = "anna", []string{deadAddress(t)}
		}
		w.setTaken(gateways, []catalog.TakenRoute{{Route: c.take, Header: xDev}}, localRoute(here.Address))
		if _, err := ways["grpc"](t.Context(), w.dial(t), "x-dev", "anna"); err != nil {
			t.Fatal(err)
		}
		start, more := strings.CutSuffix(c.want, "…")
		if got := newest(); got != c.want && !(more && strings.HasPrefix(got, start)) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestACallWithoutTakesAsksNothing is for plans without takes: they find the picker that they had before.
func TestACallWithoutTakesAsksNothing(t *testing.T) {
	c := &channel{dialer: &Dialer{Header: func(any, string) string { panic("a header was read") }}}
	c.asks.Store((&plan{entry: catalog.NewEntry(orders, catalog.Rule{}, nil)}).asks())
	if n := testing.AllocsPerRun(100, func() {
		if c.keyed(t.Context(), nil) == nil || c.awaitsMessage(answeringMethods[0], false) {
			t.Error("something is asked")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if (&plan{entry: catalog.NewEntry(orders, catalog.Rule{}, nil)}).asks() != nil {
		t.Error("a plan without hash and takes asks something")
	}
}

// BenchmarkTakes is what takes add to the choice of a connection: nothing to a plan without them.
func BenchmarkTakes(b *testing.B) {
	e := &endpoint{channel: &channel{dialer: &Dialer{span: trace.SpanFromContext}}, instance: &instance{}}
	e.channel.dialer.watcher.conns = map[*conn]struct{}{}
	b.Cleanup(e.channel.dialer.watcher.close)
	plain := &picker{routes: []usableRoute{{route: &route{}, state: &routeState{}, candidates: []candidate{{instance: e.instance, endpoints: []*endpoint{e}}}}}}
	takes := &takePicker{[]takeable{{TakenRoute: catalog.TakenRoute{Header: xDev}, picker: plain}}, plain}
	for _, c := range []struct {
		name string
		p    balancer.Picker
		asks *asked
		ctx  context.Context
	}{
		{"no takes", plain, nil, b.Context()},
		{"another call", takes, &asked{headers: []catalog.HeaderValue{xDev}}, metadata.AppendToOutgoingContext(b.Context(), "x-dev", "ben")},
		{"a taken call", takes, &asked{headers: []catalog.HeaderValue{xDev}}, metadata.AppendToOutgoingContext(b.Context(), "x-dev", "anna")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			to := &channel{dialer: &Dialer{}}
			to.asks.Store(c.asks)
			for b.Loop() {
				if _, err := c.p.Pick(balancer.PickInfo{Ctx: to.keyed(c.ctx, nil)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
