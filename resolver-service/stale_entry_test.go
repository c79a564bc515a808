package resolverservice

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// A catalog has an entry of another app that was at an address before, and nobody has taken it
// away. A restart of the service, with what it has saved, makes no news of that entry: the app
// whose sidecar is there stays callable, before the sidecar has come back and after it.
func TestAStaleEntryTakesNoAddressByARestart(t *testing.T) {
	for _, state := range []string{api.HealthCritical, api.HealthPassing} {
		t.Run(state, func(t *testing.T) {
			server := serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{Management: serverstest.ConsulManagement})
			admin, err := api.NewClient(&api.Config{Address: server.Plain(), Token: serverstest.ConsulManagement})
			if err != nil {
				t.Fatal(err)
			}
			there, err := net.Listen("tcp", "127.0.0.1:0") // what refuses connections does not stand after a restart
			if err != nil {
				t.Fatal(err)
			}
			defer there.Close()
			cfg, err := Parse("isthmus.yaml", fmt.Appendf(nil, "cluster: west\ndataDir: %s\nidentity: {insecure: true}\n"+
				"listen: {resolver: '127.0.0.1:0', admin: '127.0.0.1:0'}\ninstances: {consul: {address: 'http://%s', appNamespace: shop, token: {file: %s}}}\n",
				t.TempDir(), server.Plain(), serverstest.Secret(t, serverstest.ConsulManagement).File))
			if err != nil {
				t.Fatal(err)
			}
			west := start(t, cfg, nil)
			west.sidecar(orders, there.Addr().String())
			// Made while no service runs, so the next one finds it as it would find an old one.
			if err := west.stop(); err != nil {
				t.Fatal(err)
			}
			stale := &api.AgentServiceRegistration{
				Name: "ledger", Address: "127.0.0.1", Meta: map[string]string{"DAPR_PORT": fmt.Sprint(there.Addr().(*net.TCPAddr).Port)},
				Check: &api.AgentServiceCheck{TTL: "1h", Status: state},
			}
			if err := admin.Agent().ServiceRegister(stale); err != nil {
				t.Fatal(err)
			}
			serverstest.Await(t, "the entry is in the catalog", func() bool {
				all, _, err := admin.Health().Service("ledger", "", false, nil)
				return err == nil && len(all) == 1 && all[0].Checks.AggregatedStatus() == state
			})
			again := start(t, cfg, nil)
			again.within("the entry is known", func() bool {
				return slices.ContainsFunc(again.status().GetSources(), func(s *v1alpha1.SourceStatus) bool {
					return s.GetName() == "consul" && s.GetInstances() == 1
				})
			})
			holds := func(when string) {
				t.Helper()
				if got := again.resolve(checkout, orders); got != "ok "+there.Addr().String() {
					t.Errorf("%s a lookup of orders: %s", when, got)
				}
				if got := again.resolve(checkout, catalog.App{Namespace: "shop", ID: "ledger"}); got != "unavailable" {
					t.Errorf("%s a lookup of ledger: %s", when, got)
				}
			}
			holds("before the sidecar is back,")
			again.sidecar(orders, there.Addr().String())
			holds("once it is,")
		})
	}
}
