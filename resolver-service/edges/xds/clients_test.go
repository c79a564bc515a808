package xds

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// A status of thousands of clients is short, and has those that operators look for.
func TestAStatusOfManyClientsIsShort(t *testing.T) {
	const many, refusing = 3000, 7
	c := newClients(2 * many)
	began := time.Now()
	for i := range many {
		st := &stream{client: client{app: shop(fmt.Sprintf("app-%04d", i)), node: "n", since: began, gateway: i == many-1}}
		if err := c.add(st); err != nil {
			t.Fatal(err)
		}
		if i >= many-1-refusing && i < many-1 {
			c.answered(st, endpoints, 12, "no such thing")
		}
	}
	var s v1alpha1.StatusResponse
	c.status(&s)
	if n := s.GetXdsCounts(); n.GetClients() != many || n.GetGateways() != 1 || n.GetRefusing() != refusing {
		t.Errorf("counts are %v", n)
	}
	if len(s.GetXds()) != maxListed {
		t.Errorf("%d clients are listed, want %d", len(s.GetXds()), maxListed)
	}
	for i, c := range s.GetXds() {
		if got := len(c.GetRejections()) > 0; got != (i < refusing) || c.GetGateway() != (i == refusing) {
			t.Errorf("client %d is %v; want those that refuse first, then the gateway", i, c)
		}
	}
	if size := proto.Size(&s); size > 8<<10 {
		t.Errorf("the status has %d bytes", size)
	}
}

// Clients of a view share its resources, also those of an app in one cluster.
func TestResourcesAreMadeOnce(t *testing.T) {
	x := start(t, Settings{Gateway: &Gateway{Apps: []string{"mesh/ingress"}}}, selects("checkout", endpoint("orders", local)),
		&catalog.AppExport{App: shop("orders"), Allow: []catalog.Allow{{}}})
	x.runs(shop("orders"), "10.0.0.1:50002")
	sub := x.topology.Subscribe(shop("checkout"))
	defer sub.Close()
	view, _ := sub.FollowOwn()
	table, _ := x.topology.Gateway().Load()
	gateway := &gatewayState{gatewayMaker: &gatewayMaker{}, table: table}
	for name, states := range map[string][2]state{
		"orders.shop":      {&appState{maker: &maker{}, view: view}, &appState{maker: &maker{}, view: view}},
		"orders.shop.west": {&appState{maker: &maker{}, view: view}, &appState{maker: &maker{}, view: view}},
		gatewayListener:    {gateway, gateway},
	} {
		for k := range kinds {
			one, two := states[0].resource(k, parseName(name)), states[1].resource(k, parseName(name))
			if one != two || one == nil && name != gatewayListener || one == nil && k == listeners {
				t.Errorf("%s %s is %p for one client and %p for another", k.short(), name, one, two)
			}
		}
	}
}
