package actors

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	placementv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/placement/v1"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
)

// TestATableWithoutPointsHasNoHosts has the placement service send replication factors that no ring has.
func TestATableWithoutPointsHasNoHosts(t *testing.T) {
	for _, factor := range []int64{0, -1, -1 << 63} {
		table := newTable(&placementv1.PlacementTables{ReplicationFactor: factor, Entries: map[string]*placementv1.PlacementTable{
			"Cart": {LoadMap: map[string]*placementv1.Host{"127.0.0.1:1": {Id: "carts"}, "127.0.0.1:2": nil}},
		}})
		if at, ok := table.host("Cart", "1"); ok {
			t.Errorf("replication factor %d: the host is %v, want none", factor, at)
		}
	}
}

// TestAnActorsOwnErrorIsNotRepeated has an actor say of its own what sidecars say of an actor that has
// moved, as one that hands on the error of another actor does.
func TestAnActorsOwnErrorIsNotRepeated(t *testing.T) {
	for _, says := range []string{
		"error from actor service: (500) cart 7: remote actor moved",
		"error invoke actor method: error from actor service: (500) placement is disseminating",
	} {
		w := start(t, eastView)
		h := &host{do: func(context.Context, *internalv1.InternalInvokeRequest) error {
			return status.Error(codes.Internal, says)
		}}
		_, address := w.host(t, h)
		w.hosts("carts", address)
		_, err := w.call(t, id("public", "shop", "isthmus-actors-west"), "shop/checkout", cart("1", "add"))
		if status.Code(err) != codes.Internal || h.calls.Load() != 1 {
			t.Errorf("%q: %v after %d calls, want one", says, err, h.calls.Load())
		}
	}
}

// TestNoCallerFillsTheLog has an app make up types, and one longer than any object can name.
func TestNoCallerFillsTheLog(t *testing.T) {
	w := start(t, westView)
	req := cart("1", "add")
	req.Actor.ActorType = strings.Repeat("x", 1<<20)
	_, err := w.call(t, id("public", "shop", "checkout"), "", req)
	if status.Code(err) != codes.InvalidArgument || len(err.Error()) > 1000 {
		t.Errorf("a type of 1 MiB: %s with a text of %d bytes, want %s and a short one", status.Code(err), len(err.Error()), codes.InvalidArgument)
	}
}

// TestHeadersThatAppsReadAlikeAreTakenOut forges the bridge's headers as servers that make variables of
// headers, such as WSGI's and CGI's, would read them.
func TestHeadersThatAppsReadAlikeAreTakenOut(t *testing.T) {
	w := start(t, eastView)
	h := &host{do: func(_ context.Context, req *internalv1.InternalInvokeRequest) error {
		for name := range req.GetMetadata() {
			if strings.Contains(name, "_") {
				t.Errorf("the host got %s", name)
			}
		}
		return nil
	}}
	_, address := w.host(t, h)
	w.hosts("carts", address)
	req := cart("1", "add")
	req.Metadata = map[string]*internalv1.ListStringValue{}
	for _, name := range []string{"Isthmus_Actor_Caller", "isthmus-actor_bridged", "isthmus_actor-caller", "dapr_api_token"} {
		req.Metadata[name] = &internalv1.ListStringValue{Values: []string{"forged"}}
	}
	if _, err := w.call(t, id("public", "shop", "isthmus-actors-west"), "shop/checkout", req); err != nil {
		t.Error(err)
	}
}

// TestAnOwnBridgeIsNoOther has the bridge of the same cluster speak for an app.
func TestAnOwnBridgeIsNoOther(t *testing.T) {
	w := start(t, eastView)
	for _, app := range []string{"isthmus-actors-east", "isthmus-actors-", "isthmus-actors-north", "isthmus-actors-WEST"} {
		if _, err := w.call(t, id("public", "shop", app), "shop/checkout", cart("1", "add")); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", app, err)
		}
	}
}

// TestACallThatOutlastsTheBridgeMayHaveRun has the bridge end while an actor takes its time.
func TestACallThatOutlastsTheBridgeMayHaveRun(t *testing.T) {
	w := start(t, eastView)
	h := &host{do: func(ctx context.Context, _ *internalv1.InternalInvokeRequest) error {
		w.cut()
		<-ctx.Done()
		return ctx.Err()
	}}
	_, address := w.host(t, h)
	w.hosts("carts", address)
	_, err := w.call(t, id("public", "shop", "isthmus-actors-west"), "shop/checkout", cart("1", "add"))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "may have run") || h.calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, h.calls.Load())
	}
}

// views is a resolver service that answers with one view.
type views struct {
	v1alpha1.UnimplementedActorsServer
	cluster string
}

func (v views) Watch(_ *v1alpha1.ActorsRequest, stream grpc.ServerStreamingServer[v1alpha1.ActorsResponse]) error {
	if err := stream.Send(&v1alpha1.ActorsResponse{Cluster: v.cluster}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// TestTheViewComesFromAnyReplica has the first of two addresses of the resolver service be away.
func TestTheViewComesFromAnyReplica(t *testing.T) {
	w := start(t, westView)
	app := identity.ServiceApp(identity.SystemNamespace, "west")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(w.source(t, identitytest.TrustDomain, app).ServerCredentials(identity.Anyone)))
	v1alpha1.RegisterActorsServer(server, views{cluster: "west"})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	w.cfg.Resolver, w.cfg.ResolverNamespace = "127.0.0.1:1, "+listener.Addr().String(), identity.SystemNamespace
	_, _, changed := w.view.Follow()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.follow(ctx) }()
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("no view came in a minute")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestTheBridgeEndsWhileNobodyAnswers has the placement service and the resolver service take
// connections, and say nothing.
func TestTheBridgeEndsWhileNobodyAnswers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // the kernel takes connections for it
	app := catalog.BridgeApp("shop", "west")
	ca := identitytest.NewCA(t)
	b, err := New(&Config{
		Cluster: "west", Namespace: "shop", Identity: trustbundle.Identity{Config: ca.Config(app)}, Listen: "127.0.0.1:0", Metrics: noMetrics,
		Placement: silent.Addr().String(), Resolver: silent.Addr().String(), ResolverNamespace: identity.SystemNamespace, bodySize: 4 << 20,
	}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	if err := b.identity.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it runs on after a minute")
	}
}
