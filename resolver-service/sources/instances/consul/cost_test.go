package consul

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func known(catalog.Instance) bool { return true }

// enter writes an instance into the catalog without an agent, as tools for VMs do.
func enter(t testing.TB, node, service, address string, status string) {
	t.Helper()
	if err := entry(node, service, address, status); err != nil {
		t.Fatal(err)
	}
}

func entry(node, service, address string, status string) error {
	_, err := shared.Admin.Catalog().Register(&api.CatalogRegistration{
		Node: node, Address: address,
		Service: &api.AgentService{ID: service, Service: service, Address: address, Port: 3000, Meta: map[string]string{"DAPR_PORT": "50002"}},
		Check:   &api.AgentCheck{Node: node, CheckID: "health-of-" + service, Name: "health", Status: status, ServiceID: service, ServiceName: service},
	}, nil)
	return err
}

// TestWhatAThousandServicesCost counts requests, by the connections' turns. A round may wait for
// its rest, the longer the busier this machine is, and be made with what comes after: so what
// counts is how many there were up to each change, which may be as many as all so far are worth.
func TestWhatAThousandServicesCost(t *testing.T) {
	theAgent(t)
	const many = 1000
	var entries errgroup.Group
	entries.SetLimit(16) // so that the server makes one flush to its disk for several
	for n := range many {
		entries.Go(func() error {
			return entry(fmt.Sprintf("vm-%d", n%50), fmt.Sprintf("app-%d", n), fmt.Sprintf("10.3.%d.%d", n/250, n%250), api.HealthPassing)
		})
	}
	if err := entries.Wait(); err != nil {
		t.Fatal(err)
	}
	before := shared.link.Traffic()
	begin := time.Now()
	f := instancestest.Follow(t, newSource(t, configOf(t, shared.token)))
	serverstest.Await(t, "all", func() bool { return f.Status().Instances == many })
	t.Logf("the full set of %d services took %s and %d requests by %d connections", many, time.Since(begin).Round(time.Millisecond),
		shared.link.Traffic().Requests-before.Requests, shared.link.Traffic().Connections-before.Connections)
	if n := shared.link.Traffic().Connections - before.Connections; n > 30 {
		t.Errorf("%d connections", n)
	}
	requests := func() int64 { return shared.link.Traffic().Requests }
	serverstest.Await(t, "what came with the full set is over", func() bool {
		was := requests()
		time.Sleep(time.Second)
		return requests() <= was+1 // a heartbeat
	})
	first, since, allowed := requests(), time.Now(), int64(0)
	cost := func(what string, most int64, change func(), is func() bool) {
		t.Helper()
		before, begin := requests(), time.Now()
		change()
		serverstest.Await(t, what, is)
		took := time.Since(begin)
		time.Sleep(2 * time.Second) // for what comes of it
		n, all := requests()-before, requests()-first
		t.Logf("%s: known after %s; %d requests", what, took.Round(time.Millisecond), n)
		allowed += most
		if all > allowed+int64(time.Since(since)/agent.Heartbeat) {
			t.Errorf("%s: %d requests, %d of them up to now; want %d at most", what, all, n, allowed)
		}
	}
	cost("nothing", 3, func() {}, func() bool { return true })
	draining := func(i catalog.Instance) bool { return i.Draining }
	cost("a check that fails", 10, func() { enter(t, "vm-7", "app-7", "10.3.0.7", api.HealthCritical) }, func() bool { return f.Count(draining) == 1 })
	cost("a check that passes again", 10, func() { enter(t, "vm-7", "app-7", "10.3.0.7", api.HealthPassing) }, func() bool { return f.Count(draining) == 0 })
	cost("a new service", many+20, func() { enter(t, "vm-7", "app-new", "10.3.9.9", api.HealthPassing) }, func() bool { return f.Count(known) == many+1 })
	cost("another instance", many+20, func() {
		_, err := shared.Admin.Catalog().Register(&api.CatalogRegistration{
			Node: "vm-20", Address: "10.3.9.7",
			Service: &api.AgentService{ID: "app-9", Service: "app-9", Address: "10.3.9.7", Port: 3000, Meta: map[string]string{"DAPR_PORT": "50002"}},
			Check:   &api.AgentCheck{Node: "vm-20", CheckID: "other", Name: "health", Status: api.HealthPassing, ServiceID: "app-9", ServiceName: "app-9"},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}, func() bool { return f.Count(known) == many+2 })
	cost("another instance that goes", many+20, func() {
		if _, err := shared.Admin.Catalog().Deregister(&api.CatalogDeregistration{Node: "vm-20", ServiceID: "app-9"}, nil); err != nil {
			t.Fatal(err)
		}
	}, func() bool { return f.Count(known) == many+1 })
	cost("another address", many+20, func() { enter(t, "vm-8", "app-8", "10.3.9.8", api.HealthPassing) }, func() bool {
		return f.Count(func(i catalog.Instance) bool { return i.Address.String() == "10.3.9.8:50002" }) == 1
	})
	cost("a service that goes", many+20, func() {
		if _, err := shared.Admin.Catalog().Deregister(&api.CatalogDeregistration{Node: "vm-9", ServiceID: "app-9"}, nil); err != nil {
			t.Fatal(err)
		}
	}, func() bool { return f.Count(known) == many })
	cost("a node in maintenance, with 20 services", many+100, func() {
		_, err := shared.Admin.Catalog().Register(&api.CatalogRegistration{Node: "vm-11", Address: "10.3.0.11", SkipNodeUpdate: true,
			Check: &api.AgentCheck{Node: "vm-11", CheckID: api.NodeMaint, Name: "maintenance", Status: api.HealthCritical}}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}, func() bool { return f.Count(draining) == many/50 })
	if s := f.Status(); s.Err != nil {
		t.Error(errors.Unwrap(s.Err), s.Err)
	}
}
