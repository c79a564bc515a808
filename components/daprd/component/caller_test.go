package component

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	daprmetadata "github.com/dapr/dapr/pkg/api/grpc/metadata"
	internals "github.com/dapr/dapr/pkg/proto/internals/v1"
	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// spellings are headers by which a caller could say who it is.
func spellings() (all []string) {
	for _, name := range []string{
		"dapr-caller-app-id", "dapr-caller-namespace", "dapr-callee-app-id", "dapr-caller-trust-domain",
		"isthmus-caller", "isthmus-actor-caller", "isthmus-anything",
	} {
		mixed := []byte(name)
		for i := 0; i < len(mixed); i += 2 {
			mixed[i] = strings.ToUpper(name)[i]
		}
		all = append(all, name, strings.ToUpper(name), http.CanonicalHeaderKey(name), string(mixed),
			strings.ReplaceAll(name, "-", "_"), strings.ToUpper(strings.ReplaceAll(name, "-", "_")),
			strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1), name+"-bin", strings.Replace(name, "i", "İ", 1))
	}
	return all
}

func TestNoSpellingOfWhoCallsComesFromTheCaller(t *testing.T) {
	for _, name := range spellings() {
		if !isReserved(name) {
			t.Errorf("%s is anybody's", name)
		}
	}
	for _, name := range []string{"", "dapr-", "dapr-app-id", "dapr-stream", "dapr-api-token", "x-dapr-caller-app-id", "isthmus", "caller", "traceparent", "dapr-callers"} {
		if isReserved(name) {
			t.Errorf("%s is not", name)
		}
	}
}

// daprds is the context of a call as daprd's own interceptors pass it on.
func daprds(ctx context.Context, header ...string) context.Context {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(header...))
	ctx, _ = daprmetadata.SetMetadataInTapHandle(ctx, nil) // never fails
	return ctx
}

// asCalled is the metadata of a call as daprd's handlers see it after the interceptor.
func (c *Component) asCalled(t *testing.T, ctx context.Context, method string, proxied bool, message any) (md metadata.MD) {
	t.Helper()
	read := func(ctx context.Context) {
		md, _ = metadata.FromIncomingContext(ctx)
		daprs, _ := daprmetadata.FromIncomingContext(ctx)
		if !maps.EqualFunc(md, daprs, slices.Equal) {
			t.Errorf("daprd reads %v, and gRPC %v", daprs, md)
		}
	}
	if !proxied {
		_, _ = c.tellUnary(ctx, message, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
			read(ctx)
			return nil, nil
		})
		return md
	}
	_ = c.tellStream(nil, &cleanStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
		read(s.Context())
		return nil
	})
	return md
}

// asked is a component whose app asks for its callers' certificates.
func asked(c *Component) *Component {
	c.guard.Store(&guard{self: c.Self, tells: true})
	return c
}

const mallorysCertificate = `namespace="shop", app="mallory", trust-domain="` + sandbox.AppTrustDomain + `"`

func TestAProxiedCallSaysWhoCallsOnce(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c := asked(&Component{Self: orders})
	plain := &Component{Self: orders, PlainText: true}
	mallory := calledBy(t, authority, catalog.App{Namespace: "shop", ID: "mallory"})
	own := peer.NewContext(t.Context(), &peer.Peer{})
	truth := metadata.Pairs("dapr-caller-app-id", "mallory", "dapr-caller-namespace", "shop", "isthmus-caller", mallorysCertificate, "x-other", "a", "dapr-callee-app-id", "orders")
	forged := []string{"x-other", "a", "dapr-caller-app-id", "admin", "dapr-caller-app-id", "root", "dapr_caller_app_id", "admin", "isthmus-caller", "y", "isthmus-actor-caller", "shop/admin"}
	for _, call := range []struct {
		what   string
		by     *Component
		ctx    context.Context
		header []string
		want   metadata.MD
	}{
		{"a peer's", c, mallory, append(forged, "dapr-callee-app-id", "orders"), truth},
		{"a peer's, by another form of the name", c, mallory, append(forged, "dapr-callee-app-id", "orders.shop", "dapr-app-id", "quotes"), truth},
		{"an older peer's", c, mallory, append(forged, "dapr-app-id", "orders"), truth},
		{"a relay's", c, mallory, append(forged, "dapr-callee-app-id", "quotes", "dapr-callee-app-id", "orders"), func() metadata.MD {
			md := truth.Copy()
			md.Set("dapr-callee-app-id", "quotes") // the resolver refuses it
			return md
		}()},
		{"a namesake's", c, mallory, append(forged, "dapr-callee-app-id", "orders.other"), func() metadata.MD {
			md := truth.Copy()
			md.Set("dapr-callee-app-id", "orders.other")
			return md
		}()},
		{"the app's own of itself", c, own, append(forged, "dapr-app-id", "orders"),
			metadata.Pairs("x-other", "a", "dapr-caller-app-id", "orders", "dapr-caller-namespace", "shop", "dapr-app-id", "orders")},
		{"the app's own of another", c, own, append(forged, "dapr-app-id", "quotes"), metadata.Pairs("x-other", "a", "dapr-app-id", "quotes")},
		{"the app's own, as a peer would", c, own, append(forged, "dapr-callee-app-id", "quotes"), metadata.Pairs("x-other", "a", "dapr-app-id", "quotes")},
		{"anybody's, in plain text", plain, own, append(forged, "dapr-caller-app-id", "checkout", "dapr-callee-app-id", "orders"),
			metadata.Pairs("x-other", "a", "dapr-caller-app-id", "checkout", "dapr-callee-app-id", "orders")},
	} {
		t.Run(call.what, func(t *testing.T) {
			if got := call.by.asCalled(t, daprds(call.ctx, call.header...), "/shop.Orders/Get", true, nil); !maps.EqualFunc(got, call.want, slices.Equal) {
				t.Errorf("%v\nwant %v", got, call.want)
			}
		})
	}
	bridge := calledBy(t, authority, catalog.BridgeApp("shop", "west"))
	if got := c.asCalled(t, daprds(bridge, "isthmus-actor-caller", "shop/checkout", "dapr-callee-app-id", "orders"), "/shop.Orders/Get", true, nil); got.Get("isthmus-actor-caller") == nil {
		t.Errorf("a bridge's word is lost: %v", got)
	}
}

func TestCarriedHeadersSayWhoCallsOnce(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c := asked(&Component{Self: orders})
	ctx := calledBy(t, authority, catalog.App{Namespace: "shop", ID: "mallory"})
	carried := func() map[string]*internals.ListStringValue {
		headers := map[string]*internals.ListStringValue{
			"X-Other": {Values: []string{"a", "b"}}, "Traceparent": {}, "content-type": {}, "nothing": nil,
			"Connection": {Values: []string{"close, Dapr-Caller-App-Id", "isthmus_caller,X-Hop"}},
			"CONNECTION": {Values: []string{"isthmus-caller"}},
		}
		for _, name := range spellings() {
			headers[name] = &internals.ListStringValue{Values: []string{"admin", "root"}}
		}
		return headers
	}
	want := map[string]string{
		"dapr-caller-app-id": "[mallory]", "dapr-caller-namespace": "[shop]", "dapr-callee-app-id": "[orders]",
		"isthmus-caller": "[" + mallorysCertificate + "]",
		"X-Other":        "[a b]", "Connection": "[close X-Hop]", "CONNECTION": "[]",
	}
	for what, m := range map[string]any{
		"CallLocal, or CallActor": &internals.InternalInvokeRequest{Metadata: carried()},
		"CallLocalStream":         &internals.InternalInvokeRequestStream{Request: &internals.InternalInvokeRequest{Metadata: carried()}},
	} {
		c.asCalled(t, daprds(ctx, "user-agent", "x"), "/dapr.proto.internals.v1.ServiceInvocation/CallLocal", false, m)
		request, ok := m.(*internals.InternalInvokeRequest)
		if !ok {
			request = m.(*internals.InternalInvokeRequestStream).GetRequest()
		}
		got := map[string]string{}
		for name, values := range request.GetMetadata() {
			got[name] = fmt.Sprint(values.GetValues())
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", what, got, want)
		}
	}
	bare := &internals.InternalInvokeRequest{}
	c.asCalled(t, daprds(ctx, "user-agent", "x"), "/dapr.proto.internals.v1.ServiceInvocation/CallLocal", false, bare)
	if got := bare.GetMetadata()["dapr-caller-app-id"].GetValues(); !slices.Equal(got, []string{"mallory"}) {
		t.Errorf("a call without headers is said to be %v's", got)
	}
	actor := &runtime.InvokeActorRequest{Metadata: map[string]string{"Isthmus_Caller": "admin", "x": "y"}}
	c.asCalled(t, daprds(peer.NewContext(t.Context(), &peer.Peer{}), "user-agent", "x"), runtime.Dapr_InvokeActor_FullMethodName, false, actor)
	if len(actor.GetMetadata()) != 1 {
		t.Errorf("an actor is told %v", actor.GetMetadata())
	}
}

// The middleware sees what comes by no peer's connection.
func TestTheAppsOwnCallsSayWhoCallsOnce(t *testing.T) {
	c := newSidecar(t).component
	c.Self = orders
	byHTTP := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{})
	for what, call := range map[string]struct {
		ctx  context.Context
		want http.Header
	}{
		"by HTTP":   {byHTTP, http.Header{"X-Other": {"a"}, "Dapr-Caller-App-Id": {"orders"}, "Dapr-Caller-Namespace": {"shop"}, "Dapr-Callee-App-Id": {"orders"}}},
		"by gRPC":   {peer.NewContext(t.Context(), &peer.Peer{}), http.Header{"X-Other": {"a"}, "Dapr-Caller-App-Id": {"orders"}, "Dapr-Caller-Namespace": {"shop"}, "Dapr-Callee-App-Id": {"orders"}}},
		"a message": {t.Context(), http.Header{"X-Other": {"a"}}},
	} {
		for name, middleware := range map[string]func(http.Handler) http.Handler{"caller": c.tellCaller, "guard": c.guarded} {
			var got http.Header
			request := httptest.NewRequestWithContext(call.ctx, http.MethodGet, "/hello", nil)
			request.Header.Set("X-Other", "a")
			for _, name := range spellings() {
				request.Header.Add(name, "admin")
			}
			middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })).ServeHTTP(httptest.NewRecorder(), request)
			if name == "guard" && what == "by gRPC" {
				continue // it has no guard, and lets no call of a peer in
			}
			if !maps.EqualFunc(got, call.want, slices.Equal) {
				t.Errorf("%s, with the middleware %s: %v\nwant %v", what, name, got, call.want)
			}
		}
	}
}

func TestOneValidTraceContextGoesOn(t *testing.T) {
	const good, binary = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "\x00\x00\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c\x01\xb7\xad\x6b\x71\x69\x20\x33\x31\x02\x01"
	spans := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	const ours = "00-01000000000000000000000000000000-0200000000000000-01"
	c := &Component{Self: orders}
	for _, call := range []struct {
		what   string
		traced bool
		to     string
		header []string
		parent string
		isBin  bool
	}{
		{"valid, untraced", false, "orders", []string{"traceparent", good, "grpc-trace-bin", binary}, good, true},
		{"none", false, "orders", nil, "", false},
		{"the last counts", false, "orders", []string{"traceparent", "x", "traceparent", good}, good, false},
		{"version ff", false, "orders", []string{"traceparent", "ff" + good[2:]}, "", false},
		{"too long", false, "orders", []string{"traceparent", good + "01"}, "", false},
		{"more fields", false, "orders", []string{"traceparent", good + "-01"}, "", false},
		{"zero", false, "orders", []string{"traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01"}, "", false},
		{"upper case", false, "orders", []string{"traceparent", strings.ToUpper(good)}, "", false},
		{"a bad binary", false, "orders", []string{"grpc-trace-bin", "x"}, "", false},
		{"a binary of zeros", false, "orders", []string{"grpc-trace-bin", string(make([]byte, 29))}, "", false},
		{"traced, to this app", true, "orders", []string{"traceparent", "ff" + good[2:], "traceparent", good, "grpc-trace-bin", binary}, ours, true},
		{"traced, to another, for which daprd adds it", true, "quotes", []string{"traceparent", good, "grpc-trace-bin", binary}, "", false},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{})
		if call.traced {
			ctx = trace.ContextWithSpanContext(ctx, spans)
		}
		md := c.asCalled(t, daprds(ctx, append(call.header, "dapr-app-id", call.to)...), "/shop.Orders/Get", true, nil)
		if got := strings.Join(md["traceparent"], ", "); got != call.parent {
			t.Errorf("%s: traceparent %q, want %q", call.what, got, call.parent)
		}
		if got := len(md["grpc-trace-bin"]); (got == 1) != call.isBin || got > 1 {
			t.Errorf("%s: %d of grpc-trace-bin", call.what, got)
		}
	}
}

// BenchmarkGuardTellsWhoCalls is what it costs a call to have its headers cleaned.
func BenchmarkGuardTellsWhoCalls(b *testing.B) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		b.Fatal(err)
	}
	service := servicetest.Start(b)
	sidecarOf(b, service, checkout, 50001)
	c := guarded(b, service).component
	c.Self = orders
	ctx := calledBy(b, authority, checkout)
	for c.guard.Load().caller(ctx).Admit(ctx) != nil { // until the service has told of the caller
		time.Sleep(time.Millisecond)
	}
	b.Run("by HTTP", func(b *testing.B) {
		headers := map[string]*internals.ListStringValue{}
		for _, name := range []string{"accept", "accept-encoding", "content-type", "user-agent", "traceparent", "X-Forwarded-For", "X-Forwarded-Host", "Forwarded",
			"destination-app-id", "dapr-caller-app-id", "dapr-caller-namespace", "dapr-callee-app-id"} {
			headers[name] = &internals.ListStringValue{Values: []string{"a"}}
		}
		ctx := daprds(ctx, "user-agent", "x", "content-type", "application/grpc", ":authority", "orders")
		first := &internals.InternalInvokeRequestStream{Request: &internals.InternalInvokeRequest{Metadata: headers}}
		b.ReportAllocs()
		for b.Loop() {
			in := c.inbound(ctx)
			in.clean(ctx, "/dapr.proto.internals.v1.ServiceInvocation/CallLocalStream", false)
			in.cleanMessage(first)
		}
	})
	proxied := func(b *testing.B) {
		ctx := daprds(ctx, "user-agent", "x", "content-type", "application/grpc", ":authority", "orders", "dapr-caller-app-id", "checkout", "dapr-callee-app-id", "orders", "a", "b")
		b.ReportAllocs()
		for b.Loop() {
			c.inbound(ctx).clean(ctx, "/shop.Orders/Get", true)
		}
	}
	b.Run("proxied", proxied)
	c.guard.Load().tells = true
	b.Run("proxied, with the certificate", proxied)
}

// An HTTP app hears of a certificate from the middleware alone, which also keeps out what messages say.
func TestAnHTTPAppHearsOfACertificateFromTheMiddleware(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	ctx := calledBy(t, authority, catalog.App{Namespace: "shop", ID: "mallory"})
	for _, app := range []*App{{}, {grpc: true}} {
		c := asked(&Component{Self: orders, App: app})
		m := &internals.InternalInvokeRequest{Metadata: map[string]*internals.ListStringValue{"Isthmus-Caller": {Values: []string{"admin"}}}}
		c.asCalled(t, daprds(ctx, "user-agent", "x"), "/dapr.proto.internals.v1.ServiceInvocation/CallLocal", false, m)
		want := map[bool][]string{true: {mallorysCertificate}}[app.grpc]
		if told := m.GetMetadata()["isthmus-caller"].GetValues(); !slices.Equal(told, want) || m.GetMetadata()["Isthmus-Caller"] != nil {
			t.Errorf("carried, to gRPC %t: %q, want %q", app.grpc, told, want)
		}
		if app.grpc {
			continue
		}
		var got http.Header
		c.tellCaller(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/hello", nil))
		if told := got.Values("Isthmus-Caller"); !slices.Equal(told, []string{mallorysCertificate}) {
			t.Errorf("the middleware tells %q", told)
		}
	}
}

// daprd makes headers of a message's metadata, and of those by which an app calls itself over HTTP.
func TestAGRPCAppHearsFromNobodyElseWhoCalls(t *testing.T) {
	c := &Component{Self: orders, App: &App{grpc: true}}
	forged := func() metadata.MD {
		md := metadata.Pairs("x-other", "a", passed, "guess")
		for _, name := range spellings() {
			md.Append(name, "admin")
		}
		return md
	}
	self := metadata.Pairs("x-other", "a", "dapr-caller-app-id", "orders", "dapr-caller-namespace", "shop", "dapr-callee-app-id", "orders")
	if got := c.cleanCallback(forged(), true); !maps.EqualFunc(got, self, slices.Equal) {
		t.Errorf("invoked by itself, it hears %v", got)
	}
	if got := c.cleanCallback(forged(), false); len(got) != 1 {
		t.Errorf("of a message it hears %v", got)
	}
	if got := c.cleanCallback(nil, false); len(got) != 0 {
		t.Errorf("without headers it hears %v", got)
	}
	m := &internals.InternalInvokeRequest{Metadata: map[string]*internals.ListStringValue{passed: {Values: []string{"guess"}}}}
	c.asCalled(t, daprds(t.Context(), "user-agent", "x"), "/dapr.proto.internals.v1.ServiceInvocation/CallLocal", false, m)
	carried := metadata.MD{}
	for name, values := range m.GetMetadata() {
		carried[name] = values.GetValues()
	}
	if got := c.cleanCallback(carried, true); len(got.Get(passed)) != 0 || len(got) == 0 {
		t.Errorf("of a peer's call it hears %v", got)
	}
}
