package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// both runs a test in both protocols.
func both(t *testing.T, test func(t *testing.T, delta bool)) {
	t.Run("state of the world", func(t *testing.T) { test(t, false) })
	t.Run("delta", func(t *testing.T) { test(t, true) })
}

var local = catalog.RouteSpec{Cluster: catalog.LocalCluster, Weight: 1}

func TestAnAppGetsItsViewAndNothingElse(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local)), selects("basket", endpoint("ledger", local)))
		x.runs(shop("orders"), "10.0.0.1:50002", "10.0.0.2:50002")
		x.runs(shop("ledger"), "10.0.0.3:50002")
		c := x.connect(t, shop("checkout"), delta)
		c.follow(clusters)
		c.follow(endpoints, "orders.shop", "ledger.shop")
		c.follow(listeners)
		c.follow(routes, "orders.shop", "ledger.shop")
		c.until("orders everywhere", func() bool {
			return len(c.have[clusters])*len(c.have[endpoints])*len(c.have[listeners])*len(c.have[routes]) > 0
		})
		for k := range kinds {
			if got := c.names(k); !slices.Contains(got, "orders.shop") || slices.Contains(got, "ledger.shop") {
				t.Errorf("%s: %v; want orders, and no ledger", k.short(), got)
			}
		}
		if got := c.endpointsOf("orders.shop"); !slices.Equal(got, []string{"0 west x100: 10.0.0.1:50002 10.0.0.2:50002"}) {
			t.Errorf("endpoints of orders: %q", got)
		}
	})
}

func TestRoutesAreLocalitiesWithPrioritiesAndWeights(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, cluster("east", "203.0.113.7:15443", "203.0.113.8:15443"), cluster("north", "203.0.113.9:15443"),
			selects("checkout", endpoint("orders", local, catalog.RouteSpec{Cluster: "east", Priority: 5, Weight: 3}, catalog.RouteSpec{Cluster: "north", Priority: 5, Weight: 1})))
		x.runs(shop("orders"), "10.0.0.1:50002")
		x.exports("east", shop("orders"), 2)
		x.exports("north", shop("orders"), 1)
		c := x.connect(t, shop("checkout"), delta)
		c.follow(endpoints, "orders.shop", "orders.shop.east")
		east, north := "1 east x300: 203.0.113.7:15443 203.0.113.8:15443", "1 north x100: 203.0.113.9:15443"
		c.until("three localities", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0 west x100: 10.0.0.1:50002", east, north})
		})
		c.until("east alone", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop.east"), []string{"0 east x300: 203.0.113.7:15443 203.0.113.8:15443"})
		})
		x.runs(shop("orders"))
		c.until("priorities without a gap", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0" + east[1:], "0" + north[1:]})
		})
	})
}

func TestTheLastEndpointGoneIsAnEmptySet(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
		x.runs(shop("orders"), "10.0.0.1:50002")
		c := x.connect(t, shop("checkout"), delta)
		c.follow(endpoints, "orders.shop")
		c.until("an endpoint", func() bool { return len(c.endpointsOf("orders.shop")) == 1 })
		x.runs(shop("orders"))
		c.until("none", func() bool { got := c.endpointsOf("orders.shop"); return got != nil && len(got) == 0 })
		x.runs(shop("orders"), "10.0.0.2:50002")
		c.until("another", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0 west x100: 10.0.0.2:50002"})
		})
	})
}

// Only those who follow an app hear of its changes, and nobody hears of a change that changes
// nothing for them. The last change is for all, so what came before it is all that was sent.
func TestAChangeReachesItsSubscribersAndNobodyElse(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local), endpoint("ledger", local), endpoint("last", local)))
		x.runs(shop("orders"), "10.0.0.1:50002")
		x.runs(shop("ledger"), "10.0.0.2:50002")
		follower, other := x.connect(t, shop("checkout"), delta), x.connect(t, shop("checkout"), delta)
		follower.follow(endpoints, "orders.shop", "last.shop")
		other.follow(endpoints, "ledger.shop", "last.shop")
		follower.next()
		other.next()
		for i := range 5 {
			x.runs(shop("orders"), fmt.Sprintf("10.0.1.%d:50002", i))
		}
		x.runs(shop("ledger"), "10.0.0.2:50002") // the same
		x.runs(shop("last"), "10.0.0.9:50002")
		last := func(c *adsClient) func() bool { return func() bool { return len(c.endpointsOf("last.shop")) == 1 } }
		follower.until("the last change", last(follower))
		other.until("the last change", last(other))
		if got := follower.endpointsOf("orders.shop"); !slices.Equal(got, []string{"0 west x100: 10.0.1.4:50002"}) {
			t.Errorf("the follower has %q", got)
		}
		if len(other.order) != 2 || other.order[1] != "EDS +last.shop" {
			t.Errorf("the other got %q; want the first answer and the last change", other.order)
		}
	})
}

func TestWhatOthersReferToComesFirstAndGoesLast(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
		c := x.connect(t, shop("checkout"), delta)
		for _, k := range []kind{clusters, listeners} {
			c.follow(k)
		}
		for _, k := range []kind{endpoints, routes} {
			c.follow(k, "orders.shop", "ledger.shop")
		}
		c.until("orders", func() bool {
			return len(c.have[clusters]) == 2 && len(c.have[listeners]) == 2 && len(c.have[endpoints]) == 1 && len(c.have[routes]) == 1
		})
		c.order = nil
		x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selects("checkout", endpoint("ledger", local))}}})
		c.until("orders gone", func() bool {
			want := []string{"checkout.shop", "ledger.shop"} // an app may always call itself
			return slices.Equal(c.names(clusters), want) && slices.Equal(c.names(listeners), want)
		})
		at := func(has func(line string) bool) int { return slices.IndexFunc(c.order, has) }
		added := at(func(l string) bool { return l[:3] == "CDS" && slices.Contains(fields(l), "+ledger.shop") })
		heard := at(func(l string) bool { return l[:3] == "LDS" && slices.Contains(fields(l), "+ledger.shop") })
		gone := at(func(l string) bool {
			return l[:3] == "CDS" && (slices.Contains(fields(l), "-orders.shop") || !delta && !slices.Contains(fields(l), "+orders.shop"))
		})
		if added < 0 || heard < added || gone < heard {
			t.Errorf("order %q; want the cluster ledger, its listener, and only then orders gone", c.order)
		}
	})
}

func fields(line string) []string { return strings.Fields(line) }
