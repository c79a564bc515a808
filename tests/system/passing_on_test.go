package system

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// stream opens a stream of an app's method for an app-id, and returns its end.
func (o *outsider) stream(ctx context.Context, id string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "dapr-app-id", id, "dapr-callee-app-id", id, "dapr-stream", "true")
	s, err := o.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/isthmus.sandbox.App/Who", grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	question := []byte{}
	if err := s.SendMsg(&question); err != nil {
		return s.RecvMsg(&question)
	}
	return s.RecvMsg(&question)
}

// TestASidecarPassesNoCallOn has callers ask a sidecar's internal port for an app that is not behind it.
// The sidecar would pass the call on with its own certificate, which that app lets in.
func TestASidecarPassesNoCallOn(t *testing.T) {
	t.Parallel()
	app := func(id string) catalog.App { return catalog.App{Namespace: "guard", ID: id} }
	other := catalog.App{Namespace: "other", ID: "quotes"}
	west := map[string]any{"guard": "enforce", "defaultSelection": "none"}
	m := ownMesh(t, meshOptions{westSettings: west, eastSettings: west})
	m.apply(t, m.west,
		selection("guard", "checkout", "app: quotes", "app: quotes, namespace: other"),
		selection("guard", "quotes", "app: quotes, namespace: other"), selection("guard", "friend", "app: checkout", "app: quotes"),
		export("guard", "checkout", "east, app: visitor"), export("other", "quotes", "west, namespace: guard"))
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("checkout"), GRPC: true})
	quotes := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("quotes"), GRPC: true})
	theirs := m.sidecar(t, m.west, sandbox.SidecarOptions{App: other, GRPC: true})
	gateway := func(id string) *outsider {
		return m.outsiderAt(t, app(id), checkout.App, "passthrough:///"+m.west.Gateway, grpc.WithAuthority("checkout.guard.west.isthmus.internal"))
	}

	ownConn := dial(t, checkout)
	proxies := func(conn *grpc.ClientConn, id string) func() error {
		return func() error {
			_, err := sandbox.Proxy(meshtest.Within(t, meshtest.Attempt), conn, id, nil)
			return err
		}
	}
	meshtest.Eventually(t, meshtest.Patience, proxies(ownConn, "quotes")) // by its own app, so there is a way
	meshtest.Eventually(t, meshtest.Patience, proxies(dial(t, quotes), "quotes.other"))
	meshtest.Eventually(t, meshtest.Patience, proxies(ownConn, "checkout")) // itself
	meshtest.Eventually(t, meshtest.Patience, func() error {
		return m.outsider(t, app("friend"), checkout).proxied(meshtest.Within(t, meshtest.Attempt), "checkout", nil)
	})
	meshtest.Eventually(t, meshtest.Patience, func() error {
		return gateway("visitor").proxied(meshtest.Within(t, meshtest.Attempt), "checkout", nil)
	})

	before := quotes.Behind.Calls() + theirs.Behind.Calls()
	for _, c := range []struct {
		what, id, want string
		from           *outsider
	}{
		{"nobody's caller", "quotes", "may not call", m.outsider(t, app("mallory"), checkout)},
		{"checkout's caller", "quotes", "passes none on", m.outsider(t, app("friend"), checkout)},
		{"checkout's caller, for another namespace", "quotes.other", "passes none on", m.outsider(t, app("friend"), checkout)},
		{"checkout's caller, for a URL", "http://127.0.0.1:1", "passes none on", m.outsider(t, app("friend"), checkout)},
		{"checkout's caller, for two names", "checkout.guard.other", "passes none on", m.outsider(t, app("friend"), checkout)},
		{"a namesake", "quotes.other", "passes none on", m.outsider(t, app("friend"), quotes)},
		{"a namesake, by nobody's caller", "quotes.other", "may not call", m.outsider(t, app("mallory"), quotes)},
		{"by the gateway, nobody's caller", "quotes", "may not call", gateway("mallory")},
		{"by the gateway, a caller of the export", "quotes", "passes none on", gateway("visitor")},
		{"by the gateway, with its namespace", "quotes.guard", "passes none on", gateway("visitor")},
	} {
		ctx := meshtest.Within(t, meshtest.Patience)
		for kind, err := range map[string]error{
			"a call": c.from.proxied(ctx, c.id, nil), "a stream": c.from.stream(ctx, c.id),
			"two names": c.from.proxied(ctx, "checkout", map[string]string{"dapr-callee-app-id": c.id}),
		} {
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s for %s: %v; want PermissionDenied, %q", c.what, kind, c.id, err, c.want)
			}
		}
	}
	if now := quotes.Behind.Calls() + theirs.Behind.Calls(); now != before {
		t.Errorf("%d calls reached an app", now-before)
	}
	if page := m.page(t, checkout.Metrics, "/metrics"); !containsLine(page, "dapr_isthmus_inbound_calls_total{", `caller="friend"`, `outcome="relayed"} 12`) {
		t.Errorf("metrics of checkout's sidecar:\n%s", page)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, errs, err := m.isthmus(t, m.west, "", "events", "--since", "1h")
		if err == nil && !containsLine(out, "refused to pass calls on to another app", "guard/checkout", "guard/friend") {
			err = fmt.Errorf("isthmus events: %s%s", out, errs)
		}
		return err
	})
	for _, still := range []func() error{proxies(ownConn, "quotes"), proxies(ownConn, "checkout")} {
		if err := still(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheGuardSeesEveryKindOfCall calls apps of both kinds by Dapr's invocation, where no middleware is
// configured, and ends calls under way when their caller's declaration is withdrawn.
func TestTheGuardSeesEveryKindOfCall(t *testing.T) {
	t.Parallel()
	app := func(id string) catalog.App { return catalog.App{Namespace: "guard", ID: id} }
	m := ownMesh(t, meshOptions{westSettings: map[string]any{"guard": "enforce", "defaultSelection": "none"}})
	m.apply(t, m.west, selection("guard", "checkout", "app: orders", "app: quotes"))
	orders := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("orders")})
	quotes := m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("quotes"), GRPC: true})
	checkout := m.app(t, m.west, "guard", "checkout")
	answers(t, checkout, "orders", "west")
	answers(t, checkout, "quotes", "west") // OnInvoke
	ctx := meshtest.Within(t, meshtest.Patience)
	for _, callee := range []*sandbox.Sidecar{orders, quotes} {
		before := callee.Behind.Calls()
		code, body, err := m.outsider(t, app("mallory"), callee).http(ctx, "hello")
		if err != nil || code != 403 || !strings.Contains(body, "ERR_ISTHMUS_DENIED") {
			t.Errorf("mallory calls %s: %d %s, %v; want 403", callee.App, code, body, err)
		}
		if callee.Behind.Calls() != before {
			t.Errorf("the call reached %s", callee.App)
		}
	}

	const long = "1h"
	ends := make(chan error, 3)
	slow := metadata.AppendToOutgoingContext(ctx, "takes", long)
	known := m.outsider(t, app("checkout"), quotes)
	before := orders.Behind.Begun("hello").Count
	go func() { ends <- known.stream(slow, "quotes") }()
	go func() { ends <- known.proxied(ctx, "quotes", map[string]string{"takes": long}) }()
	go func() {
		_, err := checkout.Invoke(ctx, "orders", "hello?takes="+long, untraced)
		ends <- err
	}()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if quotes.Behind.Begun("").Count == 0 || quotes.Behind.Begun("who").Count == 0 || orders.Behind.Begun("hello").Count == before {
			return errors.New("not all calls are under way")
		}
		return nil
	})
	m.apply(t, m.west, selection("guard", "checkout"))
	since := time.Now()
	for range cap(ends) {
		if err := <-ends; err == nil || !strings.Contains(err.Error(), "may not call") {
			t.Errorf("a call under way ends with %v", err)
		}
	}
	t.Logf("the last of %d calls under way ended %s after the declaration was withdrawn", cap(ends), time.Since(since).Round(time.Millisecond))
}
