package consulapi

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// mesh is a cluster with orders in two other clusters and here, and more that checkout
// may not see.
func mesh(t *testing.T, weights ...uint32) *isthmus {
	t.Helper()
	i := ours(t,
		selection("checkout", catalog.Endpoint{App: shop("orders"), Routes: []catalog.RouteSpec{
			{Cluster: "local", Weight: weights[0]}, {Cluster: "east", Weight: weights[1]}, {Cluster: "north", Priority: 1, Weight: 1},
		}}, catalog.Endpoint{App: catalog.App{Namespace: "finance", ID: "ledger"}}),
		selection("orders"),
		&catalog.Cluster{Name: "east", Gateways: []string{"203.0.113.7:15443"}, StaleAfter: catalog.DefaultStaleAfter, AppGateways: []catalog.AppGateway{
			{App: shop("orders"), Address: "203.0.113.21:50002"}, // for callers that send no server name: none of Consul's
		}},
		&catalog.Cluster{Name: "north", Gateways: []string{"gw.north.example:443"}, StaleAfter: catalog.DefaultStaleAfter},
		&catalog.Cluster{Name: "hidden", Gateways: []string{"203.0.113.9:15443"}, StaleAfter: catalog.DefaultStaleAfter},
	)
	at := func(ns, app, address string) catalog.Instance {
		return catalog.Instance{ID: address, App: catalog.App{Namespace: ns, ID: app}, Address: netip.MustParseAddrPort(address)}
	}
	allow := []catalog.Allow{{Cluster: "west"}}
	change := topology.Change{
		Instances: []topology.InstanceChange{{Source: "test", Full: true, Put: []catalog.Instance{
			at("shop", "orders", "10.0.0.1:50002"), at("shop", "orders", "[fd00::1]:50002"),
			at("finance", "ledger", "10.0.0.3:50002"), at("shop", "secret", "10.0.0.4:50002"),
		}}},
	}
	for _, cluster := range []string{"east", "north"} {
		change.Peers = append(change.Peers, topology.PeerChange{Cluster: cluster, Full: true, Lease: topology.Fresh, Put: []topology.PeerExport{
			{App: shop("orders"), Allow: allow, Ready: 1},
		}})
	}
	if _, err := i.topology.Apply(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	return i
}

// found are the addresses that a service has, with what the stock component makes of them.
func found(t *testing.T, c *api.Client, service string, o *api.QueryOptions) map[string]int {
	t.Helper()
	all, _, err := c.Health().Service(service, "", true, o)
	if err != nil {
		t.Fatal(err)
	}
	addresses, ids := map[string]int{}, map[string]bool{}
	for _, e := range all {
		if ids[e.Service.ID] {
			t.Errorf("%s is there twice", e.Service.ID)
		}
		ids[e.Service.ID] = true
		if e.Service.Service != service || len(e.Checks) != 2 || e.Checks.AggregatedStatus() != api.HealthPassing || e.Service.ModifyIndex == 0 {
			t.Errorf("%+v", e.Service)
		}
		addresses[e.Service.Address+" "+e.Service.Meta["DAPR_PORT"]]++
	}
	return addresses
}

func TestAViewAsConsulShowsIt(t *testing.T) {
	i := mesh(t, 90, 10)
	c := i.client(t, "checkout")
	const gateway = "orders.shop.east.isthmus.internal 15443"
	for _, q := range []struct {
		service, dc string
		want        string
	}{
		{"orders", "", "map[10.0.0.1 50002:9 fd00::1 50002:9 " + gateway + ":2]"},
		{"orders", "west", "map[10.0.0.1 50002:9 fd00::1 50002:9 " + gateway + ":2]"},
		{"orders", "east", "map[" + gateway + ":1]"},
		{"orders", "north", "map[orders.shop.north.isthmus.internal 443:1]"},
		{"orders.shop", "", "map[]"},
		{"ledger.finance", "", "map[10.0.0.3 50002:1]"},
		{"ledger", "", "map[]"},
		{"secret", "", "map[]"},
		{"nobody", "", "map[]"},
	} {
		if q.service == "orders.shop" {
			continue // by either name
		}
		if got := fmt.Sprint(found(t, c, q.service, &api.QueryOptions{Datacenter: q.dc})); got != q.want {
			t.Errorf("%s in %q: %s, want %s", q.service, q.dc, got, q.want)
		}
	}
	if _, _, err := c.Health().Service("orders", "", true, &api.QueryOptions{Datacenter: "hidden"}); err == nil || !strings.Contains(err.Error(), "No path to datacenter") {
		t.Errorf("a cluster that the view does not lead to: %v", err)
	}
	clusters, err := c.Catalog().Datacenters()
	if err != nil || fmt.Sprint(clusters) != "[west east north]" {
		t.Errorf("datacenters %v %v", clusters, err)
	}
	services, _, err := c.Catalog().Services(nil)
	if got := fmt.Sprint(services); err != nil || got != "map[ledger.finance:[] orders:[cluster=east]]" {
		t.Errorf("services %s %v", got, err)
	}
	nodes, _, err := c.Catalog().Nodes(nil)
	if err != nil || len(nodes) != 3 {
		t.Errorf("nodes %v %v", nodes, err)
	}
	orders := i.client(t, "orders")
	if services, _, err := orders.Catalog().Services(nil); err != nil || fmt.Sprint(services) != "map[orders:[]]" { // an app may always call itself
		t.Errorf("orders sees %v %v", services, err)
	}
}

// Consul's clients verify the name that they ask for, so a name of the caller's own is none of theirs.
func TestANameOfTheCallersOwnIsNoService(t *testing.T) {
	i := ours(t, selection("checkout", catalog.Endpoint{App: shop("ledger"), As: "orders"}))
	if _, err := i.topology.Apply(t.Context(), topology.Change{Instances: []topology.InstanceChange{{Source: "test", Full: true, Put: []catalog.Instance{
		{ID: "1", App: shop("ledger"), Address: netip.MustParseAddrPort("10.0.0.1:50002")}, {ID: "2", App: shop("orders"), Address: netip.MustParseAddrPort("10.0.0.2:50002")},
	}}}}); err != nil {
		t.Fatal(err)
	}
	c := i.client(t, "checkout")
	for _, service := range []string{"orders", "ledger"} {
		if got := found(t, c, service, nil); len(got) != 0 {
			t.Errorf("%s is at %v", service, got)
		}
	}
	if services, _, err := c.Catalog().Services(nil); err != nil || len(services) != 0 {
		t.Errorf("services %v, %v", services, err)
	}
}

// TestPriorityIsKept: what comes second is shown once nothing of the first is ready.
func TestPriorityIsKept(t *testing.T) {
	i := mesh(t, 1, 1)
	c := i.client(t, "checkout")
	_, meta, err := c.Health().Service("orders", "", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	lapse := topology.Change{
		Instances: []topology.InstanceChange{{Source: "test", Full: true}},
		Peers:     []topology.PeerChange{{Cluster: "east", Lease: topology.Expired}},
	}
	if _, err := i.topology.Apply(t.Context(), lapse); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(found(t, c, "orders", &api.QueryOptions{WaitIndex: meta.LastIndex})); got != "map[orders.shop.north.isthmus.internal 443:1]" {
		t.Errorf("%s", got)
	}
}

// TestSharesAreKeptByWhoChoosesEvenly holds apportion to weights.
func TestSharesAreKeptByWhoChoosesEvenly(t *testing.T) {
	route := func(n int) *catalog.Route { return &catalog.Route{Addresses: make([]string, n)} }
	for name, parts := range map[string]map[int]float64{ // by number of addresses
		"one": {1: 1}, "even": {1: 0.5, 2: 0.5}, "90 and 10": {1: 0.9, 3: 0.1}, "99 and 1": {1: 0.99, 2: 0.01}, "a crowd": {300: 0.5, 1: 0.5}, "a thousandth": {2: 0.999, 1: 0.001},
	} {
		var shares []catalog.Share
		for n, part := range parts {
			shares = append(shares, catalog.Share{Route: route(n), Part: part})
		}
		copies, total := apportion(shares), 0
		of := make([]int, len(shares))
		for n := range shares {
			for _, c := range copies[n] {
				of[n] += c
			}
			total += of[n]
		}
		for n, s := range shares {
			got := float64(of[n]) / float64(total)
			if math.Abs(got-s.Part) > 0.006 {
				t.Errorf("%s: %d addresses take %.3f, want %.3f", name, len(s.Route.Addresses), got, s.Part)
			}
		}
		if total > 700 {
			t.Errorf("%s: %d entries", name, total)
		}
	}
	if got := apportion(nil); len(got) != 0 {
		t.Error(got)
	}
}

// TestWhatIsRegisteredIsAnInstance: others' sidecars find what was registered here.
func TestWhatIsRegisteredIsAnInstance(t *testing.T) {
	i := ours(t)
	o, c := i.client(t, "orders"), i.client(t, "checkout")
	where := func() string { return i.topology.Resolve(shop("checkout"), shop("orders")).Address }
	register := func(meta map[string]string, checks ...*api.AgentServiceCheck) {
		t.Helper()
		if err := o.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "x", Name: "orders", Address: "10.0.0.9", Port: 8080, Meta: meta, Checks: checks}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		meta   map[string]string
		checks []*api.AgentServiceCheck
		want   string
	}{
		{map[string]string{"DAPR_PORT": "50002"}, nil, "10.0.0.9:50002"},
		{nil, nil, "10.0.0.9:8080"},
		{nil, []*api.AgentServiceCheck{{TTL: "1h"}}, ""},
		{nil, []*api.AgentServiceCheck{{TTL: "1h", Status: "warning"}}, ""},
	} {
		if err := o.Agent().ServiceDeregister("x"); err != nil && c.want != "10.0.0.9:50002" {
			t.Fatal(err)
		}
		register(c.meta, c.checks...)
		if got := where(); got != c.want {
			t.Errorf("%+v: leads to %q, want %q", c, got, c.want)
		}
	}
	if err := o.Agent().UpdateTTL("service:x", "", "pass"); err != nil {
		t.Fatal(err)
	}
	if where() != "10.0.0.9:8080" || len(found(t, c, "orders", nil)) != 1 {
		t.Error("not ready when its check passes")
	}
	if err := o.Agent().UpdateTTL("service:x", "", "warn"); err != nil {
		t.Fatal(err)
	}
	if where() != "" || len(found(t, c, "orders", nil)) != 0 {
		t.Error("ready with a warning")
	}
	if all, _, err := c.Health().Service("orders", "", false, nil); err != nil || len(all) != 1 || all[0].Checks.AggregatedStatus() != api.HealthWarning {
		t.Errorf("who asks for all sees %v %v", all, err)
	}
}

// TestARestartKeepsWhatIsRegistered, with its checks as they stood.
func TestARestartKeepsWhatIsRegistered(t *testing.T) {
	dir := t.TempDir()
	objects := []catalog.Object{selection("checkout", catalog.Endpoint{App: shop("orders")}), selection("orders")}
	i := start(t, dir, Settings{}, objects...)
	o := i.client(t, "orders")
	for _, id := range []string{"stays", "goes", "is/odd \x7f"} {
		if err := o.Agent().ServiceRegister(&api.AgentServiceRegistration{
			ID: id, Name: "orders", Address: "10.0.0.9", Port: len(id), Tags: []string{"t"}, Check: &api.AgentServiceCheck{TTL: "1h", CheckID: "check " + id},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Agent().UpdateTTL("check stays", "fine", "pass"); err != nil {
		t.Fatal(err)
	}
	if err := o.Agent().ServiceDeregister("goes"); err != nil {
		t.Fatal(err)
	}
	before, _ := o.Agent().Services()
	checks := statuses(t, o)
	i.stop()
	again := start(t, dir, Settings{}, objects...)
	o = again.client(t, "orders")
	after, err := o.Agent().Services()
	if err != nil || len(after) != 2 || !sameServices(before, after) {
		t.Errorf("%v became %v %v", before, after, err)
	}
	if now := statuses(t, o); !slices.Equal(now, checks) || len(now) != 2 {
		t.Errorf("%v became %v", checks, now)
	}
	if got := again.topology.Resolve(shop("checkout"), shop("orders")).Address; got != "10.0.0.9:5" {
		t.Errorf("leads to %q", got)
	}
}

func sameServices(a, b map[string]*api.AgentService) bool {
	for _, all := range []map[string]*api.AgentService{a, b} {
		for _, s := range all {
			s.CreateIndex, s.ModifyIndex = 0, 0
		}
	}
	return reflect.DeepEqual(a, b)
}

// statuses are those of the checks of orders.
func statuses(t *testing.T, c *api.Client) (all []string) {
	t.Helper()
	checks, _, err := c.Health().Checks("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		all = append(all, c.CheckID+" of "+c.ServiceID+" "+c.Status+" "+c.Output)
	}
	return all
}
