package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// of is a change by which an instance of orders has a version.
func of(address, version string) Change {
	i := at("orders", address, address)
	i.Version = version
	return Change{Instances: []InstanceChange{{Source: "test", Put: []catalog.Instance{i}}}}
}

// only is a route to some versions.
func only(r catalog.RouteSpec, versions catalog.Versions) catalog.RouteSpec {
	r.Versions = versions
	return r
}

// ordersOf are the addresses or tokens that an app may call orders at.
func (g *Graph) ordersOf(caller string) string {
	e, ok := g.viewOf(app(caller)).Entries.Get(app("orders"))
	if !ok {
		return "none"
	}
	var all []string
	for _, r := range e.Routes {
		all = append(all, fmt.Sprintf("%d %s %v %x", r.Ready, r.State, r.Addresses, r.Instances))
	}
	return strings.Join(all, "; ")
}

// An instance that comes, changes its version, says none or goes.
func TestARouteLeadsToItsVersionsAlone(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(selects("checkout", calls("orders", only(via("local", 0, 1), "2.*,3.0"))), selects("any", calls("orders"))))
	for _, c := range []struct {
		change Change
		want   string
	}{
		{of("10.0.0.1:1", "1.9"), "0 no instance [] []"},
		{of("10.0.0.2:1", "2.0"), "1 ready [10.0.0.2:1] []"},
		{of("10.0.0.3:1", "3.0"), "2 ready [10.0.0.2:1 10.0.0.3:1] []"},
		{of("10.0.0.1:1", "2.1"), "3 ready [10.0.0.1:1 10.0.0.2:1 10.0.0.3:1] []"},
		{of("10.0.0.2:1", ""), "2 ready [10.0.0.1:1 10.0.0.3:1] []"},
		{of("10.0.0.3:1", "3.0.1"), "1 ready [10.0.0.1:1] []"},
		{of("10.0.0.1:1", "not a version"), "0 no instance [] []"},
	} {
		if g.Apply(c.change); g.ordersOf("checkout") != c.want {
			t.Errorf("after %+v: %s, want %s", c.change.Instances[0].Put[0], g.ordersOf("checkout"), c.want)
		}
	}
	if got := g.ordersOf("any"); got != "3 ready [10.0.0.1:1 10.0.0.2:1 10.0.0.3:1] []" {
		t.Errorf("a caller that asks for no version: %s", got)
	}
	d := g.viewOf(app("checkout")).Explain(app("orders"))
	if want := "no ready instance of shop/orders of version 2.*,3.0; of those ready, 3.0.1: 1, unknown: 2"; !strings.Contains(d.Reason, want) {
		t.Errorf("the reason is %q, want %q", d.Reason, want)
	}
}

// What a gateway's name stands for follows the version, so that a caller who knows the former one
// reaches nothing. A peer that says no versions has none.
func TestAVersionBehindAGateway(t *testing.T) {
	east := NewGraph(Config{Cluster: "east", Domain: catalog.DefaultDomain})
	east.Apply(full(exports("orders", catalog.Allow{Cluster: "west"}), reaches("west", "10.9.0.2:15443")))
	caller := NewGraph(west)
	caller.Apply(full(selects("checkout", calls("orders", only(via("east", 0, 1), "2.*"))), reaches("east", "10.9.0.1:15443")))
	leadsTo := func() (versions []string) {
		export, _ := east.Peer("west", nil).Exports.Get(app("orders"))
		caller.Apply(says("east", *export))
		e, _ := caller.viewOf(app("checkout")).Entries.Get(app("orders"))
		for _, token := range e.Routes[0].Instances {
			b, part, ok := east.exports.gateway.Lookup(caller.cfg.Domain.InstanceHost(token, app("orders"), "east"))
			named, isInstance := part.Instance()
			i, there := b.Instance(named)
			if !ok || !isInstance || !there {
				t.Fatalf("%x leads nowhere", token)
			}
			versions = append(versions, b.Instances[i])
		}
		return versions
	}
	east.Apply(of("10.0.0.1:1", "1.9"))
	east.Apply(of("10.0.0.2:1", "2.0"))
	if got := fmt.Sprint(leadsTo()); got != "[10.0.0.2:1]" {
		t.Errorf("2.* leads to %s", got)
	}
	e, _ := caller.viewOf(app("checkout")).Entries.Get(app("orders"))
	former := e.Routes[0].Instances[0]
	if address := e.Routes[0].Addresses; len(address) != 1 || address[0] != fmt.Sprintf("i%08x.orders.shop.east.isthmus.internal:15443", former) {
		t.Errorf("for callers without a dialer the address is %v", address)
	}
	east.Apply(of("10.0.0.2:1", "1.9"))
	if b, _ := east.exports.gateway.Backends.Get(app("orders")); b == nil {
		t.Error("east has no backend")
	} else if i, ok := b.Instance(former); ok {
		t.Errorf("the name of the former version leads to %s", b.Instances[i])
	}
	if got := leadsTo(); len(got) > 0 {
		t.Errorf("2.* leads to %v, and none has such a version", got)
	}
	envoy := NewGraph(Config{Cluster: "east", Domain: catalog.DefaultDomain, AnyInstance: true})
	envoy.Apply(full(exports("orders", catalog.Allow{Cluster: "west"}), reaches("west", "10.9.0.2:15443")))
	envoy.Apply(of("10.0.0.1:1", "2.0"))
	export, _ := envoy.Peer("west", nil).Exports.Get(app("orders"))
	caller.Apply(says("east", *export))
	if got := caller.ordersOf("checkout"); got != "0 no instance [] []" || len(export.Instances) != 1 {
		t.Errorf("behind a gateway that leads a name to any instance: %s", got)
	}
	export, _ = east.Peer("west", nil).Exports.Get(app("orders"))
	older := *export
	older.Versions = nil
	caller.Apply(says("east", older))
	if got := caller.ordersOf("checkout"); got != "0 no instance [] []" {
		t.Errorf("a peer that says no versions: %s", got)
	}
}

// On one network the addresses of instances are narrowed, and one whose address is another app's has no
// version that counts.
func TestAVersionOnOneNetwork(t *testing.T) {
	cfg := west
	cfg.Network = "net-1"
	g := NewGraph(cfg)
	east := reaches("east", "10.9.0.1:15443")
	east.Network = "net-1"
	g.Apply(full(east, selects("checkout", calls("orders", only(via("east", 0, 1), "2.*")))))
	export := has("orders", 3)
	export.Addresses = []string{"10.1.0.1:1", "10.1.0.2:1", "10.1.0.3:1"}
	export.Versions = catalog.NewLabels([]string{"2.0", "1.9", "2.1"})
	g.Apply(says("east", export))
	if got := g.ordersOf("checkout"); got != "2 ready [10.1.0.1:1 10.1.0.3:1] []" {
		t.Errorf("2.* leads to %s", got)
	}
	other := has("cart", 1)
	other.Addresses = []string{"10.1.0.1:1"}
	g.Apply(says("east", other))
	if got := g.ordersOf("checkout"); got != "1 ready [10.1.0.3:1] []" {
		t.Errorf("one address is two apps', and 2.* leads to %s", got)
	}
	export.Versions = catalog.NewLabels([]string{"1.9", "2.0", "1.9"})
	g.Apply(says("east", export))
	if got := g.ordersOf("checkout"); got != "1 ready [10.1.0.2:1] []" {
		t.Errorf("versions alone have changed, and 2.* leads to %s", got)
	}
}
