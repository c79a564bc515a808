package hostile

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// stage is one service, cluster west, with every listener that there is, all on loopback. The
// app shop/orders runs behind it and is exported to everybody. Peers are east and north; what
// is done in north's name is done by an attacker.
type stage struct {
	*sandbox.Service
	box       *sandbox.Sandbox
	authority *sandbox.Authority // the root of every cluster
	operator  identity.Files

	apps, dns, dnsTLS, consul, debug, xds string // listeners

	orders string // where the app listens
	ca     string // the file with the roots that the service believes
}

const consulToken = "a-token-of-checkout"

// serverName of the resolver service at the gateway, and of the app.
const (
	resolverName = "_resolver.west.isthmus.internal"
	ordersName   = "orders.shop.west.isthmus.internal"
)

// newStage starts the service with more keys of isthmus.yaml.
func newStage(t *testing.T, settings map[string]any) *stage {
	t.Helper()
	needs(t, "isthmus")
	s := &stage{}
	var err error
	if s.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	if s.box, err = sandbox.New(t.TempDir(), quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.box.Close(); err != nil {
			t.Error(err)
		}
	})
	s.operator = certificateFiles(t, s.authority, westDomain, identity.CLIApp(""))
	s.start(t, settings)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Name(), s.Tail(25))
		}
	})
	return s
}

func (s *stage) start(t *testing.T, settings map[string]any) {
	t.Helper()
	own := certificateFiles(t, s.authority, westDomain, identity.ServiceApp("", "west"))
	cert, key, err := s.authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s.ca = own.CA
	server := keyFiles(t, cert, key, s.authority.Anchors())
	for _, address := range []*string{&s.apps, &s.dns, &s.dnsTLS, &s.consul, &s.debug, &s.xds} {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		*address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	all := map[string]any{
		"identity": map[string]any{"files": own},
		"dns":      map[string]any{"tls": map[string]any{"cert": server.Cert, "key": server.Key}},
		"consul":   map[string]any{"tokens": []any{map[string]any{"app": "shop/checkout", "token": map[string]any{"env": "CONSUL_TOKEN"}}}},
	}
	maps.Copy(all, settings)
	gateway := ""
	if at, ok := all["gatewayAt"]; ok { // no key of isthmus.yaml
		gateway = at.(string)
		delete(all, "gatewayAt")
	}
	s.Service, err = s.box.Service(meshtest.Within(t, meshtest.Patience), sandbox.ServiceOptions{
		Cluster: "west", Gateway: gateway, Settings: all, Env: []string{"CONSUL_TOKEN=" + consulToken},
		Listen: map[string]any{
			"apps": []any{map[string]any{"address": s.apps, "app": "shop/orders"}},
			"dns": []any{
				map[string]any{"address": s.dns, "as": "shop/checkout"},
				map[string]any{"address": s.dnsTLS, "as": "shop/checkout", "tls": true},
			},
			"consul": s.consul, "debug": s.debug, "xds": s.xds,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, meshtest.Cluster("east", "127.0.0.1:1"), meshtest.Cluster("north", "127.0.0.1:1"),
		meshtest.Export("shop", "orders", `"*"`))
	s.orders = s.echo(t)
	s.register(t, s.own(t, "orders"), app("orders"), s.orders)
	meshtest.Eventually(t, meshtest.Patience, func() error { return s.callOrders(t.Context(), caller{}, s.Gateway) })
}

// own is the certificate of an app of this cluster.
func (s *stage) own(t testing.TB, id string) caller {
	t.Helper()
	return certified(t, s.authority, westDomain, app(id))
}

// peer is the certificate of another cluster's resolver service.
func (s *stage) peer(t testing.TB, cluster string) caller {
	t.Helper()
	return certified(t, s.authority, cluster+".example", s.peerApp(cluster))
}

func (s *stage) peerApp(cluster string) catalog.App { return identity.ServiceApp("", cluster) }

// isthmus runs the command line as the operator.
func (s *stage) isthmus(t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	return commandLine(t, s.Resolver, s.operator, stdin, args...)
}

// commandLine runs "isthmus" against a resolver service, with a certificate from files.
func commandLine(t testing.TB, server string, as identity.Files, stdin string, args ...string) (string, error) {
	t.Helper()
	binary := programstest.Path(t, "isthmus")
	ctx, cancel := context.WithTimeout(t.Context(), meshtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "ISTHMUS_SERVER="+server, "ISTHMUS_IDENTITY="+filepath.Dir(as.Cert))
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("isthmus %s: %w: %s", args[0], err, &out)
	}
	return out.String(), nil
}

// apply writes objects.
func (s *stage) apply(t testing.TB, objects ...string) {
	t.Helper()
	if _, err := s.isthmus(t, strings.Join(objects, "---\n"), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// watch opens a stream as an app and sends its hello. An empty address registers nothing.
func watch(ctx context.Context, conn grpc.ClientConnInterface, a catalog.App, address string) (v1alpha1.Resolver_WatchClient, error) {
	return watchAs(ctx, conn, a, a.ID+"@"+address, address)
}

// watchAs is [watch] for an instance with an ID of its own.
func watchAs(ctx context.Context, conn grpc.ClientConnInterface, a catalog.App, id, address string) (v1alpha1.Resolver_WatchClient, error) {
	stream, err := v1alpha1.NewResolverClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	hello := &v1alpha1.Hello{App: wire.App(a)}
	if address != "" {
		hello.Instance = &v1alpha1.Instance{Id: id, Address: address}
	}
	_ = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}}) // Recv has the reason
	return stream, nil
}

// register registers an instance until the test ends.
func (s *stage) register(t testing.TB, as caller, a catalog.App, address string) {
	t.Helper()
	stream, err := watch(t.Context(), as.client(t, s.Resolver, ""), a, address)
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatalf("register %s at %s: %v", a, address, err)
	}
	go func() { // takes the updates until the connection is closed
		for err == nil {
			_, err = stream.Recv()
		}
	}()
}

// echo starts an app that sends back what it gets, over mTLS as a sidecar would.
func (s *stage) echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.own(t, "orders").tls("")
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { echoOn(t.Context(), conn, cfg) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}
