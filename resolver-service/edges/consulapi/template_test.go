package consulapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestATemplateFollows asks as consul-template does: each list by a stale blocking query, with
// the index of the answer before, and renders the file again after each change.
func TestATemplateFollows(t *testing.T) {
	both(t, func(t *testing.T, a *agent) {
		c, orders := a.client(t, "checkout"), a.client(t, "orders")
		index := map[string]uint64{}
		watch := func(what string, ask func(*api.QueryOptions) (*api.QueryMeta, error)) {
			t.Helper()
			meta, err := ask(&api.QueryOptions{AllowStale: true, WaitIndex: index[what], WaitTime: time.Second, Near: "_agent"})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			index[what] = meta.LastIndex
		}
		var services map[string][]string
		instances := map[string][]*api.ServiceEntry{}
		render := func() string {
			var lines []string
			watch("services", func(o *api.QueryOptions) (meta *api.QueryMeta, err error) {
				services, meta, err = c.Catalog().Services(o)
				return meta, err
			})
			for name, tags := range services {
				if name == "consul" {
					continue
				}
				watch("service "+name, func(o *api.QueryOptions) (meta *api.QueryMeta, err error) {
					instances[name], meta, err = c.Health().Service(name, "", true, o)
					return meta, err
				})
				for _, e := range instances[name] {
					lines = append(lines, fmt.Sprint("server ", name, tags, " ", e.Service.Address, ":", e.Service.Port, " on ", e.Node.Node, ";"))
				}
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
		becomes := func(want string) {
			t.Helper()
			got := ""
			serverstest.Await(t, "the file is "+want, func() bool { got = render(); return got == want })
		}
		becomes("")
		register := func(port int) {
			t.Helper()
			if err := orders.Agent().ServiceRegister(&api.AgentServiceRegistration{
				Name: "orders", Address: "127.0.0.1", Port: port, Tags: []string{"v1"}, Check: &api.AgentServiceCheck{CheckID: "ttl", TTL: "1h", Status: api.HealthPassing},
			}); err != nil {
				t.Fatal(err)
			}
		}
		register(8080)
		becomes("server orders[v1] 127.0.0.1:8080 on isthmus-west;")
		if err := orders.Agent().UpdateTTL("ttl", "ill", api.HealthCritical); err != nil {
			t.Fatal(err)
		}
		becomes("")
		if err := orders.Agent().UpdateTTL("ttl", "well", api.HealthPassing); err != nil {
			t.Fatal(err)
		}
		register(8081)
		becomes("server orders[v1] 127.0.0.1:8081 on isthmus-west;")
		if clusters, err := c.Catalog().Datacenters(); err != nil || !slices.Equal(clusters, []string{"west"}) {
			t.Errorf("datacenters %v %v", clusters, err)
		}
		if nodes, _, err := c.Catalog().Nodes(&api.QueryOptions{AllowStale: true}); err != nil || len(nodes) != 1 || nodes[0].Node != "isthmus-west" {
			t.Errorf("nodes %v %v", nodes, err)
		}
		if name, err := c.Agent().NodeName(); err != nil || name != "isthmus-west" {
			t.Errorf("node %q %v", name, err)
		}
		if err := orders.Agent().ServiceDeregister("orders"); err != nil {
			t.Fatal(err)
		}
		becomes("")
	})
}
