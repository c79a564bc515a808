package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/settings"
)

const (
	management = "11111111-2222-3333-4444-555555555555"
	wrongToken = "99999999-8888-7777-6666-555555555555"
)

// shared is the one Consul of all tests, with ACLs.
var shared struct {
	once   sync.Once
	err    error
	dir    string
	server *servers.Consul
	link   *servers.Proxy
	admin  *api.Client
	token  string // that may read what docs/instances.md says
}

// testMain ends the server before goroutines are counted.
type testMain struct{ *testing.M }

func (m testMain) Run() int {
	defer func() {
		if shared.link != nil {
			shared.link.Close()
		}
		if shared.server != nil {
			_ = shared.server.Kill()
		}
		if shared.dir != "" {
			_ = os.RemoveAll(shared.dir)
		}
	}()
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(testMain{m}) }

// theAgent starts the shared server, the first time, and takes away all services.
func theAgent(t testing.TB) *api.Agent {
	t.Helper()
	shared.once.Do(func() { shared.err = startShared() })
	if errors.Is(shared.err, sandbox.ErrNoBinary) && os.Getenv("ISTHMUS_REQUIRE_BINARIES") == "" {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	if err := shared.link.Mend(); err != nil {
		t.Fatal(err)
	}
	wipe(t)
	return shared.admin.Agent()
}

func startShared() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if shared.dir, err = os.MkdirTemp("", "isthmus-catalog-"); err != nil {
		return err
	}
	if shared.server, err = servers.StartConsul(ctx, shared.dir, servers.ConsulOptions{Management: management}); err != nil {
		return err
	}
	if shared.link, err = servers.NewProxy(shared.server.Plain()); err != nil {
		return err
	}
	if shared.admin, err = api.NewClient(&api.Config{Address: shared.server.Plain(), Scheme: "http", Token: management}); err != nil {
		return err
	}
	shared.token, err = newToken(`service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`)
	return err
}

func newToken(rules string) (string, error) {
	name := fmt.Sprintf("policy-%d", time.Now().UnixNano())
	policy, _, err := shared.admin.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil)
	if err != nil {
		return "", err
	}
	token, _, err := shared.admin.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{ID: policy.ID}}}, nil)
	if err != nil {
		return "", err
	}
	return token.SecretID, nil
}

func wipe(t testing.TB) {
	t.Helper()
	services, err := shared.admin.Agent().Services()
	if err != nil {
		t.Fatal(err)
	}
	for id := range services {
		if err := shared.admin.Agent().ServiceDeregister(id); err != nil {
			t.Fatal(err)
		}
	}
	nodes, _, err := shared.admin.Catalog().Nodes(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node != "consul" {
			if _, err := shared.admin.Catalog().Deregister(&api.CatalogDeregistration{Node: n.Node}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, "an empty catalog", func() bool {
		all, _, err := shared.admin.Catalog().Services(nil)
		return err == nil && len(all) == 1
	})
}

// await waits until the catalog is as it should be: the agent tells it soon, and not at once.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not there: %s", what)
		}
	}
}

// configOf is by the link, with a token.
func configOf(t testing.TB, token string) Config {
	t.Helper()
	c := Config{Address: "http://" + shared.link.Addr(), NamespaceMeta: "DAPR_NAMESPACE"}
	if token != "" {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Token = &settings.Secret{File: path}
	}
	return c
}

func newSource(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// registration is as Dapr's Consul resolver makes it, but for the check, which has no
// sidecar to ask, and the namespace.
func registration(i catalog.Instance) *api.AgentServiceRegistration {
	return &api.AgentServiceRegistration{
		ID: idOf(i), Name: i.App.ID, Address: i.Address.Addr().String(), Port: 3000,
		Meta:  map[string]string{"DAPR_PORT": strconv.Itoa(int(i.Address.Port())), "DAPR_NAMESPACE": i.App.Namespace},
		Check: &api.AgentServiceCheck{CheckID: checkOf(i), Name: "Dapr Health Status", TTL: "10m", Status: api.HealthPassing},
	}
}

func idOf(i catalog.Instance) string    { return i.App.ID + "-" + i.App.Namespace + "-" + i.ID }
func checkOf(i catalog.Instance) string { return "daprHealth:" + idOf(i) }

// register waits until the catalog has what the agent was told.
func register(t testing.TB, all ...catalog.Instance) {
	t.Helper()
	for _, i := range all {
		if err := errors.Join(shared.admin.Agent().ServiceRegister(registration(i)), shared.admin.Agent().UpdateTTL(checkOf(i), "", api.HealthPassing)); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range all {
		await(t, idOf(i), func() bool {
			e := entryOf(i)
			return e != nil && e.Service.Address == i.Address.Addr().String() && e.Service.Meta["DAPR_PORT"] == strconv.Itoa(int(i.Address.Port())) && e.Checks.AggregatedStatus() == api.HealthPassing
		})
	}
}

// entryOf is what the catalog has of an instance, nil for nothing.
func entryOf(i catalog.Instance) *api.ServiceEntry {
	entries, _, err := shared.admin.Health().Service(i.App.ID, "", false, nil)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Service.ID == idOf(i) {
			return e
		}
	}
	return nil
}

func deregister(t testing.TB, all ...catalog.Instance) {
	t.Helper()
	for _, i := range all {
		if err := shared.admin.Agent().ServiceDeregister(idOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range all {
		await(t, "no "+idOf(i), func() bool { return entryOf(i) == nil })
	}
}

func drain(t testing.TB, i catalog.Instance) {
	t.Helper()
	if err := shared.admin.Agent().UpdateTTL(checkOf(i), "stopping", api.HealthCritical); err != nil {
		t.Fatal(err)
	}
	await(t, "a critical "+idOf(i), func() bool {
		e := entryOf(i)
		return e != nil && e.Checks.AggregatedStatus() == api.HealthCritical
	})
}

// spoil registers what nobody can call.
func spoil(t testing.TB) (words []string, mend func()) {
	t.Helper()
	all := []*api.AgentServiceRegistration{
		{ID: "no-port", Name: "bad", Address: "10.9.0.1", Meta: map[string]string{"DAPR_PORT": "none"}},
		{ID: "a-name", Name: "bad", Address: "host.example", Meta: map[string]string{"DAPR_PORT": "50002"}},
		{ID: "lacking", Name: "bad", Address: "10.9.0.2"},
		{ID: "no-app", Name: "Bad_Name", Address: "10.9.0.3", Meta: map[string]string{"DAPR_PORT": "50002"}},
	}
	for _, r := range all {
		if err := shared.admin.Agent().ServiceRegister(r); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"instance no-port on node consul", `DAPR_PORT is "none"`, "instance a-name on node consul", `"host.example" is no IP`, "instance lacking", "no DAPR_PORT", "Bad_Name"}, func() {
		for _, r := range all {
			if err := shared.admin.Agent().ServiceDeregister(r.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func restart(t testing.TB, kill bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	end := shared.server.Kill
	if !kill {
		end = func() error { return shared.server.Stop(ctx) }
	}
	if err := errors.Join(end(), shared.server.Start(ctx)); err != nil {
		t.Fatal(err)
	}
}

func mend(t testing.TB) func() {
	return func() {
		if err := shared.link.Mend(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSource(t *testing.T) {
	instancestest.Run(t, func(t *testing.T) instancestest.Backend {
		theAgent(t)
		as := func(token string) func(testing.TB) instances.Source {
			return func(t testing.TB) instances.Source { return newSource(t, configOf(t, token)) }
		}
		return instancestest.Backend{
			Open: as(shared.token), Denied: as(wrongToken),
			Put: register, Delete: deregister, Drain: drain, Spoil: spoil, Restart: restart,
			Fail:    func(t testing.TB) func() { shared.link.Refuse(); return mend(t) },
			Cut:     func(t testing.TB) func() { shared.link.Drop(); return mend(t) },
			Slow:    func(t testing.TB, by time.Duration) func() { shared.link.Delay(by); return mend(t) },
			Servers: []string{shared.link.Addr()}, Secrets: []string{management, wrongToken, shared.token},
			Many: 1000,
		}
	})
}

func addressOf(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
