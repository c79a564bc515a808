package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is a gRPC server with TLS that stands for a gateway and the sidecar behind it. It records
// the names that it was asked for.
type gateway struct {
	Address string
	server  *grpc.Server
	served  chan struct{}

	mu        sync.Mutex
	sni       []string
	authority []string
}

func startGateway(t testing.TB, register ...func(*grpc.Server)) *gateway {
	t.Helper()
	return startGatewayAt(t, deadAddress(t), register...)
}

func startGatewayAt(t testing.TB, address string, register ...func(*grpc.Server)) *gateway {
	t.Helper()
	lis, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return startGatewayOn(t, lis, register...)
}

// startGatewayOn serves on a listener, and closes it at the end of the test.
func startGatewayOn(t testing.TB, lis net.Listener, register ...func(*grpc.Server)) *gateway {
	t.Helper()
	g := &gateway{Address: lis.Addr().String(), served: make(chan struct{})}
	g.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(g.tls(t))), grpc.UnaryInterceptor(g.note))
	healthpb.RegisterHealthServer(g.server, health.NewServer())
	for _, r := range register {
		r(g.server)
	}
	go func() { defer close(g.served); _ = g.server.Serve(lis) }()
	t.Cleanup(g.stop)
	return g
}

func (g *gateway) stop() { g.server.Stop(); <-g.served }

func (g *gateway) tls(t testing.TB) *tls.Config {
	cert := certificate(t)
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.sni = append(g.sni, hello.ServerName)
			return nil, nil
		},
	}
}

func (g *gateway) note(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	g.mu.Lock()
	g.authority = append(g.authority, md.Get(":authority")...)
	g.mu.Unlock()
	return next(ctx, req)
}

func (g *gateway) seen() (sni, authority []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sni, g.authority
}

func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// deadAddress returns an address where nothing listens, and returns none twice.
func deadAddress(t testing.TB) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// testDialer is a Dialer and its Resolver, whose view tests set.
type testDialer struct {
	*Dialer
	views  live.Value[*catalog.View]
	retry  bool
	failed atomic.Int64
	before map[string]traffic.Counts // by cluster, of ended

	mu        sync.Mutex
	unreached []nameresolution.Unreached
}

var orders = catalog.App{Namespace: "default", ID: "orders"}

func newTestDialer(t testing.TB) *testDialer {
	w := &testDialer{Dialer: New(slog.New(slog.NewTextHandler(io.Discard, nil)), trace.SpanFromContext, answerOf), retry: true, before: map[string]traffic.Counts{}}
	w.hosts.times.minInterval = 10 * time.Millisecond
	w.Use(w)
	t.Cleanup(w.Close)
	return w
}

func (w *testDialer) View() (*catalog.View, <-chan struct{}) {
	view, _, changed := w.views.Follow()
	return view, changed
}

func (w *testDialer) Credentials(catalog.App) (credentials.TransportCredentials, error) {
	return nil, errors.New("no certificate")
}

func (w *testDialer) RetryCutOff() bool { return w.retry }

func (w *testDialer) Failed(catalog.App, string) { w.failed.Add(1) }

func (w *testDialer) ReportUnreached(all []nameresolution.Unreached) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unreached = all
}

// waitForReport waits until want accepts the last report.
func (w *testDialer) waitForReport(t *testing.T, want func([]nameresolution.Unreached) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		all := w.unreached
		w.mu.Unlock()
		if want(all) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the last report: %+v", all)
		}
	}
}

// newEastDialer returns a dialer with orders in cluster east, behind these gateways.
func newEastDialer(t testing.TB, addresses ...string) *testDialer {
	w := newTestDialer(t)
	w.setEast(addresses...)
	return w
}

func (w *testDialer) setEast(addresses ...string) {
	w.setRoutes(map[string][]string{"east": addresses}, gatewayRoute("east", 0))
}

// setRoutes sets the routes to orders.
func (w *testDialer) setRoutes(gateways map[string][]string, routes ...catalog.Route) {
	w.setRoutesOf(orders, gateways, routes...)
}

func (w *testDialer) setRoutesOf(app catalog.App, gateways map[string][]string, routes ...catalog.Route) {
	w.views.Store(&catalog.View{
		Entries:  catalog.Table[*catalog.Entry]{}.With(catalog.Edit[*catalog.Entry]{App: app, Value: catalog.NewEntry(app, catalog.Rule{}, routes)}),
		Gateways: &catalog.Gateways{Domain: catalog.DefaultDomain, Addresses: gateways},
	})
}

// gatewayRoute is a route through a cluster's gateways to one instance.
func gatewayRoute(cluster string, priority uint32) catalog.Route {
	return catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: cluster, Priority: priority, Weight: 1}, Gateway: true, Ready: 1,
		Addresses: catalog.Domain(catalog.DefaultDomain).GatewayAddresses(orders, cluster, "15443", 0)}
}

// localRoute is a route to instances in the caller's own cluster.
func localRoute(addresses ...string) catalog.Route {
	return catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: uint32(len(addresses)), Addresses: addresses}
}

// dial dials orders as daprd does after a lookup.
func (w *testDialer) dial(t testing.TB, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return mustDial(t, w.Dialer, w.Name(planOf(orders)), more...)
}

// daprdDial dials as daprd's connection manager does.
func daprdDial(t testing.TB, names *Dialer, target string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	t.Helper()
	var builders []resolver.Builder
	for _, scheme := range Schemes() {
		builders = append(builders, names.Wrap(resolver.Get(scheme)))
	}
	options := append(more, // gRPC takes the first resolver for a scheme
		grpc.WithDefaultServiceConfig(`{"loadBalancingPolicy":"round_robin"}`),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithResolvers(builders...),
	)
	options = append(options, names.DialOptions()...)
	//lint:ignore SA1019 daprd dials with DialContext, whose default scheme is passthrough
	conn, err := grpc.DialContext(t.Context(), target, options...)
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func mustDial(t testing.TB, names *Dialer, target string, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := daprdDial(t, names, target, more...)
	if err != nil {
		t.Fatalf("dial %s: %v", target, err)
	}
	return conn
}

// call makes one call without waiting for a connection, and returns the address that answered.
func call(t *testing.T, conn *grpc.ClientConn) (address string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var p peer.Peer
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p))
	if err != nil {
		return "", err
	}
	return p.Addr.String(), nil
}

func mustCall(t *testing.T, conn *grpc.ClientConn) (address string) {
	t.Helper()
	address, err := call(t, conn)
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	return address
}

// callAsDaprd repeats a call as daprd does: up to three times, on Unavailable only.
func callAsDaprd(t *testing.T, conn *grpc.ClientConn) (address string) {
	t.Helper()
	var err error
	for range 4 {
		if address, err = call(t, conn); err == nil {
			return address
		}
		if status.Code(err) != codes.Unavailable {
			break
		}
	}
	t.Fatalf("call: %v", err)
	return ""
}

// callUntilRecovered calls until want answers. Calls may fail meanwhile.
func callUntilRecovered(t *testing.T, conn *grpc.ClientConn, want string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	var got string
	var err error
	for time.Now().Before(deadline) {
		if got, err = call(t, conn); err == nil && got == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("no call reached %s in a minute; the last reached %q, err %v", want, got, err)
}

// callUntil calls until want answers. No call may fail.
func callUntil(t *testing.T, conn *grpc.ClientConn, want string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if callAsDaprd(t, conn) == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("no call reached %s in a minute", want)
}

// callUntilOnly calls until want answers so many calls in a row that no other gateway can be in use.
// No call may fail. A single answer proves nothing: the list before may have had want, too.
func callUntilOnly(t *testing.T, conn *grpc.ClientConn, want string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for inRow := 0; inRow < 10; inRow++ {
		if got := mustCall(t, conn); got == want {
			continue
		}
		if inRow = -1; time.Now().After(deadline) {
			t.Fatalf("%s became the only gateway, and calls still reach others", want)
		}
		time.Sleep(time.Millisecond)
	}
}

func invoke(ctx context.Context, conn *grpc.ClientConn, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := internalv1.NewServiceInvocationClient(conn).CallLocal(ctx, &internalv1.InternalInvokeRequest{})
	return err
}

// startInvoke makes a call in the background, and returns how it ended.
func startInvoke(t *testing.T, conn *grpc.ClientConn) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- invoke(t.Context(), conn, time.Minute) }()
	return ended
}

// callLimit is far more than a call through a lost gateway takes on an idle machine. By TCP alone it
// would be a quarter of an hour.
const callLimit = 30 * time.Second
