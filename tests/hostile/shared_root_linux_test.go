package hostile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// pair is two clusters with a Sentry each, whose issuers come from one root.
type pair struct {
	box        *sandbox.Sandbox
	authority  *sandbox.Authority
	west, east *sandbox.Cluster
}

func newPair(t *testing.T) *pair {
	t.Helper()
	needs(t, "isthmus", "daprd", "sentry")
	p := &pair{}
	var err error
	if p.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	if p.box, err = sandbox.New(t.TempDir(), quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.box.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]**sandbox.Cluster{"west": &p.west, "east": &p.east} {
		*c, err = p.box.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{
			Name: name, Authority: p.authority, TrustDomain: name + ".example",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.apply(t, p.west, meshtest.Cluster("east", p.east.Gateway), meshtest.Export("shop", "orders", "east"))
	p.apply(t, p.east, meshtest.Cluster("west", p.west.Gateway))
	return p
}

// apply writes objects as the operator of a cluster.
func (p *pair) apply(t *testing.T, c *sandbox.Cluster, objects ...string) {
	t.Helper()
	as := certificateFiles(t, p.authority, c.Sentry.TrustDomain, identity.CLIApp(""))
	if _, err := commandLine(t, c.Resolver, as, strings.Join(objects, "---\n"), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// sidecar starts an app with a real daprd.
func (p *pair) sidecar(t *testing.T, c *sandbox.Cluster, id string) *sandbox.Sidecar {
	t.Helper()
	s, err := c.Sidecar(meshtest.Within(t, meshtest.Patience), sandbox.SidecarOptions{
		App: app(id),
		Component: map[string]any{"identity": map[string]any{"sentry": map[string]any{
			"address": c.Sentry.Address, "trustAnchorsFile": c.Sentry.AnchorsFile,
			"trustDomain": c.Sentry.TrustDomain, "appTrustDomain": c.Sentry.TrustDomain,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fromSentry is a gRPC client with a certificate that a cluster's real Sentry gave to an app.
func fromSentry(t *testing.T, c *sandbox.Cluster, trustDomain string, a catalog.App, address, serverName string) *grpc.ClientConn {
	t.Helper()
	source, err := identity.New(identity.Config{Sentry: &identity.Sentry{
		Address: c.Sentry.Address, TrustAnchorsFile: c.Sentry.AnchorsFile,
		TrustDomain: c.Sentry.TrustDomain, AppTrustDomain: trustDomain,
	}}, a, slog.New(slog.DiscardHandler))
	if err == nil {
		err = source.Load(meshtest.Within(t, meshtest.Patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	options := []grpc.DialOption{grpc.WithNoProxy(), grpc.WithTransportCredentials(source.ClientCredentials(identity.Anyone))}
	if serverName != "" {
		options = append(options, grpc.WithAuthority(serverName))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// method is one call of the resolver service.
type method struct {
	name string
	call func(ctx context.Context, conn *grpc.ClientConn, as catalog.App) error
}

// methods are all but those of Peering.
var methods = []method{
	{"Watch", func(ctx context.Context, conn *grpc.ClientConn, as catalog.App) error {
		stream, err := watch(ctx, conn, as, "")
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}},
	{"Watch and register", func(ctx context.Context, conn *grpc.ClientConn, as catalog.App) error {
		stream, err := watch(ctx, conn, as, "127.0.0.1:9")
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}},
	{"Resolve", func(ctx context.Context, conn *grpc.ClientConn, as catalog.App) error {
		_, err := v1alpha1.NewResolverClient(conn).Resolve(ctx, &v1alpha1.ResolveRequest{Caller: wire.App(as), App: wire.App(app("orders"))})
		return err
	}},
	{"Objects.Get", func(ctx context.Context, conn *grpc.ClientConn, _ catalog.App) error {
		_, err := v1alpha1.NewObjectsClient(conn).Get(ctx, &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{}})
		return err
	}},
	{"Objects.Apply", func(ctx context.Context, conn *grpc.ClientConn, _ catalog.App) error {
		_, err := v1alpha1.NewObjectsClient(conn).Apply(ctx, &v1alpha1.ApplyRequest{DryRun: true})
		return err
	}},
	{"Objects.Delete", func(ctx context.Context, conn *grpc.ClientConn, _ catalog.App) error {
		_, err := v1alpha1.NewObjectsClient(conn).Delete(ctx, &v1alpha1.DeleteRequest{DryRun: true})
		return err
	}},
	{"Objects.History", func(ctx context.Context, conn *grpc.ClientConn, _ catalog.App) error {
		_, err := v1alpha1.NewObjectsClient(conn).History(ctx, &v1alpha1.HistoryRequest{Key: &v1alpha1.ObjectKey{Kind: "Cluster", Name: "east"}})
		return err
	}},
	{"Status", func(ctx context.Context, conn *grpc.ClientConn, _ catalog.App) error {
		_, err := v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{})
		return err
	}},
}

// renewAs asks for a lease as a cluster.
func renewAs(ctx context.Context, conn *grpc.ClientConn, cluster string) error {
	stream, err := v1alpha1.NewPeeringClient(conn).Renew(ctx)
	if err == nil {
		_ = stream.Send(&v1alpha1.RenewRequest{Cluster: cluster, Ping: 1}) // Recv has the reason
		_, err = stream.Recv()
	}
	return err
}

// TestC1NobodyReachesMoreThanPeeringThroughTheGateway: whatever the certificate, and whether
// Sentry gave it in this cluster or another with the same root.
func TestC1NobodyReachesMoreThanPeeringThroughTheGateway(t *testing.T) {
	p := newPair(t)
	peer := fromSentry(t, p.east, eastDomain, identity.ServiceApp("", "east"), p.west.Gateway, resolverName)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		return renewAs(meshtest.Within(t, meshtest.Attempt), peer, "east")
	})
	for _, c := range []struct {
		who    string
		from   *sandbox.Cluster
		domain string
		as     catalog.App
	}{
		{"a foreign app of the same name", p.east, eastDomain, app("orders")},
		{"a foreign operator", p.east, eastDomain, identity.CLIApp("")},
		{"a foreign operator with this cluster's trust domain", p.east, westDomain, identity.CLIApp("")},
		{"a peer", p.east, eastDomain, identity.ServiceApp("", "east")},
		{"a cluster that no object names", p.east, eastDomain, identity.ServiceApp("", "nowhere")},
		{"an app of this cluster", p.west, westDomain, app("orders")},
		{"an operator of this cluster", p.west, westDomain, identity.CLIApp("")},
		{"this cluster's own service", p.west, westDomain, identity.ServiceApp("", "west")},
	} {
		conn := fromSentry(t, c.from, c.domain, c.as, p.west.Gateway, resolverName)
		for _, m := range methods {
			t.Run(c.who+"/"+m.name, func(t *testing.T) {
				refused(t, m.call(meshtest.Within(t, meshtest.Attempt), conn, c.as))
			})
		}
		if c.who != "a peer" {
			t.Run(c.who+"/Peering.Renew", func(t *testing.T) {
				refused(t, renewAs(meshtest.Within(t, meshtest.Attempt), conn, "east"))
				refused(t, renewAs(meshtest.Within(t, meshtest.Attempt), conn, "nowhere"))
			})
		}
	}
}

// refused wants an error that says so. Unavailable is a handshake that was refused.
func refused(t *testing.T, err error) {
	t.Helper()
	if code := status.Code(err); !slices.Contains([]codes.Code{codes.PermissionDenied, codes.Unimplemented, codes.Unavailable}, code) {
		t.Errorf("got %v, want to be refused", err)
	}
}

// TestC1CertificatesOfAnotherTrustDomainDoNotCountAtTheResolver: a shared root makes nobody of
// another trust domain a sidecar or operator here.
func TestC1CertificatesOfAnotherTrustDomainDoNotCountAtTheResolver(t *testing.T) {
	p := newPair(t)
	for _, c := range []struct {
		who string
		as  catalog.App
	}{
		{"an app", app("orders")}, {"an operator", identity.CLIApp("")}, {"a peer", identity.ServiceApp("", "east")},
	} {
		conn := fromSentry(t, p.east, eastDomain, c.as, p.west.Resolver, "")
		for _, m := range methods {
			t.Run(c.who+"/"+m.name, func(t *testing.T) {
				refused(t, m.call(meshtest.Within(t, meshtest.Attempt), conn, c.as))
			})
		}
		t.Run(c.who+"/Peering.Renew", func(t *testing.T) {
			refused(t, renewAs(meshtest.Within(t, meshtest.Attempt), conn, "east"))
		})
	}
	own := fromSentry(t, p.west, westDomain, app("orders"), p.west.Resolver, "")
	if err := methods[0].call(meshtest.Within(t, meshtest.Attempt), own, app("orders")); err != nil {
		t.Errorf("an app of this cluster is refused: %v", err)
	}
}

// TestC1CallsStayInTheClusterWhileAForeignAppPosesAsTheCallee: real sidecars call each other in
// west, while an app of east, which has the same id and the same root, tries to take the calls.
func TestC1CallsStayInTheClusterWhileAForeignAppPosesAsTheCallee(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.sidecar(t, p.west, "orders")
	checkout := p.sidecar(t, p.west, "checkout")
	foreign := p.sidecar(t, p.east, "orders") // answers with "east" whoever is led to it
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", nil)
		return err
	})
	ctx, end := context.WithCancel(t.Context())
	var posing sync.WaitGroup
	var tries atomic.Int64
	for _, way := range []*grpc.ClientConn{
		fromSentry(t, p.east, eastDomain, app("orders"), p.west.Gateway, resolverName),
		fromSentry(t, p.east, eastDomain, app("orders"), p.west.Resolver, ""),
	} {
		posing.Go(func() {
			for ctx.Err() == nil {
				hold, let := context.WithTimeout(ctx, time.Second)
				stream, err := watch(hold, way, app("orders"), foreign.Internal)
				for err == nil {
					_, err = stream.Recv() // holds the place for as long as it may
				}
				let()
				tries.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	defer posing.Wait()
	defer end()
	astray, calls := 0, 0
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until) || calls < 100 || tries.Load() < 4; calls++ {
		reply, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", nil)
		if err == nil && reply.Cluster != "west" {
			err = fmt.Errorf("%s in %s answered", reply.App, reply.Cluster)
		}
		if err != nil {
			if astray++; astray == 1 {
				t.Logf("call %d: %v", calls, err)
			}
		}
	}
	if astray > 0 || foreign.Behind.Calls() > 0 {
		t.Errorf("%d of %d calls failed or went astray; the foreign app had %d", astray, calls, foreign.Behind.Calls())
	}
	t.Logf("%d calls, %d tries to take them", calls, tries.Load())
}
