package xds

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// After a restart the service lacks what its peers and sidecars will say in a moment. A client that
// comes back keeps what it has until then.
func TestAClientThatComesBackKeepsItsResourcesUntilTheServiceHasSettled(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		for kept, other := range map[kind]kind{endpoints: clusters, clusters: endpoints} {
			settled := make(chan struct{})
			x := startEarly(t, Settings{}, settled, cluster("east", "203.0.113.7:15443"), selects("checkout", endpoint("orders"), endpoint("ledger", local)))
			x.runs(shop("ledger"), "10.0.0.1:50002")
			back := x.connect(t, shop("checkout"), delta)
			back.version = "7"
			back.known = map[string]string{"orders.shop": "a", "ledger.shop": "b", "basket.shop": "c"}
			back.follow(kept, "orders.shop", "ledger.shop", "basket.shop")
			back.known, back.version = nil, ""
			back.follow(other, "ledger.shop") // requests are taken in order
			back.until("what it had not", func() bool { return len(back.have[other]) == 1 })
			x.exports("east", shop("orders"), 1)
			x.runs(shop("ledger"), "10.0.0.2:50002")
			if len(back.have[kept]) > 0 || slices.ContainsFunc(back.order, func(line string) bool { return strings.HasPrefix(line, kept.short()) }) {
				t.Errorf("before the service has settled: %q", back.order)
			}
			close(settled)
			back.until("all", func() bool { return len(back.have[kept]) == 2 })
			if got := back.endpointsOf("orders.shop"); kept == endpoints && !slices.Equal(got, []string{"0 east x1: 203.0.113.7:15443"}) {
				t.Errorf("the first endpoints of orders: %q; responses: %q", got, back.order)
			}
			if delta {
				back.until("the removal", func() bool {
					return slices.Contains(back.order, kept.short()+" +ledger.shop +orders.shop -basket.shop")
				})
			}
		}
	})
}

// A client that is new gets what there is, and is not told early that anything is absent.
func TestANewClientGetsWhatThereIsBeforeTheServiceHasSettled(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		settled := make(chan struct{})
		x := startEarly(t, Settings{}, settled)
		c := x.connect(t, shop("checkout"), delta)
		c.follow(clusters, "orders.shop", "ledger.shop")
		c.follow(endpoints, "orders.shop", "ledger.shop")
		x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selects("checkout", endpoint("orders", local))}}})
		x.runs(shop("orders"), "10.0.0.1:50002")
		c.until("orders", func() bool { return len(c.endpointsOf("orders.shop")) == 1 })
		for _, line := range c.order {
			if line == "CDS" || slices.Contains([]string{"CDS -ledger.shop", "EDS -ledger.shop", "CDS +orders.shop -ledger.shop"}, line) {
				t.Errorf("before the service has settled: %q", c.order)
			}
		}
		close(settled)
		if delta {
			c.until("what is absent", func() bool {
				return slices.Contains(c.order, "CDS -ledger.shop") && slices.Contains(c.order, "EDS -ledger.shop")
			})
		}
	})
}
