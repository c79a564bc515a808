package topology

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestAClusterThatComesAgainHasNotBeenHeard(t *testing.T) {
	g := NewGraph(west)
	why := func(want string) {
		t.Helper()
		d := g.viewOf(app("checkout")).Explain(app("orders"))
		if !strings.Contains(d.Routes[0].Reason, want) {
			t.Errorf("route to east: %s; want %q", d.Routes[0].Reason, want)
		}
	}
	east := reaches("east", "10.9.0.1:15443")
	g.Apply(full(selects("checkout", calls("orders", via("east", 0, 1))), east))
	why("nothing heard")
	g.Apply(says("east", has("ledger", 1)))
	why("does not export")
	g.Apply(deletes(east.Key()))
	why("no Cluster object")
	g.Apply(Change{Peers: []PeerChange{{Cluster: "east", Full: true, Lease: Forgotten}}})
	g.Apply(objects(east))
	why("nothing heard")
	g.Apply(says("east", has("orders", 1)))
	why("1 ready")
}

func TestAnOperatorIsToldWhatEachClusterSaysOfAnApp(t *testing.T) {
	onNetwork := west
	onNetwork.Network = "net-1"
	top := running(t, onNetwork)
	top.must(t, full(
		selects("checkout", calls("orders"), calls("ledger", via("east", 0, 1))), selects("cart"),
		&catalog.Cluster{Name: "all", Gateways: []string{"10.9.0.1:15443"}, AppGateways: []catalog.AppGateway{
			{App: app("orders"), Address: "10.9.1.1:50002"}, {App: app("ledger"), Address: "10.9.1.2:50002"},
		}},
		&catalog.Cluster{Name: "others", Gateways: []string{"10.9.0.2:15443"}, AppGateways: []catalog.AppGateway{{App: app("cart"), Address: "10.9.1.1:50002"}}},
		reaches("none", "10.9.1.1:50002"),
		&catalog.Cluster{Name: "silent", Gateways: []string{"10.9.0.4:15443"}, Network: "net-1"}, reaches("west", "10.9.0.5:15443")))
	top.must(t, says("all", has("orders", 1)))
	top.must(t, says("others", PeerExport{App: app("orders"), Allow: []catalog.Allow{{Namespace: "finance"}}, Ready: 1}))
	top.must(t, says("none", has("ledger", 1)))
	top.must(t, says("unknown", has("orders", 1)))
	told, err := top.Inventory().Report(t.Context(), app("checkout"), app("orders"))
	if err != nil {
		t.Fatal(err)
	}
	want := []ClusterReport{
		{Cluster: "all", Heard: true, Exported: true, Allowed: true, Gateways: []string{"10.9.1.1:50002"}, Shared: []SharedGateway{
			{Address: "10.9.1.1:50002", Cluster: "none"}, {Address: "10.9.1.1:50002", Cluster: "others", App: app("cart")},
		}},
		{Cluster: "none", Heard: true}, {Cluster: "others", Heard: true, Exported: true}, {Cluster: "silent", Direct: true},
	}
	if !reflect.DeepEqual(told.Clusters, want) || !told.Everywhere || told.Unnamed {
		t.Errorf("got %+v; want %+v", told, want)
	}
	for _, lookup := range [][2]string{{"checkout", "ledger"}, {"checkout", "cart"}, {"cart", "orders"}, {"nobody", "orders"}, {"checkout", "checkout"}} {
		if told, err := top.Inventory().Report(t.Context(), app(lookup[0]), app(lookup[1])); told.Everywhere || err != nil {
			t.Errorf("%s may look for %s everywhere (%v)", lookup[0], lookup[1], err)
		}
	}
}

func TestAnOperatorIsToldWhoseAnAddressIsByNow(t *testing.T) {
	top := running(t, west)
	top.must(t, full(selects("checkout", calls("orders"))))
	at := netip.MustParseAddrPort("10.0.0.1:50002")
	named := func(source, id string) Change {
		return Change{Instances: []InstanceChange{{Source: source, Put: []catalog.Instance{{ID: "1", App: app(id), Address: at}}}}}
	}
	top.must(t, named("stream", "orders"))
	if told, err := top.Inventory().Report(t.Context(), app("checkout"), app("orders")); err != nil || len(told.Taken) != 0 {
		t.Errorf("%+v (%v), before anything was taken", told, err)
	}
	top.must(t, registers(1, named("consul", "ledger")))
	told, err := top.Inventory().Report(t.Context(), app("checkout"), app("orders"))
	want := []Taken{{at, "stream", app("ledger"), "consul"}}
	if err != nil || !slices.Equal(told.Taken, want) || told.Own != "west" {
		t.Errorf("%+v (%v); want %+v taken", told, err, want)
	}
	top.must(t, delegated(named("another", "ledger"))) // which isn't why it has it
	top.must(t, delegated(named("other", "cart")))
	for id, want := range map[string]Taken{"orders": want[0], "cart": {at, "other", app("ledger"), "consul"}} {
		if told, err := top.Inventory().Report(t.Context(), app("checkout"), app(id)); err != nil || !slices.Equal(told.Taken, []Taken{want}) {
			t.Errorf("%s: %+v (%v); want %+v taken", id, told, err, want)
		}
	}
}
