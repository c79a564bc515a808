package hostile

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// instance is an AppInstance without a check, in YAML.
func instance(name, id, address string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: AppInstance\nmetadata: {namespace: shop, name: %s}\nspec: {app: %s, address: %q}\n", name, id, address)
}

// tryRegister registers an instance in every way that an attacker may try. A refusal is fine.
func (s *stage) tryRegister(t *testing.T, id, address string) {
	t.Helper()
	stream, err := watch(t.Context(), s.own(t, id).client(t, s.Resolver, ""), app(id), address)
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Logf("registered by a stream at %s: %v", address, err)
	}
	name := id + "-" + strings.NewReplacer(".", "-", ":", "-").Replace(address)
	if _, err := s.isthmus(t, instance(name, id, address), "apply", "-f", "-"); err != nil {
		t.Logf("registered by an object at %s: %v", address, err)
	}
}

// bounded opens connections that name a server, and wants the service to hold few descriptors.
func bounded(t *testing.T, serverName string, stages ...*stage) {
	t.Helper()
	before := make([]usage, len(stages))
	for i, s := range stages {
		before[i] = usageOf(t, s.Process)
	}
	hello := clientHello(t, serverName)
	for range 3 {
		conn, err := caller{}.dial(t.Context(), stages[0].Gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write(hello)
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i, s := range stages {
			if now := usageOf(t, s.Process); now.descriptors > before[i].descriptors+60 {
				t.Fatalf("3 connections: %s, before %s", now, before[i])
			}
		}
	}
}

// TestH2AGatewayIsNotLedToItself: an exported app at the address of the gateway itself.
func TestH2AGatewayIsNotLedToItself(t *testing.T) {
	for what, at := range map[string]string{"at its address": "", "at another address of a wildcard": "127.0.0.5"} {
		t.Run(what, func(t *testing.T) {
			settings := map[string]any{}
			if at != "" {
				port, err := sandbox.FreePort()
				if err != nil {
					t.Fatal(err)
				}
				settings["gatewayAt"] = fmt.Sprintf("0.0.0.0:%d", port)
			}
			s := newStage(t, settings)
			others := s.honestCalls(t)
			target := s.Gateway
			if at != "" {
				_, port, _ := net.SplitHostPort(s.Gateway)
				target = net.JoinHostPort(at, port)
			}
			s.apply(t, meshtest.Export("shop", "loop", `"*"`))
			s.tryRegister(t, "loop", target)
			bounded(t, "loop.shop.west.isthmus.internal", s)
			others.goOn(t, 2)
		})
	}
}

// TestH2TwoGatewaysDoNotBounceAConnection: an exported app that each of two gateways finds at
// the other, under a name that leads to both.
func TestH2TwoGatewaysDoNotBounceAConnection(t *testing.T) {
	one, two := newStage(t, nil), newStage(t, nil)
	for s, other := range map[*stage]*stage{one: two, two: one} {
		s.apply(t, meshtest.Export("shop", "loop", `"*"`))
		s.tryRegister(t, "loop", other.Gateway)
	}
	bounded(t, "loop.shop.isthmus.internal", one, two)
}

// TestH2NoListenerOfTheServiceIsAnInstance: of any app, exported or not.
func TestH2NoListenerOfTheServiceIsAnInstance(t *testing.T) {
	s := newStage(t, nil)
	cli := certified(t, s.authority, westDomain, identity.CLIApp("")).client(t, s.Resolver, "")
	for name, address := range map[string]string{
		"resolver": s.Resolver, "gateway": s.Gateway, "apps": s.apps, "dns": s.dns, "consul": s.consul, "admin": s.Admin, "debug": s.debug,
	} {
		t.Run(name, func(t *testing.T) {
			s.tryRegister(t, "self-"+name, address)
			d, err := v1alpha1.NewResolverClient(cli).Resolve(t.Context(), &v1alpha1.ResolveRequest{
				Caller: wire.App(app("checkout")), App: wire.App(app("self-" + name)),
			})
			if err != nil || d.Address != "" {
				t.Errorf("an app is led to %s (%v)", d, err)
			}
		})
	}
}

// secret is a server on the service's machine that nobody outside may reach.
func secret(t *testing.T, s *site, at string) *atomic.Int64 {
	t.Helper()
	var l net.Listener
	err := s.place.Do(func() (err error) { l, err = net.Listen("tcp", at); return err })
	if err != nil {
		t.Fatal(err)
	}
	reached := new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return reached
}

// TestH3TheGatewayReachesNoLocalServer: whoever may register instances of an exported app, or
// write objects, leads the gateway neither to loopback nor to link-local addresses. Checks of
// instances do not go there, either.
func TestH3TheGatewayReachesNoLocalServer(t *testing.T) {
	metadata := netip.MustParseAddr("169.254.169.254")
	s := newSite(t, map[string]any{"development": map[string]any{"loopback": false}}, metadata)
	outside, _ := s.host(t, malloryHost)
	operator := s.client(t, s.place, identity.CLIApp(""))
	ctx := meshtest.Within(t, meshtest.Patience)
	for n, at := range []string{"127.0.0.1:9100", "127.9.9.9:9100", "169.254.169.254:80"} {
		t.Run(at, func(t *testing.T) {
			id := fmt.Sprint("leak-", n)
			reached := secret(t, s, at)
			_, port, _ := net.SplitHostPort(at)
			apply := func(object string) {
				if _, err := v1alpha1.NewObjectsClient(operator).Apply(ctx, &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: []byte(object)}}}); err != nil {
					t.Logf("applied: %v", err)
				}
			}
			apply(fmt.Sprintf(`{"apiVersion": "isthmus.dev/v1alpha1", "kind": "AppExport", "metadata": {"namespace": "shop", "name": %q}, "spec": {"allow": [{"cluster": "*"}]}}`, id))
			apply(fmt.Sprintf(`{"apiVersion": "isthmus.dev/v1alpha1", "kind": "AppInstance", "metadata": {"namespace": "shop", "name": "%s-a"}, "spec": {"app": %q, "address": %q}}`, id, id, at))
			stream, err := watch(ctx, s.client(t, s.place, app(id)), app(id), at)
			if err == nil {
				_, err = stream.Recv()
			}
			t.Logf("registered: %v", err)
			for range 5 {
				conn, err := outside.Dial(ctx, "tcp", s.gateway)
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(clientHello(t, id+".shop.west.isthmus.internal"))
				conn.SetReadDeadline(time.Now().Add(meshtest.Attempt))
				conn.Read(make([]byte, 1)) // an alert, or the secret's end
				conn.Close()
			}
			if n := reached.Swap(0); n > 0 {
				t.Errorf("the gateway reached %s %d times", at, n)
			}
			apply(fmt.Sprintf(`{"apiVersion": "isthmus.dev/v1alpha1", "kind": "AppInstance", "metadata": {"namespace": "shop", "name": "%s-b"}, "spec": {"app": "%s-checked", "address": %q, "check": {"interval": "100ms", "http": {"port": %s, "path": "/latest/meta-data"}}}}`, id, id, at, port))
			time.Sleep(500 * time.Millisecond) // for checks
			if n := reached.Load(); n > 0 {
				t.Errorf("checks reached %s %d times", at, n)
			}
		})
	}
}

// TestM1OneSourceDoesNotTakeEveryConnectionOfTheGateway: it opens as many as it may to an app.
func TestM1OneSourceDoesNotTakeEveryConnectionOfTheGateway(t *testing.T) {
	s := newStage(t, map[string]any{"gateway": map[string]any{"maxConnections": 300}})
	others := s.honestCalls(t)
	d := &door{name: "gateway", address: s.Gateway, network: 150}
	taken, refused := 0, 0
	for range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), meshtest.Attempt)
		conn, err := s.openOrders(ctx, d.from(0), s.Gateway)
		cancel()
		if err != nil {
			refused++
			continue
		}
		taken++
		t.Cleanup(func() { conn.NetConn().Close() })
	}
	t.Logf("one source has %d of 300 connections; %d were refused", taken, refused)
	others.goOn(t, 5)
}

// TestM1HalfAClientHelloCostsLittle: thousands that are nearly complete.
func TestM1HalfAClientHelloCostsLittle(t *testing.T) {
	s := newStage(t, nil)
	others := s.honestCalls(t)
	before := usageOf(t, s.Process)
	forgetPeak(t, s.Process)
	d := &door{name: "gateway", address: s.Gateway, network: 151}
	a := d.attack(t)
	most := endlessHello()[:60<<10]
	a.open(3000, func(c net.Conn) { c.Write(most) })
	others.goOn(t, 3)
	after := usageOf(t, s.Process)
	t.Logf("before %s; with 3000 half-open connections %s", before, after)
	if grown := after.peak - before.resident; grown > 128*mebi {
		t.Errorf("it took %d MiB more, want at most 128", grown/mebi)
	}
}
