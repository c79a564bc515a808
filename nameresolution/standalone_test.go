package nameresolution

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
)

// dapr stands for the resolver that a user has already: it knows the apps given.
type dapr struct {
	mu     sync.Mutex
	knows  map[catalog.App]string
	closed bool
}

func (d *dapr) Find(_ context.Context, app catalog.App, port int) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if port != 50001 {
		return nil, errors.New("asked with another port than the sidecar's")
	}
	if app == mail {
		return nil, errors.New("no such host")
	}
	if d.knows[app] == "" {
		return nil, nil
	}
	return []string{d.knows[app]}, nil
}

func (d *dapr) Close() error {
	d.closed = true
	return nil
}

func (d *dapr) set(app catalog.App, address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.knows[app] = address
}

// standaloneWith runs the component without a service, on a store with the objects
// given.
func standaloneWith(t *testing.T, more m, objects ...catalog.Object) (*Resolver, *dapr) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "isthmus.db")
	store, err := embedded.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if _, err := store.Write(t.Context(), configstore.Write{Object: object}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	local := &dapr{knows: map[catalog.App]string{}}
	configuration := m{
		"store": m{"embedded": m{"path": path}}, "cluster": "west", "resolveTimeout": "1m",
		"local": m{"component": "mdns", "version": "v1", "configuration": m{"x": 1}},
	}
	for key, value := range more {
		configuration[key] = value
	}
	r := New(Options{Logger: quiet, Local: func(component, version string, configuration any) (LocalResolver, error) {
		if component != "mdns" || version != "v1" || configuration == nil {
			t.Errorf("local is %s %s %v", component, version, configuration)
		}
		return local, nil
	}})
	r.connect = func(context.Context, string) error { return nil } // the addresses are nobody's
	if err := r.Init(t.Context(), configuration, Instance{checkout, "10.0.0.9", 50001}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil || !local.closed {
			t.Errorf("Close: %v, local resolver closed: %v", err, local.closed)
		}
	})
	return r, local
}

func clusterAt(name string, gateways ...string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Gateways: gateways, StaleAfter: catalog.DefaultStaleAfter}
}

func route(cluster string, priority uint32) catalog.RouteSpec {
	return catalog.RouteSpec{Cluster: cluster, Priority: priority, Weight: 1}
}

func expect(t *testing.T, r *Resolver, app catalog.App, want string) {
	t.Helper()
	address, err := r.ResolveID(t.Context(), app)
	d := r.Explain(t.Context(), app)
	if outcome, refused := strings.CutPrefix(want, "refused: "); refused {
		if err == nil || !strings.HasPrefix(err.Error(), outcome) || d.Outcome.String() != outcome {
			t.Errorf("%s: %q, %v; explained as %+v; want %s", app, address, err, d, outcome)
		}
		return
	}
	if address != want || err != nil || d.Address != want || d.Outcome != catalog.OK {
		t.Errorf("%s: %q, %v; explained as %+v; want %s", app, address, err, d, want)
	}
}

func TestWithoutAServiceALookupAsksLocallyFirst(t *testing.T) {
	east := clusterAt("east", "203.0.113.7:443", "gw.east.example:15443")
	east.AppGateways = []catalog.AppGateway{{App: orders, Address: "203.0.113.8:50002"}} // for callers that send no server name
	r, local := standaloneWith(t, nil,
		east, clusterAt("north", "198.51.100.1:15443"),
		&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{
			{App: orders},
			{App: ledger, Routes: []catalog.RouteSpec{route("north", 0), route("local", 1)}},
			{App: mail, Routes: []catalog.RouteSpec{route("local", 0), route("south", 1)}},
		}})
	const away = "orders.shop.east.isthmus.internal:443"
	expect(t, r, checkout, "10.0.0.9:50001")
	local.set(orders, "10.0.0.1:50002")
	expect(t, r, orders, "10.0.0.1:50002")
	local.set(orders, "") // found nothing: the other clusters, both on one priority
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if address, err := r.ResolveID(t.Context(), orders); address == away && err == nil {
			break
		} else if address != "orders.shop.north.isthmus.internal:15443" && address != "10.0.0.1:50002" {
			t.Fatalf("orders is %q, %v", address, err)
		}
	}
	expect(t, r, ledger, "ledger.finance.north.isthmus.internal:15443")
	expect(t, r, mail, "refused: unavailable") // local fails, and no Cluster is called south
	expect(t, r, catalog.App{Namespace: "shop", ID: "other"}, "refused: denied")
	gateways, _ := r.Gateways().Load()
	if got := gateways.Addresses["east"]; len(got) != 2 || gateways.Domain != catalog.DefaultDomain {
		t.Errorf("gateways %+v", gateways)
	}
}

// Without a service nobody counts instances: a name may stand for many, and those of another cluster
// are not known. So minReady sends no call on.
func TestWithoutAServiceNoInstancesAreCounted(t *testing.T) {
	near, far := route("local", 0), route("east", 1)
	near.MinReady, far.MinReady = 3, 3
	r, local := standaloneWith(t, nil, clusterAt("east", "203.0.113.7:443"), clusterAt("north", "203.0.113.8:443"),
		&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{
			{App: orders, Routes: []catalog.RouteSpec{near, far}},
			{App: ledger, Routes: []catalog.RouteSpec{{Cluster: "east", Weight: 1, MinReady: 3}, route("north", 1)}},
		}})
	local.set(orders, "orders.example:50002")
	for range 20 {
		expect(t, r, orders, "orders.example:50002")
		expect(t, r, ledger, "ledger.finance.east.isthmus.internal:443")
	}
}

func TestWithoutASelectionTheLocalResolverDecides(t *testing.T) {
	r, local := standaloneWith(t, nil, clusterAt("east", "203.0.113.7:443"))
	local.set(orders, "10.0.0.1:50002")
	expect(t, r, orders, "10.0.0.1:50002")
	expect(t, r, ledger, "refused: not found")
	expect(t, r, mail, "refused: not found")
	if d := r.Explain(t.Context(), mail); !strings.Contains(d.Reason, "no such host") {
		t.Errorf("the local resolver's reason is lost: %q", d.Reason)
	}
}

// A selection that can't be used must not let its app call everything, as if it had
// none.
func TestASelectionThatCantBeUsedIsNotReady(t *testing.T) {
	p := &plan{app: checkout, cluster: "west"}
	refused := []configstore.Refusal{{Key: p.selectionKey(), Where: "checkout.yaml:3", Err: errors.New("unknown field")}}
	p.take(configstore.Change{Full: true, Refused: refused})
	if err := p.blocked(refused); err == nil || !strings.Contains(err.Error(), "checkout.yaml:3") {
		t.Errorf("blocked by %v", err)
	}
	if err := p.blocked(nil); err != nil || !p.changed {
		t.Errorf("once the bad object is gone: blocked by %v, changed: %v", err, p.changed)
	}
	selection := &catalog.AppEndpoints{App: checkout}
	p.take(configstore.Change{Objects: []configstore.Stored{{Object: selection}}, Refused: refused})
	if err := p.blocked(refused); err != nil || p.view().Open {
		t.Errorf("with a last good selection: %v", err)
	}
	p.take(configstore.Change{Deleted: []catalog.Key{p.selectionKey()}})
	if !p.changed || !p.view().Open {
		t.Error("a selection that is deleted leaves the default")
	}
}

func TestWithoutAServiceTheLastGoodViewServesToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkout.view")
	r, _ := standaloneWith(t, m{"lastGood": path}, clusterAt("east", "203.0.113.7:15443"),
		&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{{App: orders}}})
	expect(t, r, orders, "orders.shop.east.isthmus.internal:15443")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	back, _ := fileOf(path, quiet).load()
	if back == nil {
		t.Fatal("nothing was saved")
	}
	entry, _ := back.view.Entries.Get(orders)
	if entry == nil || entry.Routes[0].State != catalog.Delegated {
		t.Errorf("saved as %+v", entry)
	}
}

func TestWithoutAServiceAFileCanBeEdited(t *testing.T) {
	dir := t.TempDir()
	write := func(callee string) {
		text := "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec: {endpoints: [{app: " + callee + "}]}\n"
		if err := os.WriteFile(filepath.Join(dir, "checkout.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("orders")
	r, local := standaloneWith(t, m{"store": map[any]any{"file": map[any]any{"path": dir}}})
	local.set(orders, "10.0.0.1:50002")
	expect(t, r, orders, "10.0.0.1:50002")
	write("mail")
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := r.ResolveID(t.Context(), orders); errors.Is(err, catalog.ErrDenied) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the edit was not noticed")
		}
	}
}

func TestInitRefusesWhatItCantStart(t *testing.T) {
	local := func(string, string, any) (LocalResolver, error) { return nil, errors.New("no such component") }
	service := m{"resolver": "127.0.0.1:1", "cluster": "west", "identity": insecure()}
	store := m{"store": m{"file": m{"path": t.TempDir()}}, "cluster": "west", "local": m{"component": "mdns"}}
	for what, test := range map[string]struct {
		opts          Options
		configuration m
		self          Instance
		want          string
	}{
		"a bad app":           {Options{}, service, Instance{catalog.App{ID: "A"}, "10.0.0.9", 1}, "this sidecar's app"},
		"no address":          {Options{}, service, Instance{checkout, "", 1}, "set advertise"},
		"no local resolvers":  {Options{}, store, Instance{checkout, "10.0.0.9", 1}, "use the resolver service"},
		"local fails":         {Options{Local: local}, store, Instance{checkout, "10.0.0.9", 1}, "no such component"},
		"an unknown store":    {Options{Local: local}, m{"store": m{"fil": m{}}, "cluster": "west", "local": m{"component": "mdns"}}, Instance{checkout, "10.0.0.9", 1}, `did you mean "file"`},
		"a store that is not": {Options{Local: local}, m{"store": m{"file": 1}, "cluster": "west", "local": m{"component": "mdns"}}, Instance{checkout, "10.0.0.9", 1}, "store.file"},
	} {
		test.opts.Logger = quiet
		r := New(test.opts)
		if err := r.Init(t.Context(), test.configuration, test.self); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}
