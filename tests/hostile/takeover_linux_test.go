package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// site is one cluster in a network in which every app has an address of its own.
type site struct {
	*network.Network
	authority *sandbox.Authority
	west      *sandbox.Cluster
	place     *network.Place // of the service
	resolver  string
	dns       string
	gateway   string
}

// The addresses of a site.
var (
	serviceHost  = netip.MustParseAddr("10.77.1.1")
	ordersHost   = netip.MustParseAddr("10.77.1.11")
	checkoutHost = netip.MustParseAddr("10.77.1.12")
	malloryHost  = netip.MustParseAddr("10.77.1.66")
)

// newSite starts the service, with more keys of isthmus.yaml. Its machine may have more addresses.
func newSite(t *testing.T, settings map[string]any, more ...netip.Addr) *site {
	t.Helper()
	needs(t, "isthmus", "daprd", "sentry")
	network.Need(t)
	s := &site{Network: network.New(1), resolver: serviceHost.String() + ":7400", dns: serviceHost.String() + ":7453", gateway: serviceHost.String() + ":15443"}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if s.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	var box *sandbox.Sandbox
	s.place, box = s.host(t, append([]netip.Addr{serviceHost}, more...)...)
	s.west, err = box.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{
		Name: "west", Authority: s.authority, TrustDomain: westDomain, Host: serviceHost.String(),
		Gateway: s.gateway, Listen: map[string]any{"resolver": s.resolver, "dns": s.dns}, Settings: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.west.Service.Name(), s.west.Service.Tail(15))
		}
	})
	return s
}

// host is a machine with a sandbox on it.
func (s *site) host(t *testing.T, at ...netip.Addr) (*network.Place, *sandbox.Sandbox) {
	t.Helper()
	place, err := s.Place(at...)
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.NewIn(place, filepath.Join(t.TempDir(), at[0].String()), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return place, box
}

// sentry is where every program of the site has its certificate from.
func (s *site) sentry() map[string]any {
	return map[string]any{
		"address": s.west.Sentry.Address, "trustAnchorsFile": s.west.Sentry.AnchorsFile,
		"trustDomain": westDomain, "appTrustDomain": westDomain,
	}
}

// sidecar starts an app with a real daprd on a machine of its own.
func (s *site) sidecar(t *testing.T, box *sandbox.Sandbox, at netip.Addr, id string) (*sandbox.Daprd, *sandbox.App) {
	t.Helper()
	behind, err := box.App(sandbox.AppOptions{Cluster: "west", App: app(id)})
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := yaml.Marshal(map[string]any{
		"apiVersion": "dapr.io/v1alpha1", "kind": "Configuration", "metadata": map[string]any{"name": "isthmus"},
		"spec": map[string]any{"nameResolution": map[string]any{"component": "isthmus", "version": "v1", "configuration": map[string]any{
			"resolver": s.resolver, "cluster": "west", "identity": map[string]any{"sentry": s.sentry()},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := box.Daprd(meshtest.Within(t, meshtest.Patience), sandbox.DaprdOptions{
		Cluster: "west", App: app(id), AppAddress: behind.Address, Internal: netip.AddrPortFrom(at, 50002).String(),
		Configuration: string(configuration), Sentry: s.west.Sentry,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, behind
}

// client is a gRPC client on a machine, with a certificate of an app.
func (s *site) client(t *testing.T, from *network.Place, a catalog.App) *grpc.ClientConn {
	t.Helper()
	as := certified(t, s.authority, westDomain, a)
	conn, err := as.grpcBy(s.resolver, "", from.Dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// shown tells whether DNS shows an app to whoever asks from a machine.
func (s *site) shown(ctx context.Context, from *network.Place, name string) (bool, error) {
	conn, err := from.Dial(ctx, "udp", s.dns)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(meshtest.Attempt))
	c := mdns.Conn{Conn: conn}
	if err := c.WriteMsg(new(mdns.Msg).SetQuestion(name, mdns.TypeA)); err != nil {
		return false, err
	}
	m, err := c.ReadMsg()
	return err == nil && len(m.Answer) > 0, err
}

// claim holds a stream open that registers an address, for as long as it may and a moment.
func claim(ctx context.Context, conn grpc.ClientConnInterface, as catalog.App, id, address string) error {
	ctx, let := context.WithTimeout(ctx, 300*time.Millisecond)
	defer let()
	stream, err := watchAs(ctx, conn, as, id, address)
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

// TestH1NobodyTakesTheAddressOfAnotherApp: a sidecar with a good certificate of its own claims
// the addresses of others, again and again and by many streams. Real sidecars call each other
// meanwhile: no call fails, shop/orders is ready throughout, and whoever asks DNS from the
// victim's machine is still taken for the victim.
func TestH1NobodyTakesTheAddressOfAnotherApp(t *testing.T) {
	s := newSite(t, nil)
	ordersPlace, ordersBox := s.host(t, ordersHost)
	_, checkoutBox := s.host(t, checkoutHost)
	malloryPlace, _ := s.host(t, malloryHost)
	_, behind := s.sidecar(t, ordersBox, ordersHost, "orders")
	checkout, _ := s.sidecar(t, checkoutBox, checkoutHost, "checkout")
	ctx := meshtest.Within(t, meshtest.Patience)
	operator := s.client(t, malloryPlace, identity.CLIApp(""))
	// Only orders may see checkout by DNS; mallory may see nothing.
	if err := s.apply(ctx, operator, "orders", "checkout"); err != nil {
		t.Fatal(err)
	}
	if err := s.apply(ctx, operator, "mallory"); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := checkout.Invoke(ctx, "orders", "hello", nil)
		if seen, dnsErr := s.shown(ctx, ordersPlace, "checkout.shop.isthmus.internal."); err == nil && (dnsErr != nil || !seen) {
			err = fmt.Errorf("orders does not see checkout by DNS (%w)", dnsErr)
		}
		return err
	})

	attacking, end := context.WithCancel(t.Context())
	var attack sync.WaitGroup
	defer attack.Wait()
	defer end()
	var claims atomic.Int64
	for n, victim := range []string{
		netip.AddrPortFrom(ordersHost, 50002).String(), netip.AddrPortFrom(checkoutHost, 50002).String(),
		netip.AddrPortFrom(ordersHost, 40_000).String(), netip.AddrPortFrom(checkoutHost, 40_000).String(),
	} {
		conn := s.client(t, malloryPlace, app("mallory"))
		attack.Go(func() {
			for i := 0; attacking.Err() == nil; i++ {
				_ = claim(attacking, conn, app("mallory"), fmt.Sprintf("m-%d-%d", n, i%3), victim) // refused or not
				claims.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	var calls, failed, away, unseen int
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until) || calls < 100 || claims.Load() < 40; calls++ {
		if _, err := checkout.Invoke(ctx, "orders", "hello", nil); err != nil {
			if failed++; failed == 1 {
				t.Logf("call %d: %v", calls, err)
			}
		}
		d, err := v1alpha1.NewResolverClient(operator).Resolve(ctx, &v1alpha1.ResolveRequest{Caller: wire.App(app("checkout")), App: wire.App(app("orders"))})
		if err != nil || d.Address != netip.AddrPortFrom(ordersHost, 50002).String() {
			away++
		}
		if seen, err := s.shown(ctx, ordersPlace, "checkout.shop.isthmus.internal."); err != nil || !seen {
			unseen++
		}
	}
	t.Logf("%d calls; %d claims", calls, claims.Load())
	if failed > 0 || away > 0 || unseen > 0 || behind.Calls() < int64(calls) {
		t.Errorf("of %d: %d calls failed, shop/orders was away %d times, its DNS queries were taken for another's %d times; it had %d calls",
			calls, failed, away, unseen, behind.Calls())
	}
}

// apply lets an app call others, and nobody else.
func (s *site) apply(ctx context.Context, operator *grpc.ClientConn, id string, others ...string) error {
	endpoints := make([]string, len(others))
	for i, o := range others {
		endpoints[i] = fmt.Sprintf(`{"app": %q}`, o)
	}
	object := fmt.Sprintf(`{"apiVersion": "isthmus.dev/v1alpha1", "kind": "AppEndpoints", "metadata": {"namespace": "shop", "name": %q}, "spec": {"endpoints": [%s]}}`,
		id, strings.Join(endpoints, ", "))
	_, err := v1alpha1.NewObjectsClient(operator).Apply(ctx, &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: []byte(object)}}})
	return err
}

// TestH1OneSourceHoldsFewInstancesAndStreams: 64 instances of an app, and 8 streams for one.
func TestH1OneSourceHoldsFewInstancesAndStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	place, _ := s.host(t, malloryHost)
	operator := s.client(t, place, identity.CLIApp(""))
	ctx := meshtest.Within(t, meshtest.Patience)
	open := func(id string, port uint16) { // each on a connection of its own, which may have few streams
		conn := s.client(t, place, app("mallory"))
		if _, err := watchAs(ctx, conn, app("mallory"), id, netip.AddrPortFrom(malloryHost, port).String()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 80 {
		open(fmt.Sprint("instance-", n), uint16(10_000+n))
	}
	for range 40 { // many streams for one instance
		open("instance-0", 10_000)
	}
	var now *v1alpha1.StatusResponse
	meshtest.Eventually(t, meshtest.Patience, func() (err error) {
		now, err = v1alpha1.NewStatusClient(operator).Status(ctx, &v1alpha1.StatusRequest{})
		if err == nil && now.Instances < 64 {
			err = fmt.Errorf("%d instances are there, and 64 may be", now.Instances)
		}
		return err
	})
	time.Sleep(time.Second) // for those that are too many
	now, err := v1alpha1.NewStatusClient(operator).Status(ctx, &v1alpha1.StatusRequest{})
	if err != nil || now.Instances > 64 || now.Streams > 64+8 {
		t.Errorf("one source holds %d instances by %d streams (%v), want at most 64 and 72", now.GetInstances(), now.GetStreams(), err)
	}
}
