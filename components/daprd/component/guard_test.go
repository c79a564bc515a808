package component

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/dapr/pkg/acl"
	"github.com/dapr/dapr/pkg/config"
	commonv1 "github.com/dapr/dapr/pkg/proto/common/v1"
	internals "github.com/dapr/dapr/pkg/proto/internals/v1"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffegrpc/grpccredentials"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
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

// incoming is the server's end of a call.
type incoming struct {
	grpc.ServerStream
	ctx  context.Context
	sent []any
}

func (s *incoming) Context() context.Context { return s.ctx }
func (s *incoming) SendMsg(m any) error      { s.sent = append(s.sent, m); return nil }

// answer is what became of a call.
type answer struct {
	status int32 // of the app's answer
	body   string
	err    error
}

func (a answer) String() string { return fmt.Sprintf("%d %s %v", a.status, a.body, a.err) }

// calls makes a call of each kind: as daprd makes it now, as old ones did, and proxied gRPC, for which
// daprd asks the resolver twice.
func (s *sidecar) calls(ctx context.Context) map[string]answer {
	app := func() *internals.InternalInvokeResponse {
		time.Sleep(time.Millisecond)
		return &internals.InternalInvokeResponse{Status: &internals.Status{Code: http.StatusTeapot}}
	}
	all := map[string]answer{}
	ask := &incoming{ctx: ctx}
	err := s.component.stream(s, ask, &grpc.StreamServerInfo{FullMethod: internals.ServiceInvocation_CallLocalStream_FullMethodName}, func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(&internals.InternalInvokeResponseStream{Response: app()})
	})
	a := answer{err: err}
	for _, m := range ask.sent {
		a.status, a.body = m.(*internals.InternalInvokeResponseStream).GetResponse().GetStatus().GetCode(), string(m.(*internals.InternalInvokeResponseStream).GetPayload().GetData())
	}
	all["streamed"] = a
	res, err := s.component.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: internals.ServiceInvocation_CallLocal_FullMethodName}, func(context.Context, any) (any, error) {
		return app(), nil
	})
	a = answer{err: err}
	if r, ok := res.(*internals.InternalInvokeResponse); ok {
		a.status, a.body = r.GetStatus().GetCode(), string(r.GetMessage().GetData().GetValue())
	}
	all["unary"] = a
	all["proxied"] = answer{err: s.proxied(ctx, orders)}
	return all
}

// proxied is a call of an app's own method, for which daprd asks the resolver twice.
func (s *sidecar) proxied(ctx context.Context, to catalog.App) error {
	return s.component.stream(nil, &incoming{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/quotes.Quotes/Get"}, func(_ any, stream grpc.ServerStream) (err error) {
		for range 2 {
			_, err = s.ResolveID(stream.Context(), nr.ResolveRequest{Namespace: to.Namespace, ID: to.ID, Port: 50002})
		}
		return err
	})
}

// letIn reports whether all kinds of calls are let in.
func (s *sidecar) letIn(ctx context.Context) (all map[string]answer, ok bool) {
	all = s.calls(ctx)
	return all, all["streamed"].status == http.StatusTeapot && all["unary"].status == http.StatusTeapot && all["proxied"].err == nil
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
	for {
		if _, ok := o.letIn(known); ok { // the service has told of the caller
			break
		}
	}
	before := o.series()["isthmus_inbound_calls_total shop checkout local let in"]
	for kind, a := range o.calls(calledBy(t, authority, catalog.App{Namespace: "shop", ID: "mallory"})) {
		switch {
		case kind == "proxied":
			if status.Code(a.err) != codes.PermissionDenied {
				t.Errorf("%s: %s", kind, a)
			}
		case a.status != http.StatusForbidden || !strings.Contains(a.body, `"ERR_ISTHMUS_DENIED"`) || !strings.Contains(a.body, "shop/mallory may not call shop/orders"):
			t.Errorf("%s: %s", kind, a)
		}
	}
	for what, ctx := range map[string]context.Context{
		"a known caller": known, "the app itself": calledBy(t, authority, orders), "its own sidecar": t.Context(),
		"its own app": peer.NewContext(t.Context(), &peer.Peer{LocalAddr: &net.TCPAddr{Port: 50001}}),
	} {
		if all, ok := o.letIn(ctx); !ok {
			t.Errorf("%s: %v", what, all)
		}
	}
	o.wantSeries(t, "isthmus_inbound_calls_total shop mallory local refused", "3")
	if now := o.series()["isthmus_inbound_calls_total shop checkout local let in"]; number(t, now) != number(t, before)+3 {
		t.Errorf("after three more calls than %s: %s", before, now)
	}
	if got := o.series()["isthmus_inbound_call_milliseconds_total shop checkout local"]; got == "" || got == "0" {
		t.Errorf("the app took %q ms for checkout", got)
	}
	request := nr.ResolveRequest{Namespace: orders.Namespace, ID: orders.ID, Port: 50002}
	if n := testing.AllocsPerRun(1000, func() { _, _ = o.ResolveID(known, request) }); n != 0 {
		t.Errorf("a lookup for a proxied call allocates %v times", n)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestASidecarIsNoRelay has calls of other sidecars name apps that are not this sidecar's.
func TestASidecarIsNoRelay(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	service := servicetest.Start(t)
	sidecarOf(t, service, checkout, 50001)
	plain := newSidecar(t)
	plain.component.PlainText = true
	if err := plain.start(t, orders, 50003, withService(service)); err != nil {
		t.Fatal(err)
	}
	alone := newSidecar(t)
	standalone := map[string]any{
		"cluster": "west", "store": map[string]any{"file": map[string]any{"path": t.TempDir()}},
		"local": map[string]any{"component": "nameformat", "configuration": map[string]any{"format": "{appid}.example:50001"}},
	}
	if err := alone.start(t, orders, 50004, standalone); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []string{"enforce", "observe", "off", "the cluster's"} {
		o := newSidecar(t)
		configuration := withService(service)
		if mode != "the cluster's" {
			configuration["guard"] = mode
		}
		if err := o.start(t, orders, 50010+i, configuration); err != nil {
			t.Fatal(err)
		}
		o.waitForAddress(t, checkout, 50001)
		for what, to := range map[string]catalog.App{
			"another app": checkout, "a namesake": {Namespace: "other", ID: orders.ID}, "a URL": {ID: "http://10.0.0.1:80"}, "nobody": {},
		} {
			o.relays(t, mode+": "+what, calledBy(t, authority, orders), to) // whom every guard lets in
			if err := o.proxied(peer.NewContext(t.Context(), &peer.Peer{}), to); (err == nil) != (to == checkout) || status.Code(err) == codes.PermissionDenied {
				t.Errorf("%s: the app itself calls %s: %v", mode, what, err)
			}
		}
		o.wantSeries(t, "isthmus_inbound_calls_total shop orders local relayed", "4")
		o.wantSeries(t, "isthmus_lookups_refused_total   relayed", "8") // daprd asks twice
	}
	plain.waitForAddress(t, checkout, 50001)
	plain.relays(t, "without mTLS", peer.NewContext(t.Context(), &peer.Peer{LocalAddr: &net.TCPAddr{Port: 50003}}), checkout)
	alone.relays(t, "without a service", calledBy(t, authority, checkout), checkout)
}

func (s *sidecar) relays(t *testing.T, what string, ctx context.Context, to catalog.App) {
	t.Helper()
	if err := s.proxied(ctx, to); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "passes none on") {
		t.Errorf("%s: %v, want PermissionDenied", what, err)
	}
}

func TestWithoutMTLSNobodyIsKnown(t *testing.T) {
	c := newSidecar(t)
	c.component.PlainText = true
	if err := c.start(t, orders, 50002, withService(servicetest.Start(t))); err != nil {
		t.Fatal(err)
	}
	c.waitForAddress(t, orders, 50002)
	if all, ok := c.letIn(peer.NewContext(t.Context(), &peer.Peer{LocalAddr: &net.TCPAddr{Port: 50002}})); !ok {
		t.Error(all)
	}
	c.wantSeries(t, "isthmus_inbound_calls_total    observed", "3")
}

func TestTheMiddlewareRefusesWithoutAGuard(t *testing.T) {
	get := func(s *sidecar, ctx context.Context) (int, string) {
		answer := httptest.NewRecorder()
		s.component.guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })).
			ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/hello", nil))
		return answer.Code, answer.Body.String()
	}
	called := peer.NewContext(t.Context(), &peer.Peer{})
	s := newSidecar(t)
	if code, body := get(s, called); code != http.StatusServiceUnavailable || !strings.Contains(body, "spec.nameResolution") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(s, t.Context()); code != http.StatusTeapot {
		t.Errorf("the sidecar's own call: %d", code)
	}
	if code, body := get(guarded(t, servicetest.Start(t)), called); code != http.StatusTeapot {
		t.Errorf("with a guard: %d %s", code, body)
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
	for g.caller(ctx).Admit(ctx) != nil { // until the service has told of the caller
		time.Sleep(time.Millisecond)
	}
	b.Run("isthmus", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, done, err := g.caller(ctx).Open(ctx)
			if err != nil {
				b.Fatal(err)
			}
			done()
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
