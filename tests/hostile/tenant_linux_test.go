package hostile

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// TestATenantDoesNotLetItselfIn has a tenant, who may write objects in its own namespace, select apps
// of another one. It finds them, and their guards refuse it until their side consents.
func TestATenantDoesNotLetItselfIn(t *testing.T) {
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
	p.west, err = p.box.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{
		Name: "west", Authority: p.authority, Settings: map[string]any{"guard": "enforce"},
	})
	if err != nil {
		t.Fatal(err)
	}
	as := certificateFiles(t, p.authority, "public", identity.CLIApp(""))
	apply := func(objects string) {
		t.Helper()
		if _, err := commandLine(t, p.west.Resolver, as, objects, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	start := func(namespace, id string, o sandbox.SidecarOptions) *sandbox.Sidecar {
		t.Helper()
		o.App = catalog.App{Namespace: namespace, ID: id}
		s, err := p.west.Sidecar(meshtest.Within(t, meshtest.Patience), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	start("guard", "orders", sandbox.SidecarOptions{Guard: true})
	start("guard", "quotes", sandbox.SidecarOptions{GRPC: true})
	mallory := start("tenant", "mallory", sandbox.SidecarOptions{})
	conn, err := mallory.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	refused := func() error {
		ctx := meshtest.Within(t, meshtest.Attempt)
		if _, err := mallory.Invoke(ctx, "orders.guard", "hello", nil); err == nil || !strings.Contains(err.Error(), "ERR_ISTHMUS_DENIED") {
			return fmt.Errorf("mallory calls orders: %v; want a refusal", err)
		}
		if _, err := sandbox.Proxy(ctx, conn, "quotes.guard", nil); status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("mallory calls quotes: %v; want PermissionDenied", err)
		}
		return nil
	}
	letIn := func() error {
		ctx := meshtest.Within(t, meshtest.Attempt)
		if _, err := mallory.Invoke(ctx, "orders.guard", "hello", nil); err != nil {
			return err
		}
		_, err := sandbox.Proxy(ctx, conn, "quotes.guard", nil)
		return err
	}
	meshtest.Eventually(t, meshtest.Patience, refused) // by the default, under which it finds any app
	apply(meshtest.Selection("tenant", "mallory", "app: orders, namespace: guard", "app: quotes, namespace: guard"))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, err := commandLine(t, p.west.Resolver, as, "", "explain", "--from", "tenant/mallory", "orders.guard")
		if want := "the guard of guard/orders refuses the call: no AppExport guard/orders here allows {cluster: local, namespace: tenant, app: mallory}"; err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("isthmus explain: %w\n%s\nwant %s", err, out, want)
		}
		return nil
	})
	for range 20 {
		if err := refused(); err != nil {
			t.Fatalf("by its own selection: %v", err)
		}
	}
	consent := meshtest.Export("guard", "orders", "local") + "---\n" + meshtest.Export("guard", "quotes", "west, namespace: tenant")
	apply(consent)
	meshtest.Eventually(t, meshtest.Patience, letIn)
	if out, err := commandLine(t, p.west.Resolver, as, "", "explain", "--from", "east:tenant/mallory", "orders.guard"); err == nil || !strings.Contains(out, "exports the app to nobody") {
		t.Errorf("of east, isthmus explain says: %v\n%s", err, out)
	}
	apply(strings.NewReplacer("cluster: local", "cluster: east", "cluster: west", "cluster: east").Replace(consent))
	meshtest.Eventually(t, meshtest.Patience, refused)
}
