package component

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/dapr/pkg/acl"
	"github.com/dapr/dapr/pkg/config"
	commonv1 "github.com/dapr/dapr/pkg/proto/common/v1"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffegrpc/grpccredentials"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/sandbox"
)

// calledBy is the context of a call by an app, with what a handshake of daprd's own mTLS has made
// known of it.
func calledBy(t testing.TB, authority *sandbox.Authority, app catalog.App) context.Context {
	t.Helper()
	svid := func(app catalog.App) *x509svid.SVID {
		cert, key, err := authority.Leaf(sandbox.AppTrustDomain, app)
		if err != nil {
			t.Fatal(err)
		}
		svid, err := x509svid.Parse(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return svid
	}
	roots, err := x509bundle.Parse(spiffeid.RequireTrustDomainFromString(sandbox.AppTrustDomain), authority.Anchors())
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	done := make(chan error, 1)
	go func() {
		_, _, err := grpccredentials.MTLSClientCredentials(svid(app), roots, tlsconfig.AuthorizeAny()).ClientHandshake(t.Context(), "orders", theirs)
		done <- err
	}()
	_, info, err := grpccredentials.MTLSServerCredentials(svid(orders), roots, tlsconfig.AuthorizeAny()).ServerHandshake(ours)
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
}

// guarded is a sidecar of orders that enforces.
func guarded(t testing.TB, service string) *sidecar {
	t.Helper()
	s := newSidecar(t)
	configuration := withService(service)
	configuration["guard"] = "enforce"
	if err := s.start(t, orders, 50002, configuration); err != nil {
		t.Fatal(err)
	}
	return s
}

// calls makes a call by HTTP and one that is proxied over gRPC.
func (s *sidecar) calls(ctx context.Context) (httpStatus int, body string, proxied error) {
	answer := httptest.NewRecorder()
	app := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		w.WriteHeader(http.StatusTeapot)
	})
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/hello", nil)
	request.Header.Set("dapr-caller-app-id", "checkout")
	s.component.guarded(app).ServeHTTP(answer, request)
	_, proxied = s.ResolveID(ctx, nr.ResolveRequest{Namespace: orders.Namespace, ID: orders.ID, Port: 50002})
	return answer.Code, answer.Body.String(), proxied
}

func TestTheGuardGoesByCertificates(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	service := servicetest.Start(t)
	sidecarOf(t, service, checkout, 50001)
	o := guarded(t, service)
	o.waitForAddress(t, checkout, 50001)
	known := calledBy(t, authority, checkout)
	for o.component.guard.Load().admitProxied(known) != nil { // until the service has told of the caller
		time.Sleep(time.Millisecond)
	}
	before := o.series()["isthmus_inbound_calls_total shop checkout  let in"]
	mallory := calledBy(t, authority, catalog.App{Namespace: "shop", ID: "mallory"})
	for range 2 {
		code, body, proxied := o.calls(mallory)
		if code != http.StatusForbidden || !strings.Contains(body, `"ERR_ISTHMUS_DENIED"`) || !strings.Contains(body, "shop/mallory may not call shop/orders") {
			t.Errorf("by HTTP: %d %s", code, body)
		}
		if status.Code(proxied) != codes.PermissionDenied {
			t.Errorf("proxied: %v", proxied)
		}
	}
	for what, ctx := range map[string]context.Context{
		"a known caller": known, "the app itself": calledBy(t, authority, orders), "its own sidecar": t.Context(),
		"its own app": peer.NewContext(t.Context(), &peer.Peer{}),
	} {
		if code, body, proxied := o.calls(ctx); code != http.StatusTeapot || proxied != nil {
			t.Errorf("%s: %d %s, %v", what, code, body, proxied)
		}
	}
	o.wantSeries(t, "isthmus_inbound_calls_total shop mallory  refused", "3") // a proxied call asks twice
	if before != "1" {
		t.Errorf("half a call counts as %s", before)
	}
	o.wantSeries(t, "isthmus_inbound_calls_total shop checkout  let in", "2") // and a half
	if got := o.series()["isthmus_inbound_call_milliseconds_total shop checkout "]; got == "" || got == "0" {
		t.Errorf("the app took %q ms for checkout", got)
	}
	request := nr.ResolveRequest{Namespace: orders.Namespace, ID: orders.ID, Port: 50002}
	if n := testing.AllocsPerRun(1000, func() { _, _ = o.ResolveID(known, request) }); n != 0 {
		t.Errorf("a proxied call that is let in allocates %v times", n)
	}
}

func TestWithoutMTLSNobodyIsKnown(t *testing.T) {
	c := newSidecar(t)
	c.component.SetPlainText(true)
	if err := c.start(t, orders, 50002, withService(servicetest.Start(t))); err != nil {
		t.Fatal(err)
	}
	c.waitForAddress(t, orders, 50002)
	if code, _, proxied := c.calls(peer.NewContext(t.Context(), &peer.Peer{})); code != http.StatusTeapot || proxied != nil {
		t.Errorf("%d, %v", code, proxied)
	}
	c.wantSeries(t, "isthmus_inbound_calls_total    observed", "2")
}

func TestAGuardWithoutAServiceLetsNobodyIn(t *testing.T) {
	s := newSidecar(t)
	code, body, _ := s.calls(peer.NewContext(t.Context(), &peer.Peer{}))
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "spec.nameResolution") {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := s.calls(t.Context()); code != http.StatusTeapot {
		t.Errorf("the sidecar's own call: %d", code)
	}
}

// BenchmarkGuard is a call that is let in, beside Dapr's access control list with a policy for the
// caller.
func BenchmarkGuard(b *testing.B) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		b.Fatal(err)
	}
	ctx := calledBy(b, authority, checkout)
	service := servicetest.Start(b)
	sidecarOf(b, service, checkout, 50001)
	g := guarded(b, service).component.guard.Load()
	for g.admitProxied(ctx) != nil { // until the service has told of the caller
		time.Sleep(time.Millisecond)
	}
	b.Run("isthmus", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := g.admitProxied(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("dapr", func(b *testing.B) {
		list, err := acl.ParseAccessControlSpec(&config.AccessControlSpec{
			DefaultAction: "deny", TrustDomain: sandbox.AppTrustDomain,
			AppPolicies: []config.AppPolicySpec{{AppName: "checkout", Namespace: "shop", TrustDomain: sandbox.AppTrustDomain, DefaultAction: "allow"}},
		}, true)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if ok, why := acl.ApplyAccessControlPolicies(ctx, "/hello", commonv1.HTTPExtension_GET, true, list); !ok {
				b.Fatal(why)
			}
		}
	})
}
