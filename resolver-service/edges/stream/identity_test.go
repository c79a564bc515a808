package stream_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
)

// sourceOf is the identity of an app whose files were issued by ca, loaded.
func sourceOf(t *testing.T, ca *identitytest.CA, app catalog.App) *identity.Source {
	t.Helper()
	source, err := identity.New(ca.Config(app), app, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return source
}

// secured is a service with mTLS, with the identity of app.
func secured(t *testing.T, ca *identitytest.CA, as catalog.App, objects ...catalog.Object) *service {
	t.Helper()
	cfg := stream.Config{Operators: []catalog.App{identity.CLIApp("")}}
	creds := sourceOf(t, ca, as).ServerCredentials(identity.Anyone)
	return startWith(t, cfg, "127.0.0.1:0", quiet, []grpc.ServerOption{grpc.Creds(creds)}, objects...)
}

// filesOf is a component's identity from files issued by ca.
func filesOf(ca *identitytest.CA, app catalog.App) map[string]any {
	f := ca.Config(app).Files
	return map[string]any{"identity": map[string]any{"files": map[string]any{"cert": f.Cert, "key": f.Key, "ca": f.CA}}}
}

func TestSidecarsFindEachOtherOverMTLS(t *testing.T) {
	ca := identitytest.NewCA(t)
	s := secured(t, ca, identity.ServiceApp("", "west"), selection(checkout, orders))
	c := sidecarOf(t, s.address, checkout, 50001, filesOf(ca, checkout))
	sidecarOf(t, s.address, orders, 50002, filesOf(ca, orders))
	c.finds(orders, "127.0.0.1:50002")
}

func TestAnAppHasItsOwnViewOnly(t *testing.T) {
	ca := identitytest.NewCA(t)
	s := secured(t, ca, identity.ServiceApp("", "west"), selection(checkout, orders))
	as := func(app catalog.App) pb.ResolverClient {
		source := sourceOf(t, ca, app)
		conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(source.ClientCredentials(identity.OneOf(identity.ServiceApp("", "west")))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return pb.NewResolverClient(conn)
	}
	ctx, end := context.WithTimeout(t.Context(), patience)
	defer end()
	watch, err := as(orders).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(helloOf(checkout, "10.0.0.6:50002")); err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("orders asked for the view of checkout and got %v, %v", m, err)
	}
	if n := s.topology.Stats().Instances; n != 0 {
		t.Errorf("orders registered as checkout: %d instances", n)
	}
	for _, test := range []struct {
		caller catalog.App
		want   codes.Code
	}{{checkout, codes.OK}, {orders, codes.PermissionDenied}, {identity.CLIApp(""), codes.OK}} {
		_, err := as(test.caller).Resolve(ctx, &pb.ResolveRequest{Caller: wire.App(checkout), App: wire.App(orders)})
		if status.Code(err) != test.want {
			t.Errorf("%s asks for decisions of checkout: %v, want %v", test.caller, err, test.want)
		}
	}
}

// A sidecar accepts only the service of its own cluster.
func TestAWrongServiceIsRefused(t *testing.T) {
	ca := identitytest.NewCA(t)
	for what, service := range map[string]catalog.App{
		"another app":                    orders,
		"another cluster's service":      identity.ServiceApp("", "east"),
		"a service of another mesh":      identity.ServiceApp("elsewhere", "west"),
		"an app named as the service is": {Namespace: "shop", ID: "isthmus-west"},
	} {
		s := secured(t, ca, service, selection(checkout, orders))
		log := new(logged.Buffer)
		c := sidecarWith(t, slog.New(slog.NewTextHandler(log, nil)), s.address, checkout, 50001, filesOf(ca, checkout))
		for end := time.Now().Add(patience); !strings.Contains(log.String(), "isthmus-system/isthmus-west"); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the log does not say who was expected: %s", what, log.String())
			}
		}
		if _, ok := c.Gateways().Load(); ok {
			t.Errorf("%s: was believed", what)
		}
	}
	other := identitytest.NewCA(t)
	s := secured(t, other, identity.ServiceApp("", "west"), selection(checkout, orders))
	c := sidecarOf(t, s.address, checkout, 50001, filesOf(ca, checkout))
	time.Sleep(100 * time.Millisecond)
	if _, ok := c.Gateways().Load(); ok {
		t.Error("a service with a certificate of other roots was believed")
	}
}

func TestInsecureWarnsAtEveryStart(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0")
	log := new(logged.Buffer)
	sidecarWith(t, slog.New(slog.NewTextHandler(log, nil)), s.address, checkout, 50001, nil).finds(checkout, "127.0.0.1:50001")
	for end := time.Now().Add(patience); !strings.Contains(log.String(), "insecure"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no warning")
		}
	}
}
