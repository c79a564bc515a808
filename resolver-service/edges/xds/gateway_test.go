package xds

import (
	"fmt"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func export(app string) *catalog.AppExport {
	return &catalog.AppExport{App: shop(app), Allow: []catalog.Allow{{Cluster: "east"}}}
}

func asGateway() Settings {
	return Settings{Gateway: &Gateway{Apps: []string{"mesh/ingress"}, Listen: "0.0.0.0:15443", Peering: "10.0.0.100:15443"}}
}

var ingress = catalog.App{Namespace: "mesh", ID: "ingress"}

// routesOf are the server names of a listener, and where each leads.
func (c *adsClient) serverNames() map[string]string {
	c.t.Helper()
	var l listenerv3.Listener
	if err := proto.Unmarshal(c.have[listeners][gatewayListener], &l); err != nil {
		c.t.Fatal(err)
	}
	if err := l.ValidateAll(); err != nil {
		c.t.Error(err)
	}
	all := map[string]string{}
	for _, chain := range l.GetFilterChains() {
		m, err := chain.GetFilters()[0].GetTypedConfig().UnmarshalNew()
		if err != nil {
			c.t.Fatal(err)
		}
		proxy := m.(*tcpv3.TcpProxy)
		if err := proxy.ValidateAll(); err != nil {
			c.t.Error(err)
		}
		for _, name := range chain.GetFilterChainMatch().GetServerNames() {
			all[name] = proxy.GetCluster()
		}
	}
	return all
}

func TestAGatewayGetsItsClustersExports(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, asGateway(), cluster("east"), export("orders"))
		x.runs(shop("orders"), "10.0.0.1:50002", "10.0.0.2:50002")
		x.runs(shop("ledger"), "10.0.0.3:50002")
		c := x.connect(t, ingress, delta)
		c.follow(clusters)
		c.follow(listeners)
		c.until("a listener and two clusters", func() bool { return len(c.have[listeners]) == 1 && len(c.have[clusters]) == 2 })
		c.follow(endpoints, "orders.shop")
		c.until("endpoints", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0  x0: 10.0.0.1:50002 10.0.0.2:50002"})
		})
		const host = "orders.shop.west.isthmus.internal"
		names := c.serverNames()
		for name, want := range map[string]string{host: "orders.shop", "*." + host: "orders.shop", "orders.shop.isthmus.internal": "orders.shop", "_resolver.west.isthmus.internal": peeringCluster} {
			if names[name] != want {
				t.Errorf("%s leads to %q, want %q", name, names[name], want)
			}
		}
		if len(names) != 4 {
			t.Errorf("server names %v; want none of ledger, which is not exported", names)
		}
		for name, bytes := range c.have[clusters] {
			var m clusterv3.Cluster
			if err := proto.Unmarshal(bytes, &m); err != nil || m.ValidateAll() != nil {
				t.Errorf("cluster %s: %v %v", name, err, m.ValidateAll())
			}
		}

		x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{export("ledger")}, Delete: []catalog.Key{export("orders").Key()}}})
		c.until("ledger exported, orders not", func() bool {
			names := c.serverNames()
			return names[host] == "" && names["ledger.shop.west.isthmus.internal"] == "ledger.shop" && slices.Equal(c.names(clusters), []string{peeringCluster, "ledger.shop"})
		})
	})
}

// An instance that comes or goes is one resource of endpoints, however many exports there are.
func TestAnInstanceOfAnExportIsOneResource(t *testing.T) {
	objects := []catalog.Object{cluster("east")}
	for i := range 200 {
		objects = append(objects, export(fmt.Sprintf("app-%d", i)))
	}
	both(t, func(t *testing.T, delta bool) {
		x := start(t, asGateway(), objects...)
		c := x.connect(t, ingress, delta)
		c.follow(clusters)
		c.follow(listeners)
		c.until("all", func() bool { return len(c.have[clusters]) == 201 && len(c.have[listeners]) == 1 })
		c.follow(endpoints, "app-7.shop", "app-8.shop")
		c.until("no endpoints", func() bool { return len(c.have[endpoints]) == 2 })
		c.order = nil
		x.runs(shop("app-7"), "10.0.0.1:50002")
		c.until("one", func() bool { return len(c.endpointsOf("app-7.shop")) == 1 })
		if !slices.Equal(c.order, []string{"EDS +app-7.shop"}) {
			t.Errorf("responses %q", c.order)
		}
	})
}
