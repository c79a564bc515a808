package system

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// outsider calls a sidecar's internal server by its address, with an app's own certificate: no
// name resolution is in its way.
type outsider struct{ conn *grpc.ClientConn }

func (m *mesh) outsider(t *testing.T, app catalog.App, callee *sandbox.Sidecar) *outsider {
	t.Helper()
	return m.outsiderAt(t, app, callee.App, callee.Internal)
}

// outsiderAt is an outsider at an address, such as a gateway's, that gRPC's options lead to the callee.
func (m *mesh) outsiderAt(t *testing.T, app, callee catalog.App, address string, options ...grpc.DialOption) *outsider {
	t.Helper()
	return m.outsiderIn(t, sandbox.AppTrustDomain, app, callee, address, options...)
}

// outsiderIn is one of a trust domain.
func (m *mesh) outsiderIn(t *testing.T, domain string, app, callee catalog.App, address string, options ...grpc.DialOption) *outsider {
	t.Helper()
	source, err := identity.New(identity.Config{Files: m.certificateIn(t, domain, m.authority, app)}, app, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, append(options, grpc.WithNoProxy(), grpc.WithTransportCredentials(source.ClientCredentials(identity.OneOf(callee))))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &outsider{conn}
}

// raw passes messages on as they are.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) ([]byte, error) {
	return *v.(*[]byte), nil
}
func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

// http makes a call as a caller's sidecar makes it for an app that speaks HTTP, and returns the
// status and the body. A header alone is one without a value.
func (o *outsider) http(ctx context.Context, method string, header ...string) (code int, body string, err error) {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	varint := func(n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
	}
	message := field(field(nil, 1, []byte(method)), 4, varint(1, 1)) // InvokeRequest: method, GET
	request := varint(1, 1)                                          // InternalInvokeRequest: version 1
	for i := 0; i < len(header); i += 2 {
		var values []byte
		for _, value := range header[i+1 : min(i+2, len(header))] {
			values = field(values, 1, []byte(value))
		}
		request = field(request, 2, field(field(nil, 1, []byte(header[i])), 2, values))
	}
	request = field(request, 3, message)
	var answer []byte
	if len(header)%2 == 0 && !strings.Contains(strings.Join(header, ""), "İ") { // gRPC's own takes ASCII alone
		ctx = metadata.AppendToOutgoingContext(ctx, header...)
	}
	err = o.conn.Invoke(ctx, "/dapr.proto.internals.v1.ServiceInvocation/CallLocal", &request, &answer, grpc.ForceCodec(raw{}))
	if err != nil {
		return 0, "", err
	}
	in := func(b []byte, n protowire.Number) (value []byte, number uint64) {
		for len(b) > 0 {
			at, kind, size := protowire.ConsumeTag(b)
			b = b[size:]
			switch kind {
			case protowire.VarintType:
				v, size := protowire.ConsumeVarint(b)
				if b = b[size:]; at == n {
					number = v
				}
			case protowire.BytesType:
				v, size := protowire.ConsumeBytes(b)
				if b = b[size:]; at == n {
					value = v
				}
			default:
				return nil, 0
			}
		}
		return value, number
	}
	state, _ := in(answer, 1)
	_, number := in(state, 1)
	response, _ := in(answer, 4)
	data, _ := in(response, 1)
	content, _ := in(data, 2)
	return int(number), string(content), nil
}

// proxied makes a call that is proxied over gRPC.
func (o *outsider) proxied(ctx context.Context, id string, header map[string]string) error {
	all := map[string]string{"dapr-callee-app-id": id}
	maps.Copy(all, header)
	_, err := sandbox.Proxy(ctx, o.conn, id, all)
	return err
}

// TestOnlyDeclaredCallersGetIn has apps with valid certificates call whom they know the address
// of. Calls of declared callers go on all the while.
func TestOnlyDeclaredCallersGetIn(t *testing.T) {
	t.Parallel()
	enforce := map[string]any{"guard": "enforce"}
	m := ownMesh(t, meshOptions{eastSettings: enforce, westSettings: map[string]any{
		"guard": "enforce", "defaultSelection": "none", "declared": map[string]any{"sidecars": true},
	}})
	app := func(id string) catalog.App { return catalog.App{Namespace: "guard", ID: id} }
	m.apply(t, m.west, selection("guard", "checkout", "app: orders", "app: quotes", "app: stock"), selection("guard", "mallory"))
	m.apply(t, m.east, export("guard", "stock", "west, app: checkout"))
	orders := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("orders"), Guard: true})
	quotes := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("quotes"), GRPC: true})
	stock := m.sidecar(t, m.east, sandbox.SidecarOptions{App: app("stock"), Guard: true})
	checkout := m.app(t, m.west, "guard", "checkout")
	answers(t, checkout, "orders", "west")
	answers(t, checkout, "stock", "east")
	good := startLoad(t, "declared calls", calling(checkout, "orders"), calling(checkout, "stock"))
	proxied := startLoad(t, "declared calls over gRPC", proxying(dial(t, checkout), "quotes"))

	refused := func(id string, forged ...string) error {
		ctx := meshtest.Within(t, meshtest.Attempt)
		code, body, err := m.outsider(t, app(id), orders).http(ctx, "hello", forged...)
		if err != nil || code != 403 {
			return fmt.Errorf("%s calls orders: %d %s, %v; want 403", id, code, body, err)
		}
		header := map[string]string{}
		for i := 0; i < len(forged); i += 2 {
			header[forged[i]] = forged[i+1]
		}
		if err := m.outsider(t, app(id), quotes).proxied(ctx, "quotes", header); status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("%s calls quotes: %v; want PermissionDenied", id, err)
		}
		return nil
	}
	letIn := func(id string) error {
		ctx := meshtest.Within(t, meshtest.Attempt)
		code, body, err := m.outsider(t, app(id), orders).http(ctx, "hello")
		if err != nil || code != 200 {
			return fmt.Errorf("%s calls orders: %d %s, %v; want 200", id, code, body, err)
		}
		return m.outsider(t, app(id), quotes).proxied(ctx, "quotes", nil)
	}
	for _, forged := range [][]string{nil, {"dapr-caller-app-id", "checkout", "dapr-caller-namespace", "guard"}} {
		if err := refused("mallory", forged...); err != nil {
			t.Error(err)
		}
	}
	if code, _, err := m.outsider(t, app("mallory"), orders).http(t.Context(), "hello"); err != nil || code != 403 {
		t.Errorf("again: %d, %v", code, err)
	}
	stream, err := m.outsider(t, app("mallory"), quotes).conn.NewStream(
		metadata.AppendToOutgoingContext(t.Context(), "dapr-app-id", "quotes", "dapr-callee-app-id", "quotes"),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/isthmus.Any/Stream", grpc.ForceCodec(raw{}))
	if err == nil {
		var answer []byte
		err = stream.RecvMsg(&answer)
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stream ends with %v", err)
	}
	if code, body, err := m.outsider(t, app("checkout"), stock).http(t.Context(), "hello"); err != nil || code != 200 {
		t.Errorf("checkout, to which stock is exported: %d %s, %v", code, body, err)
	}
	if code, body, err := m.outsider(t, app("mallory"), stock).http(t.Context(), "hello"); err != nil || code != 403 {
		t.Errorf("mallory, to which it is not: %d %s, %v", code, body, err)
	}

	m.ownWordOpensNoGuard(t, app)
	if err := letIn("checkout"); err != nil {
		t.Error(err)
	}
	var slowest time.Duration
	watch, begun := stalls.Begin(t), time.Now()
	for range 5 {
		m.apply(t, m.west, selection("guard", "mallory", "app: orders", "app: quotes"))
		meshtest.Eventually(t, meshtest.Patience, func() error { return letIn("mallory") })
		m.apply(t, m.west, selection("guard", "mallory", "app: stock"))
		since := time.Now()
		meshtest.Eventually(t, meshtest.Patience, func() error { return refused("mallory") })
		slowest = max(slowest, time.Since(since))
	}
	t.Logf("refused at most %s after its declaration was removed", slowest.Round(time.Millisecond))
	if slowest > time.Second+10*watch.Longest(begun) { // each try has many steps
		t.Errorf("it took %s until a caller was refused", slowest)
	}
	good.noneFailed()
	proxied.noneFailed()
}

// ownWordOpensNoGuard has an app declare calls in its own sidecar's configuration: it finds what it
// declares, and is let in only by an object.
func (m *mesh) ownWordOpensNoGuard(t *testing.T, app func(id string) catalog.App) {
	t.Helper()
	self := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("self"), Component: map[string]any{"calls": []any{"orders"}}})
	call := func(id, want string) func() error {
		return func() error {
			_, err := self.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", untraced)
			if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
				return nil
			}
			return fmt.Errorf("self calls %s: %v; want %q", id, err, want)
		}
	}
	meshtest.Eventually(t, meshtest.Patience, call("orders", "403"))
	meshtest.Eventually(t, meshtest.Patience, call("orders", "ERR_ISTHMUS_DENIED"))
	// The command fails once refused calls were reported, and says so.
	if out, errs, err := m.isthmus(t, m.west, "", "explain", "--from", "guard/self", "orders"); (err != nil) != strings.Contains(out, "ok, but calls fail") || !strings.Contains(out, "calls in the configuration of its sidecars, guard/orders") {
		t.Errorf("isthmus explain: %v\n%s%s", err, out, errs)
	}
	m.apply(t, m.west, selection("guard", "self", "app: orders"))
	meshtest.Eventually(t, meshtest.Patience, call("orders", ""))
}

// TestAnObservingGuardIsSeen has the guard in its default mode.
func TestAnObservingGuardIsSeen(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	app := func(id string) catalog.App { return catalog.App{Namespace: "observe", ID: id} }
	m.apply(t, m.west, selection("observe", "mallory"), selection("observe", "checkout", "app: orders"))
	orders := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("orders"), Guard: true})
	answers(t, m.app(t, m.west, "observe", "checkout"), "orders", "west")
	for range 3 {
		if code, body, err := m.outsider(t, app("mallory"), orders).http(t.Context(), "hello"); err != nil || code != 200 {
			t.Fatalf("%d %s, %v", code, body, err)
		}
	}
	page := m.page(t, orders.Metrics, "/metrics")
	for _, want := range []string{`caller="mallory",caller_namespace="observe",cluster="local",outcome="observed"} 3`, `caller="checkout",caller_namespace="observe",cluster="local",outcome="let in"`} {
		if !containsLine(page, "dapr_isthmus_inbound_calls_total{", want) {
			t.Errorf("metrics lack %s:\n%s", want, page)
		}
	}
	m.seenCallsAreTold(t)
	if tail := orders.Tail(50); !containsLine(tail, "would refuse", "observe/mallory") {
		t.Errorf("the log does not name mallory:\n%s", tail)
	}
}

// seenCallsAreTold has the service know of mallory's calls, and suggest what lets it in.
func (m *mesh) seenCallsAreTold(t *testing.T) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, errs, err := m.isthmus(t, m.west, "", "calls", "observe/orders")
		if err == nil && (!containsLine(out, "observe/mallory", "here", "nothing", " 3 ", "ago") || !containsLine(out, "observe/checkout", "AppEndpoints observe/checkout", "ago")) {
			err = fmt.Errorf("isthmus calls: %s%s", out, errs)
		}
		return err
	})
	out, _, err := m.isthmus(t, m.west, "", "guard", "check", "observe/orders")
	if err == nil || !containsLine(out, "observe/mallory") || containsLine(out, "observe/checkout") {
		t.Errorf("isthmus guard check: %v\n%s", err, out)
	}
	suggested, errs, err := m.isthmus(t, m.west, "", "suggest", "--from", "observe/mallory")
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	m.apply(t, m.west, suggested)
	if out, _, err = m.isthmus(t, m.west, "", "guard", "check", "observe/orders"); err != nil {
		t.Errorf("after what was suggested, isthmus guard check: %v\n%s", err, out)
	}
	if out, _, err = m.isthmus(t, m.west, "", "explain", "--from", "observe/mallory", "--inbound", "observe/orders"); err != nil {
		t.Errorf("isthmus explain --inbound: %v\n%s", err, out)
	}
}

// containsLine tells whether one line of a text has all the parts.
func containsLine(text string, parts ...string) bool {
	return slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}
