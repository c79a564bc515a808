package consul

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// shared is the one Consul of all tests.
var shared struct {
	serverstest.Consul
	link  serverstest.Link
	token string // that may read what docs/reference/instances.md says
}

func TestMain(m *testing.M) {
	serverstest.Main(m, func() {
		if shared.link.Proxy != nil {
			shared.link.Close()
		}
		shared.End()
	})
}

// rights let a source read all that it needs.
const rights = `service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`

// theAgent starts the shared server, the first time, and takes away all services.
func theAgent(t testing.TB) *api.Agent {
	t.Helper()
	shared.Need(t)
	if shared.link.Proxy == nil {
		var err error
		if shared.link.Proxy, err = servers.NewProxy(shared.Server.Plain()); err != nil {
			t.Fatal(err)
		}
		shared.token = shared.NewToken(t, rights)
	}
	if err := shared.link.Mend(); err != nil {
		t.Fatal(err)
	}
	wipe(t)
	return shared.Admin.Agent()
}

func wipe(t testing.TB) {
	t.Helper()
	services, err := shared.Admin.Agent().Services()
	if err != nil {
		t.Fatal(err)
	}
	for id := range services {
		if err := shared.Admin.Agent().ServiceDeregister(id); err != nil {
			t.Fatal(err)
		}
	}
	nodes, _, err := shared.Admin.Catalog().Nodes(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node != "consul" {
			if _, err := shared.Admin.Catalog().Deregister(&api.CatalogDeregistration{Node: n.Node}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	serverstest.Await(t, "an empty catalog", func() bool {
		all, _, err := shared.Admin.Catalog().Services(nil)
		return err == nil && len(all) == 1
	})
}

// configOf is by the link, with a token.
func configOf(t testing.TB, token string) Config {
	t.Helper()
	return Config{Address: "http://" + shared.link.Addr(), NamespaceMeta: "DAPR_NAMESPACE", Token: serverstest.Secret(t, token)}
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
		if err := errors.Join(shared.Admin.Agent().ServiceRegister(registration(i)), shared.Admin.Agent().UpdateTTL(checkOf(i), "", api.HealthPassing)); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range all {
		serverstest.Await(t, idOf(i), func() bool {
			e := entryOf(i)
			return e != nil && e.Service.Address == i.Address.Addr().String() && e.Service.Meta["DAPR_PORT"] == strconv.Itoa(int(i.Address.Port())) && e.Checks.AggregatedStatus() == api.HealthPassing
		})
	}
}

// entryOf is what the catalog has of an instance, nil for nothing.
func entryOf(i catalog.Instance) *api.ServiceEntry {
	entries, _, err := shared.Admin.Health().Service(i.App.ID, "", false, nil)
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
		if err := shared.Admin.Agent().ServiceDeregister(idOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range all {
		serverstest.Await(t, "no "+idOf(i), func() bool { return entryOf(i) == nil })
	}
}

func drain(t testing.TB, i catalog.Instance) {
	t.Helper()
	if err := shared.Admin.Agent().UpdateTTL(checkOf(i), "stopping", api.HealthCritical); err != nil {
		t.Fatal(err)
	}
	serverstest.Await(t, "a critical "+idOf(i), func() bool {
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
		{ID: "no-app", Name: "Bad.Name", Address: "10.9.0.3", Meta: map[string]string{"DAPR_PORT": "50002"}},
	}
	for _, r := range all {
		if err := shared.Admin.Agent().ServiceRegister(r); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"instance no-port on node consul", `DAPR_PORT is "none"`, "instance a-name on node consul", `"host.example" is no IP`, "instance lacking", "no DAPR_PORT", "Bad.Name"}, func() {
		for _, r := range all {
			if err := shared.Admin.Agent().ServiceDeregister(r.ID); err != nil {
				t.Fatal(err)
			}
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
			Open: as(shared.token), Denied: as(serverstest.ConsulStranger),
			Put: register, Delete: deregister, Drain: drain, Spoil: spoil,
			Restart: func(t testing.TB, kill bool) { serverstest.Restart(t, shared.Server, kill) },
			Fail:    shared.link.Fail, Cut: shared.link.Cut, Slow: shared.link.Slow,
			Servers: []string{shared.link.Addr()}, Secrets: []string{serverstest.ConsulManagement, serverstest.ConsulStranger, shared.token},
			Many: 1000,
		}
	})
}

func addressOf(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// A later registration has a later time, whatever it is called and whenever it was changed.
func TestRegistrationsSayWhichIsLater(t *testing.T) {
	agent := theAgent(t)
	register := func(service, id string, port int) {
		t.Helper()
		r := &api.AgentServiceRegistration{Name: service, ID: id, Address: "10.0.0.1", Port: port, Meta: map[string]string{"DAPR_PORT": "50002"}}
		if err := agent.ServiceRegister(r); err != nil {
			t.Fatal(err)
		}
		serverstest.Await(t, id+" is in the catalog", func() bool {
			all, _, err := shared.Admin.Catalog().Service(service, "", nil)
			return err == nil && slices.ContainsFunc(all, func(s *api.CatalogService) bool { return s.ServiceID == id && s.ServicePort == port })
		})
	}
	want := []string{"zebra-2", "orders-9", "billing-5", "orders-1", "zebra-1"}
	for _, id := range want {
		service, _, _ := strings.Cut(id, "-")
		register(service, id, 3500)
	}
	register("orders", "orders-9", 3501)
	var got []string
	done := errors.New("done")
	if err := newSource(t, configOf(t, shared.token)).Watch(t.Context(), func(c instances.Change) error {
		slices.SortFunc(c.Put, func(a, b catalog.Instance) int { return cmp.Compare(a.Since, b.Since) })
		for _, i := range c.Put {
			_, id, _ := strings.Cut(i.ID, "/")
			got = append(got, id)
		}
		return done
	}); !errors.Is(err, done) {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
