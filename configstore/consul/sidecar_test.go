package consul

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	consulapi "github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/open"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

var (
	orders = catalog.App{Namespace: "shop", ID: "orders"}
	east   = &catalog.Cluster{Name: "east", Gateways: []string{"203.0.113.7:15443"}, StaleAfter: catalog.DefaultStaleAfter}
	toEast = catalog.RouteSpec{Cluster: "east", Weight: 1}
)

// aclConsul is a Consul that denies what no token allows.
type aclConsul struct {
	t       *testing.T
	server  *servers.Consul
	admin   *consulapi.Client
	objects *Store // opened with all rights
	tokens  int
}

func newConsul(t *testing.T) *aclConsul {
	t.Helper()
	const management = "11111111-2222-3333-4444-555555555555"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	server, err := servers.StartConsul(ctx, t.TempDir(), servers.ConsulOptions{Management: management})
	programstest.OrSkip(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	c := &aclConsul{t: t, server: server}
	if c.admin, err = consulapi.NewClient(&consulapi.Config{Address: server.Addr(), Token: management}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ISTHMUS_TEST_MANAGEMENT", management)
	c.objects, err = Open(Config{Address: server.URL(), Token: &settings.Secret{Env: "ISTHMUS_TEST_MANAGEMENT"}}, configstore.Scope{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.objects.Close() })
	return c
}

func (c *aclConsul) put(objects ...catalog.Object) {
	c.t.Helper()
	for _, o := range objects {
		if _, err := c.objects.Write(c.t.Context(), configstore.Write{Object: o}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// tokenOf is the token of an app's sidecar, which may read what docs say and nothing else.
func (c *aclConsul) tokenOf(app catalog.App) (secret, file string) {
	c.t.Helper()
	c.tokens++
	rules := fmt.Sprintf(`key "isthmus/v1alpha1/AppEndpoints/%s" { policy = "read" } key_prefix "isthmus/v1alpha1/Cluster/" { policy = "read" }`, app)
	name := fmt.Sprintf("sidecar-%d", c.tokens)
	if _, _, err := c.admin.ACL().PolicyCreate(&consulapi.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		c.t.Fatal(err)
	}
	token, _, err := c.admin.ACL().TokenCreate(&consulapi.ACLToken{Policies: []*consulapi.ACLTokenPolicyLink{{Name: name}}}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	file = filepath.Join(c.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token.SecretID+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return token.SecretID, file
}

// sidecar is the component of checkout's sidecar, without a service and with a token.
func (c *aclConsul) sidecar(tokenFile string) *nameresolution.Resolver {
	c.t.Helper()
	r := nameresolution.New(nameresolution.Options{
		Logger: slog.New(slog.DiscardHandler), Stores: []open.Kind{open.Of("consul", Open)},
		Local: func(string, string, any) (nameresolution.LocalResolver, error) { return nobody{}, nil },
	})
	type m = map[string]any
	configuration := m{
		"store":   m{"consul": m{"address": c.server.URL(), "token": m{"file": tokenFile}}},
		"cluster": "west", "local": m{"component": "mdns"}, "resolveTimeout": "3s",
	}
	if err := r.Init(c.t.Context(), configuration, nameresolution.Instance{App: checkout.App, Address: "10.0.0.9", Port: 50001}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { r.Close() })
	return r
}

// nobody is a local resolver that finds no app.
type nobody struct{}

func (nobody) Find(context.Context, catalog.App, int) ([]string, error) { return nil, nil }
func (nobody) Close() error                                             { return nil }

func denied(t *testing.T, r *nameresolution.Resolver, app catalog.App) {
	t.Helper()
	if d := r.Explain(t.Context(), app); d.Outcome != catalog.Denied {
		t.Errorf("%s: %+v, want denied", app, d)
	}
}

func eventually(t *testing.T, r *nameresolution.Resolver, app catalog.App, want string) {
	t.Helper()
	var address string
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if address, err = r.ResolveID(t.Context(), app); address == want && want != "" || want == "" && err != nil {
			return
		}
	}
	t.Fatalf("%s: %q, %v; want %q", app, address, err, want)
}

// A sidecar that reads the store itself needs the right to read its own selection and the
// clusters, and no other; it is held to that by the server.
func TestASidecarsCredentialsReadItsOwnSelectionAndTheClusters(t *testing.T) {
	c := newConsul(t)
	ledger, other := catalog.App{Namespace: "shop", ID: "ledger"}, catalog.App{Namespace: "shop", ID: "other"}
	c.put(east,
		&catalog.AppEndpoints{App: checkout.App, Endpoints: []catalog.Endpoint{{App: ledger, Routes: []catalog.RouteSpec{toEast}}}},
		&catalog.AppEndpoints{App: other, Endpoints: []catalog.Endpoint{{App: orders}}},
		&catalog.AppExport{App: orders})
	secret, file := c.tokenOf(checkout.App)

	mine, err := consulapi.NewClient(&consulapi.Config{Address: c.server.Addr(), Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	for key, may := range map[string]bool{
		api.KeyPath(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}): true,
		api.KeyPath(catalog.Key{Kind: catalog.KindCluster, Name: "east"}):                             true,
		api.KeyPath(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "other"}):    false,
		api.KeyPath(catalog.Key{Kind: catalog.KindAppExport, Namespace: "shop", Name: "orders"}):      false,
	} {
		if pair, _, err := mine.KV().Get(key, nil); (pair != nil && err == nil) != may {
			t.Errorf("the token reads %s: %v, %v; want %t", key, pair, err, may)
		}
	}

	r := c.sidecar(file)
	atEast := "ledger.shop.east.isthmus.internal:15443"
	eventually(t, r, ledger, atEast)
	denied(t, r, orders)
	c.put(&catalog.AppEndpoints{App: checkout.App, Endpoints: []catalog.Endpoint{{App: orders, Routes: []catalog.RouteSpec{toEast}}}})
	eventually(t, r, orders, "orders.shop.east.isthmus.internal:15443")
	denied(t, r, ledger)

	// The store goes, and lookups go on; it comes back, and the first change is seen.
	if err := c.server.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, r, orders, "orders.shop.east.isthmus.internal:15443")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := c.server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c.put(&catalog.AppEndpoints{App: checkout.App, Endpoints: []catalog.Endpoint{{App: ledger, Routes: []catalog.RouteSpec{toEast}}}})
	eventually(t, r, ledger, atEast)
}

func TestASidecarWithAnothersCredentialsIsNotReadyAndSaysWhatItNeeds(t *testing.T) {
	c := newConsul(t)
	c.put(east, &catalog.AppEndpoints{App: checkout.App, Endpoints: []catalog.Endpoint{{App: orders}}})
	secret, file := c.tokenOf(catalog.App{Namespace: "shop", ID: "other"})
	r := c.sidecar(file)
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		_, err = r.ResolveID(t.Context(), orders)
		if err == nil || strings.Contains(err.Error(), `key "isthmus/v1alpha1/AppEndpoints/shop/checkout"`) {
			break // until Consul has refused it, where that is slow, a lookup says that nothing is known
		}
	}
	if err == nil || !strings.HasPrefix(err.Error(), "not ready: ") || !strings.Contains(err.Error(), `key "isthmus/v1alpha1/AppEndpoints/shop/checkout"`) || strings.Contains(err.Error(), secret) {
		t.Errorf("a lookup: %v", err)
	}
}
