package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"go.opentelemetry.io/otel/trace/noop"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
)

// world is a bridge at a port, beside what it needs: no resolver service, and a table of hosts that the
// test writes.
type world struct {
	*Bridge
	ca      *identitytest.CA
	address string
}

func serve(t testing.TB, creds grpc.ServerOption, service internalv1.ServiceInvocationServer) (*grpc.Server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(creds)
	internalv1.RegisterServiceInvocationServer(server, service)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it is stopped below
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return server, listener.Addr().String()
}

func start(t testing.TB, view *catalog.ActorView) *world {
	t.Helper()
	w := &world{ca: identitytest.NewCA(t)}
	app := catalog.BridgeApp(view.Namespace, view.Cluster)
	b, err := New(&Config{
		Cluster: view.Cluster, Namespace: view.Namespace, Identity: trustbundle.Identity{Config: w.ca.Config(app)}, Placement: "127.0.0.1:1", bodySize: 4 << 20,
	}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.identity.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Bridge, b.tracer = b, noop.NewTracerProvider().Tracer("")
	_, w.address = serve(t, grpc.Creds(b.identity.ServerCredentials(identity.Anyone)), b)
	b.placement = newPlacement(b, w.address)
	t.Cleanup(func() { b.placement.forget(nil) })
	b.view.Store(view)
	return w
}

// source is the identity of an app in a trust domain.
func (w *world) source(t testing.TB, domain string, app catalog.App) *identity.Source {
	t.Helper()
	source, err := identity.New(w.ca.Config(app, identitytest.In(t, domain, app)), app, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return source
}

// call has an app call an actor of the type Cart at the bridge; caller is empty for an app's own call.
func (w *world) call(t testing.TB, by identity.ID, caller string, req *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+w.address, grpc.WithTransportCredentials(w.source(t, by.TrustDomain, by.App).ClientCredentials(identity.Anyone)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := t.Context()
	if caller != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, callerHeader, caller)
	}
	return internalv1.NewServiceInvocationClient(conn).CallActor(ctx, req, grpc.WaitForReady(true))
}

func cart(id, method string) *internalv1.InternalInvokeRequest {
	return &internalv1.InternalInvokeRequest{
		Actor: &internalv1.Actor{ActorType: "Cart", ActorId: id}, Message: protowire.AppendString(protowire.AppendTag(nil, methodField, protowire.BytesType), method),
	}
}

// host is a sidecar that hosts actors.
type host struct {
	internalv1.UnimplementedServiceInvocationServer
	calls atomic.Int32
	do    func(context.Context, *internalv1.InternalInvokeRequest) error
}

func (h *host) CallActor(ctx context.Context, req *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	h.calls.Add(1)
	if h.do != nil {
		if err := h.do(ctx, req); err != nil {
			return nil, err
		}
	}
	return &internalv1.InternalInvokeResponse{Status: &internalv1.Status{Code: 200}}, nil
}

// hosts has these addresses host the type Cart, by an app.
func (w *world) hosts(app string, addresses ...string) {
	r := &ring{points: 10}
	t := &table{types: map[string]*ring{"Cart": r}, all: map[string]struct{}{}}
	for _, address := range addresses {
		r.hosts = append(r.hosts, hostKey{address, app})
		t.all[address] = struct{}{}
	}
	w.placement.table.Store(t)
}

// host starts a sidecar of the app carts in the bridge's namespace.
func (w *world) host(t testing.TB, h *host) (*grpc.Server, string) {
	t.Helper()
	return serve(t, grpc.Creds(w.source(t, identitytest.TrustDomain, catalog.App{Namespace: "shop", ID: "carts"}).ServerCredentials(identity.Anyone)), h)
}

var westView = &catalog.ActorView{Namespace: "shop", Cluster: "west", Domains: []string{"west.example"}, Imports: []catalog.ActorImport{{
	Type: "Cart", Owner: "east", Callers: []string{"checkout"}, Allow: []catalog.Allow{{Cluster: "west"}}, Stale: true, // so that an allowed call ends here
}}}

var eastView = &catalog.ActorView{Namespace: "shop", Cluster: "east", Clusters: []catalog.ActorCluster{{Name: "west", Domain: "public"}},
	Owned: []catalog.OwnedActors{{Type: "Cart", Allow: []catalog.Allow{{Cluster: "west", App: "checkout"}}}}}

func id(domain, namespace, app string) identity.ID {
	return identity.ID{TrustDomain: domain, App: catalog.App{Namespace: namespace, ID: app}}
}

// TestAppsOfTheClusterAreLed has calls come that a bridge must not pass on, and one that it may.
func TestAppsOfTheClusterAreLed(t *testing.T) {
	w := start(t, westView)
	for _, c := range []struct {
		name string
		by   identity.ID
		code codes.Code
		says string
	}{
		{"an app that may", id("public", "shop", "checkout"), codes.FailedPrecondition, "ERR_ISTHMUS_STALE"},
		{"one of a trust domain that the service names", id("west.example", "shop", "checkout"), codes.FailedPrecondition, "ERR_ISTHMUS_STALE"},
		{"one that may not", id("public", "shop", "mallory"), codes.PermissionDenied, "ERR_ISTHMUS_DENIED: shop/mallory may not call actors of type Cart"},
		{"one of another trust domain", id("north.example", "shop", "checkout"), codes.PermissionDenied, "shop/checkout of trust domain north.example is an app of another cluster"},
		{"the bridge of another trust domain", id("north.example", "shop", "isthmus-actors-north"), codes.PermissionDenied, "is an app of another cluster"},
		{"one of another namespace", id("public", "evil", "checkout"), codes.PermissionDenied, "evil/checkout is not of namespace shop"},
		{"one of both", id("north.example", "evil", "checkout"), codes.PermissionDenied, "is an app of another cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := w.call(t, c.by, "", cart("42", "add")); status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s, %s", err, c.code, c.says)
			}
		})
	}
}

// TestOnlyAnotherClustersBridgeIsTakenIn holds the owner's side to the caller's certificate.
func TestOnlyAnotherClustersBridgeIsTakenIn(t *testing.T) {
	w := start(t, eastView)
	var got *internalv1.InternalInvokeRequest
	h := &host{do: func(_ context.Context, req *internalv1.InternalInvokeRequest) error {
		got = req
		return nil
	}}
	_, address := w.host(t, h)
	w.hosts("carts", address)
	west := id("public", "shop", "isthmus-actors-west")
	for _, c := range []struct {
		name   string
		by     identity.ID
		caller string
		req    *internalv1.InternalInvokeRequest
		code   codes.Code
		says   string
	}{
		{"the bridge of west for an app that may", west, "shop/checkout", cart("a b:ü", "add/more"), codes.OK, ""},
		{"the bridge of west for one that may not", west, "shop/mallory", cart("1", "add"), codes.PermissionDenied, "add it to spec.allow"},
		{"the bridge of west for one of another namespace", west, "evil/checkout", cart("1", "add"), codes.PermissionDenied, "only apps of a type's own namespace"},
		{"the bridge of west for no app", west, "checkout", cart("1", "add"), codes.InvalidArgument, callerHeader},
		{"an app that says it speaks for another", id("public", "shop", "mallory"), "shop/checkout", cart("1", "add"), codes.PermissionDenied, "is not the bridge of another cluster"},
		{"a bridge of another trust domain", id("elsewhere", "shop", "isthmus-actors-west"), "shop/checkout", cart("1", "add"), codes.PermissionDenied, "is not of the trust domain"},
		{"a bridge of another namespace", id("public", "finance", "isthmus-actors-west"), "shop/checkout", cart("1", "add"), codes.PermissionDenied, "is not the bridge of another cluster"},
		{"an id that leads elsewhere", west, "shop/checkout", cart("..", "add"), codes.InvalidArgument, `".." is no part`},
		{"a method that leads elsewhere", west, "shop/checkout", cart("1", "../../shutdown"), codes.InvalidArgument, `".." is no part`},
		{"a method with a query", west, "shop/checkout", cart("1", "add?x=1"), codes.InvalidArgument, "is no part"},
		{"no method", west, "shop/checkout", &internalv1.InternalInvokeRequest{Actor: &internalv1.Actor{ActorType: "Cart", ActorId: "1"}}, codes.InvalidArgument, "no method"},
		{"two methods", west, "shop/checkout", &internalv1.InternalInvokeRequest{Actor: &internalv1.Actor{ActorType: "Cart", ActorId: "1"},
			Message: append(cart("1", "../x").GetMessage(), cart("1", "add").GetMessage()...)}, codes.InvalidArgument, `".." is no part`},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := h.calls.Load()
			c.req.Metadata = map[string]*internalv1.ListStringValue{"X-Mine": {Values: []string{"7"}}}
			for _, forged := range []string{"Isthmus-Actor-Caller", "isthmus-actor-bridged", "ISTHMUS-Caller", "Dapr-Api-Token", "X-Dapr-Remote", "Dapr-Caller-App-Id"} {
				c.req.Metadata[forged] = &internalv1.ListStringValue{Values: []string{"forged"}}
			}
			_, err := w.call(t, c.by, c.caller, c.req)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) || (h.calls.Load() == before+1) != (c.code == codes.OK) {
				t.Errorf("%v with %d calls made, want %s, %s", err, h.calls.Load()-before, c.code, c.says)
			}
			if c.code != codes.OK {
				return
			}
			header := fmt.Sprint(got.GetMetadata())
			if strings.Contains(header, "forged") || len(got.GetMetadata()) != 3 || got.GetMetadata()[callerHeader].GetValues()[0] != "shop/checkout" || got.GetMetadata()[bridgedHeader].GetValues()[0] != "west" {
				t.Errorf("the host got %s", header)
			}
			if got.GetActor().GetActorId() != "a b:ü" || string(got.GetMessage()) != string(c.req.GetMessage()) {
				t.Errorf("the host got the call %v", got)
			}
		})
	}
}

// TestOnlyWhatHasNotRunIsTriedAgain has hosts fail in each way.
func TestOnlyWhatHasNotRunIsTriedAgain(t *testing.T) {
	west := id("public", "shop", "isthmus-actors-west")
	call := func(t *testing.T, w *world) error {
		_, err := w.call(t, west, "shop/checkout", cart("1", "add"))
		return err
	}
	t.Run("a host that refuses connections is left for the next table", func(t *testing.T) {
		w := start(t, eastView)
		h := &host{}
		_, address := w.host(t, h)
		gone, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		gone.Close()
		w.hosts("carts", gone.Addr().String())
		next := time.AfterFunc(50*time.Millisecond, func() { w.hosts("carts", address) })
		defer next.Stop()
		if err := call(t, w); err != nil || h.calls.Load() != 1 {
			t.Errorf("%v, %d calls; want one", err, h.calls.Load())
		}
	})
	t.Run("an actor that has moved is looked for", func(t *testing.T) {
		w := start(t, eastView)
		h := &host{}
		_, address := w.host(t, h)
		old := &host{}
		old.do = func(context.Context, *internalv1.InternalInvokeRequest) error {
			w.hosts("carts", address)
			return status.Error(codes.Internal, "error invoke actor method: remote actor moved")
		}
		_, before := w.host(t, old)
		w.hosts("carts", before)
		if err := call(t, w); err != nil || old.calls.Load() != 1 || h.calls.Load() != 1 {
			t.Errorf("%v, %d and %d calls; want one of each", err, old.calls.Load(), h.calls.Load())
		}
	})
	t.Run("a call that is cut off is not repeated", func(t *testing.T) {
		w := start(t, eastView)
		var server *grpc.Server
		h := &host{}
		h.do = func(ctx context.Context, _ *internalv1.InternalInvokeRequest) error {
			go server.Stop()
			<-ctx.Done()
			return ctx.Err()
		}
		server, address := w.host(t, h)
		w.hosts("carts", address)
		if err := call(t, w); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "may have run") || h.calls.Load() != 1 {
			t.Errorf("%v, %d calls; want one that may have run, with a code that no sidecar tries again", err, h.calls.Load())
		}
	})
	t.Run("an error of the actor goes back as it is", func(t *testing.T) {
		w := start(t, eastView)
		h := &host{do: func(context.Context, *internalv1.InternalInvokeRequest) error {
			return status.Error(codes.Internal, "error from actor service: (418) no tea")
		}}
		_, address := w.host(t, h)
		w.hosts("carts", address)
		if err := call(t, w); status.Code(err) != codes.Internal || status.Convert(err).Message() != "error from actor service: (418) no tea" || h.calls.Load() != 1 {
			t.Errorf("%v, %d calls", err, h.calls.Load())
		}
	})
	t.Run("a host that is another app is not called", func(t *testing.T) {
		w := start(t, eastView)
		h := &host{}
		_, address := w.host(t, h)
		w.hosts("trays", address)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := w.callHost(ctx, cart("1", "add")); !errors.Is(ctx.Err(), context.DeadlineExceeded) || err == nil || h.calls.Load() != 0 {
			t.Errorf("%v, %d calls; want none", err, h.calls.Load())
		}
	})
	t.Run("a type that only a bridge hosts passes no second one", func(t *testing.T) {
		w := start(t, eastView)
		w.hosts("isthmus-actors-east", w.address)
		if err := call(t, w); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "a call passes one pair of bridges") {
			t.Error(err)
		}
	})
}

// TestACallUnderWayOutlivesItsHostsPlace has a host leave the table, as one that ends does, while it
// answers.
func TestACallUnderWayOutlivesItsHostsPlace(t *testing.T) {
	w := start(t, eastView)
	h := &host{do: func(context.Context, *internalv1.InternalInvokeRequest) error {
		w.placement.forget(&table{})
		return nil
	}}
	_, address := w.host(t, h)
	w.hosts("carts", address)
	if _, err := w.call(t, id("public", "shop", "isthmus-actors-west"), "shop/checkout", cart("1", "add")); err != nil {
		t.Error(err)
	}
	w.placement.mu.Lock()
	defer w.placement.mu.Unlock()
	if n := len(w.placement.conns); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// FuzzNames has the owner's side read whatever a bridge sends. No part of a path leads out of it.
func FuzzNames(f *testing.F) {
	f.Add("42", cart("", "add").GetMessage())
	f.Add("..", cart("", "../../shutdown").GetMessage())
	f.Add("1", []byte{10})
	f.Fuzz(func(t *testing.T, actor string, message []byte) {
		if checkNames(&internalv1.InternalInvokeRequest{Actor: &internalv1.Actor{ActorId: actor}, Message: message}) != nil {
			return
		}
		if strings.ContainsAny(actor, "/\\?#") || actor == ".." || actor == "" {
			t.Errorf("%q passes", actor)
		}
	})
}

// TestOnlyTypesOfObjectsAreLabels has an app make types up.
func TestOnlyTypesOfObjectsAreLabels(t *testing.T) {
	w := start(t, westView)
	for i := range 50 {
		req := cart("1", "add")
		req.Actor.ActorType = fmt.Sprint("Made", i)
		if _, err := w.call(t, id("public", "shop", "checkout"), "", req); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if n := testutil.CollectAndCount(w.metrics.calls); n != 1 {
		t.Errorf("50 calls of types that nobody owns are %d series, want one", n)
	}
	if n := testutil.ToFloat64(w.metrics.calls.WithLabelValues("out", "", "denied")); n != 50 {
		t.Errorf("%v calls are counted, want 50", n)
	}
}
