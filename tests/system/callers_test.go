package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// saysWhoCalls matches what an app could take for a header that names the caller or itself.
var saysWhoCalls = regexp.MustCompile(`(?i)^(dapr[^a-z0-9](caller|callee)[^a-z0-9]|isthmus[^a-z0-9])`)

// forgeries are spellings of headers that name a caller, each with two values.
func forgeries() (all []string) {
	for _, name := range []string{
		"dapr-caller-app-id", "dapr-caller-namespace", "dapr-callee-app-id", "dapr-caller-trust-domain",
		"isthmus-caller", "isthmus-actor-caller", "isthmus-anything",
	} {
		under, mixed := strings.ReplaceAll(name, "-", "_"), []byte(name)
		for i := 0; i < len(mixed); i += 2 {
			mixed[i] = strings.ToUpper(name)[i]
		}
		all = append(all, name, strings.ToUpper(name), http.CanonicalHeaderKey(name), string(mixed),
			under, strings.ToUpper(under), strings.Replace(name, "-", "_", 1), strings.ReplaceAll(name, "-", "."))
	}
	return all
}

// told wants an app to hear of its caller, and of itself, what is true and nothing else.
func told(reply *sandbox.Reply, err error, want map[string]string) error {
	if err != nil {
		return err
	}
	got := map[string]string{}
	for name, value := range reply.Header {
		if saysWhoCalls.MatchString(name) {
			got[strings.ToLower(name)] = value
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the app %s/%s hears %v\nwant %v", reply.Namespace, reply.App, got, want)
	}
	return nil
}

// truth is what an app hears of a caller in the same trust domain.
func truth(caller catalog.App, callee, cluster string) map[string]string {
	return map[string]string{
		"dapr-caller-app-id": caller.ID, "dapr-caller-namespace": caller.Namespace, "dapr-callee-app-id": callee,
		"isthmus-caller": described(caller, cluster, sandbox.AppTrustDomain),
	}
}

// described is what an app hears of a certificate.
func described(caller catalog.App, cluster, domain string) string {
	return fmt.Sprintf(`namespace="%s", app="%s", cluster="%s", trust-domain="%s"`, caller.Namespace, caller.ID, cluster, domain)
}

// asks is the configuration of a sidecar whose app asks for its callers' certificates.
var asks = map[string]any{"tellCaller": true}

// withoutID is the truth for an app that does not ask for the certificate, or calls itself: over no
// connection, so without one.
func withoutID(truth map[string]string) map[string]string {
	delete(truth, "isthmus-caller")
	return truth
}

// TestAnAppCanTrustWhoCalls has callers say they are others, in every spelling and by every way
// into an app.
func TestAnAppCanTrustWhoCalls(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	app := func(id string) catalog.App { return catalog.App{Namespace: "callers", ID: id} }
	m.apply(t, m.west, selection("callers", "checkout", "app: orders", "app: quotes", "app: silent", "app: bare"), selection("callers", "mallory", "app: orders", "app: quotes"))
	orders := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("orders"), Caller: true, Component: asks})
	guarded := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("guarded"), Guard: true, Component: asks})
	quotes := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("quotes"), GRPC: true, Component: asks})
	m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("silent"), Caller: true})
	bare := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("bare"), Component: asks})
	checkout := m.app(t, m.west, "callers", "checkout")
	answers(t, checkout, "orders", "west")
	proxy, self := dial(t, checkout), dial(t, quotes)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := sandbox.Proxy(meshtest.Within(t, meshtest.Attempt), proxy, "quotes", nil)
		return err
	})
	meshtest.Eventually(t, meshtest.Patience, func() error { // until its sidecar knows its cluster's callers
		return m.callLocal(t, app("mallory"), quotes, nil, truth(app("mallory"), "quotes", "west"))
	})

	fromCheckout := truth(app("checkout"), "orders", "west")
	forged, lower := http.Header{}, metadata.MD{}
	for _, name := range forgeries() {
		forged[name] = []string{"admin", "root"} // as it is, and not in Go's own spelling
		lower.Append(name, "admin", "root")
	}
	delete(lower, "dapr-callee-app-id") // by which daprd routes
	answers(t, checkout, "silent", "west")
	answers(t, checkout, "bare", "west")
	forged["Connection"] = []string{"dapr-caller-app-id, Isthmus-Caller"}
	ctx := meshtest.Within(t, meshtest.Patience)

	for name, call := range map[string]func() error{
		"HTTP": func() error {
			reply, err := checkout.Invoke(ctx, "orders", "hello", forged)
			return told(reply, err, fromCheckout)
		},
		"HTTP with a body": func() error {
			reply, err := checkout.Post(ctx, "orders", "hello", "body", forged)
			return told(reply, err, fromCheckout)
		},
		"HTTP in chunks": func() error {
			reply, err := checkout.Chunked(ctx, "orders", "hello", "body", forged)
			return told(reply, err, fromCheckout)
		},
		"HTTP for server-sent events": func() error {
			header := maps.Clone(forged)
			header["Accept"] = []string{"text/event-stream"}
			reply, err := checkout.Invoke(ctx, "orders", "hello", header)
			return told(reply, err, fromCheckout)
		},
		"HTTP to an app that speaks gRPC": func() error {
			reply, err := checkout.Invoke(ctx, "quotes", "hello", forged)
			return told(reply, err, truth(app("checkout"), "quotes", "west"))
		},
		"proxied": func() error {
			reply, err := proxied(ctx, proxy, lower, false)
			return told(reply, err, truth(app("checkout"), "quotes", "west"))
		},
		"proxied stream": func() error {
			reply, err := proxied(ctx, proxy, lower, true)
			return told(reply, err, truth(app("checkout"), "quotes", "west"))
		},
		"proxied by another's own sidecar": func() error {
			md := metadata.Join(lower, metadata.Pairs("dapr-callee-app-id", "quotes.callers", "dapr-callee-app-id", "admin"))
			reply, err := proxied(ctx, m.outsider(t, app("mallory"), quotes).conn, md, false)
			return told(reply, err, truth(app("mallory"), "quotes", "west"))
		},
		"Dapr's API for gRPC": func() error {
			reply, err := invokeService(ctx, proxy, "orders", lower)
			return told(reply, err, fromCheckout)
		},
		"to an app that does not ask": func() error {
			reply, err := checkout.Invoke(ctx, "silent", "hello", forged)
			return told(reply, err, withoutID(truth(app("checkout"), "silent", "west")))
		},
		"to an app that asks without a middleware": func() error {
			reply, err := checkout.Invoke(ctx, "bare", "hello", forged)
			return told(reply, err, withoutID(truth(app("checkout"), "bare", "west")))
		},
		"to itself, by HTTP, with a middleware": func() error {
			reply, err := guarded.Invoke(ctx, "guarded", "hello", forged)
			return told(reply, err, withoutID(truth(app("guarded"), "guarded", "west")))
		},
		"to itself, by HTTP, an app of gRPC": func() error {
			reply, err := quotes.Invoke(ctx, "quotes", "hello", forged)
			return told(reply, err, withoutID(truth(app("quotes"), "quotes", "west")))
		},
		"to itself, by Dapr's API for gRPC": func() error {
			reply, err := invokeService(ctx, self, "quotes", lower)
			return told(reply, err, withoutID(truth(app("quotes"), "quotes", "west")))
		},
		"to itself, proxied": func() error {
			reply, err := proxied(ctx, self, lower, false)
			want := withoutID(truth(app("quotes"), "quotes", "west"))
			delete(want, "dapr-callee-app-id")
			return told(reply, err, want)
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !containsLine(bare.Tail(50), "the app is not told of its caller's certificate", "middleware.http.isthmus.caller") || containsLine(orders.Tail(50), "is not told of") {
		t.Errorf("the log of an app that asks without a middleware:\n%s", bare.Tail(50))
	}
	for _, spelling := range append(forgeries(), "İsthmus-caller", "İsthmus-told") { // of 'İ' daprd makes an i
		for _, callee := range []*sandbox.Sidecar{orders, guarded, quotes} {
			if err := m.callLocal(t, app("mallory"), callee, []string{spelling, "admin"}, truth(app("mallory"), callee.App.ID, "west")); err != nil {
				t.Errorf("a sidecar of its own making, %s: %v", spelling, err)
			}
		}
	}
}

// invokeService calls an HTTP app by Dapr's API for gRPC.
func invokeService(ctx context.Context, conn *grpc.ClientConn, id string, md metadata.MD) (*sandbox.Reply, error) {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	get := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	// InvokeServiceRequest: id, and an InvokeRequest with method and verb.
	request, answer := field(field(nil, 1, []byte(id)), 3, field(field(nil, 1, []byte("hello")), 4, get)), []byte(nil)
	if err := conn.Invoke(metadata.NewOutgoingContext(ctx, md), "/dapr.proto.runtime.v1.Dapr/InvokeService", &request, &answer, grpc.ForceCodec(raw{})); err != nil {
		return nil, err
	}
	reply := new(sandbox.Reply)
	from, to := bytes.IndexByte(answer, '{'), bytes.LastIndexByte(answer, '}') // of the JSON in the message
	return reply, json.Unmarshal(answer[max(from, 0):to+1], reply)
}

// callLocal makes a call as a sidecar that sends what it likes.
func (m *mesh) callLocal(t *testing.T, by catalog.App, callee *sandbox.Sidecar, header []string, want map[string]string) error {
	t.Helper()
	o := m.outsider(t, by, callee)
	code, body, err := o.http(meshtest.Within(t, meshtest.Patience), "hello", header...)
	if err == nil && code != 200 && code != 0 {
		err = fmt.Errorf("%d %s", code, body)
	}
	reply := new(sandbox.Reply)
	if err == nil {
		err = json.Unmarshal([]byte(body), reply)
	}
	return told(reply, err, want)
}

// proxied calls an app over gRPC, as a unary call or as a stream.
func proxied(ctx context.Context, conn *grpc.ClientConn, md metadata.MD, stream bool) (*sandbox.Reply, error) {
	md = md.Copy()
	if len(md["dapr-callee-app-id"]) == 0 {
		md.Set("dapr-app-id", "quotes")
	}
	if stream {
		md.Set("dapr-stream", "true")
	}
	call, err := conn.NewStream(metadata.NewOutgoingContext(ctx, md), &grpc.StreamDesc{ClientStreams: stream, ServerStreams: stream}, "/isthmus.sandbox.App/Who")
	if err != nil {
		return nil, err
	}
	answer := new(wrapperspb.StringValue)
	if err := call.SendMsg(wrapperspb.String("who")); err != nil {
		return nil, err
	}
	if err := call.CloseSend(); err != nil {
		return nil, err
	}
	if err := call.RecvMsg(answer); err != nil {
		return nil, err
	}
	reply := new(sandbox.Reply)
	return reply, json.Unmarshal([]byte(answer.GetValue()), reply)
}

// TestAMadeUpMessageStopsNoSidecar sends headers without a value, of which daprd takes the first.
func TestAMadeUpMessageStopsNoSidecar(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	app := func(id string) catalog.App { return catalog.App{Namespace: "hollow", ID: id} }
	for _, grpc := range []bool{false, true} {
		callee := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app(fmt.Sprint("callee-", grpc)), GRPC: grpc})
		for _, name := range slices.Concat([]string{"content-type", "traceparent", "tracestate", "grpc-trace-bin", "Connection", "content-length"}, forgeries()) {
			_, _, err := m.outsider(t, app("mallory"), callee).http(meshtest.Within(t, meshtest.Patience), "hello", name)
			if err != nil {
				t.Fatalf("%s without a value: %v", name, err)
			}
		}
	}
}

// TestAnActorCanTrustWhoCalls has its caller's sidecar pass on what the caller made up.
func TestAnActorCanTrustWhoCalls(t *testing.T) {
	t.Parallel()
	programstest.Need(t, "placement")
	m := ownMesh(t, meshOptions{})
	if _, err := m.west.Placement(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	app := func(id string) catalog.App { return catalog.App{Namespace: "callers", ID: id} }
	tills := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("tills"), Actors: "Till", Caller: true, Component: asks})
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("checkout")})
	for by, want := range map[*sandbox.Sidecar]map[string]string{
		checkout: truth(app("checkout"), "tills", "west"),
		tills:    withoutID(truth(app("tills"), "tills", "west")),
	} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			request, err := http.NewRequestWithContext(meshtest.Within(t, meshtest.Attempt), http.MethodPost, by.ActorURL("Till/1", "hello"), nil)
			if err != nil {
				return err
			}
			for _, name := range forgeries() {
				request.Header[name] = []string{"admin", "root"}
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer http.DefaultClient.CloseIdleConnections()
			defer response.Body.Close()
			reply := new(sandbox.Reply)
			err = json.NewDecoder(response.Body).Decode(reply)
			return told(reply, err, want)
		})
	}
}
