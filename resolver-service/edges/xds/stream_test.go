package xds

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

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
		if got := c.endpointsOf("orders.shop"); !slices.Equal(got, []string{"0 west x1: 10.0.0.1:50002 10.0.0.2:50002"}) {
			t.Errorf("endpoints of orders: %q", got)
		}
	})
}

func TestANameOfTheCallersOwnHasTheAppsCertificate(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		east := catalog.RouteSpec{Cluster: "east", Weight: 1}
		renamed := endpoint("ledger", local, east)
		renamed.As = "orders"
		x := start(t, Settings{}, cluster("east", "203.0.113.7:15443"), selects("checkout", renamed), selects("basket", endpoint("ledger", local, east)))
		x.runs(shop("ledger"), "10.0.0.3:50002")
		x.runs(shop("orders"), "10.0.0.4:50002")
		x.exports("east", shop("ledger"), 1)
		for caller, name := range map[string]string{"checkout": "orders.shop", "basket": "ledger.shop"} { // who share a plan
			c := x.connect(t, shop(caller), delta)
			c.follow(clusters)
			c.follow(endpoints, "orders.shop", "ledger.shop")
			c.until("ledger", func() bool {
				return slices.Equal(c.endpointsOf(name), []string{"0 west x1: 10.0.0.3:50002", "0 east x1: 203.0.113.7:15443"})
			})
			c.until("its cluster", func() bool { return c.have[clusters][name] != nil })
			if got := c.names(clusters); !slices.Equal(got, []string{caller + ".shop", name}) && !slices.Equal(got, []string{name, caller + ".shop"}) {
				t.Errorf("%s has %v, want %s", caller, got, name)
			}
			if !bytes.Contains(c.have[endpoints][name], []byte("ledger.shop.east.isthmus.internal")) {
				t.Errorf("%s: the host at the gateway is not ledger's: %q", caller, c.have[endpoints][name])
			}
		}
	})
	secure := &maker{domain: catalog.DefaultDomain, provider: "mesh"}
	if r := secure.resource(clusters, resourceName{app: shop("orders")}, catalog.NewPlan(shop("ledger"), nil), nil); r.name != "orders.shop" || !bytes.Contains(r.any, []byte("/ns/shop/ledger")) {
		t.Errorf("%s wants another certificate than ledger's: %q", r.name, r.any)
	}
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
		east, north := "1 east x3: 203.0.113.7:15443 203.0.113.8:15443", "1 north x1: 203.0.113.9:15443"
		c.until("three localities", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0 west x1: 10.0.0.1:50002", east, north})
		})
		c.until("east alone", func() bool {
			return slices.Equal(c.endpointsOf("orders.shop.east"), []string{"0 east x3: 203.0.113.7:15443 203.0.113.8:15443"})
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
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0 west x1: 10.0.0.2:50002"})
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
		if got := follower.endpointsOf("orders.shop"); !slices.Equal(got, []string{"0 west x1: 10.0.1.4:50002"}) {
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

// What a client refuses is neither sent again nor in the way of anything else.
func TestARefusalNeitherLoopsNorBlocks(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local), endpoint("last", local)))
		x.runs(shop("orders"), "10.0.0.1:50002")
		c := x.connect(t, shop("checkout"), delta)
		c.refuse[endpoints] = "no such locality"
		c.follow(endpoints, "orders.shop", "last.shop")
		c.follow(clusters)
		c.until("clusters, too", func() bool { return len(c.have[clusters]) > 0 && len(c.have[endpoints]) == 2 })
		x.settles("operators see the refusal", func() bool {
			return slices.Equal(x.rejected(shop("checkout")), []string{"EDS: no such locality"})
		})
		x.settles("events tell the refusal", func() bool {
			told := x.events.After(0, time.Time{})
			return len(told) == 1 && strings.Contains(told[0].Message, "refuses what it was sent") && told[0].Fields[0].Value == "shop/checkout" && told[0].Fields[3].Value == "no such locality"
		})
		c.order, c.refuse[endpoints] = nil, ""
		x.runs(shop("last"), "10.0.0.9:50002")
		c.until("the change of another app", func() bool { return len(c.endpointsOf("last.shop")) == 1 })
		if !slices.Equal(c.order, []string{"EDS +last.shop"}) {
			t.Errorf("after the refusal came %q", c.order)
		}
		x.settles("no refusal any more", func() bool { return len(x.rejected(shop("checkout"))) == 0 })
	})
}

// A client that comes back with the versions that it has gets what differs, also from another
// replica or after a restart.
func TestAReturningClientGetsDifferencesOnly(t *testing.T) {
	objects := []catalog.Object{selects("checkout", endpoint("orders", local), endpoint("ledger", local), endpoint("prices", local))}
	one, two := start(t, Settings{}, objects...), start(t, Settings{}, objects...)
	for _, x := range []*site{one, two} {
		x.runs(shop("orders"), "10.0.0.1:50002")
		x.runs(shop("ledger"), "10.0.0.2:50002")
		x.runs(shop("prices"), "10.0.0.3:50002")
	}
	names := []string{"orders.shop", "ledger.shop", "prices.shop"}
	c := one.connect(t, shop("checkout"), true)
	c.follow(endpoints, names...)
	c.until("all", func() bool { return len(c.have[endpoints]) == 3 })
	two.runs(shop("ledger"), "10.0.0.4:50002")
	two.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selects("checkout", endpoint("orders", local), endpoint("ledger", local))}}})
	again := two.connect(t, shop("checkout"), true)
	again.known = c.versions
	again.follow(endpoints, names...)
	if a := again.next(); len(a.put) != 1 || a.put["ledger.shop"] == "" || !slices.Equal(a.removed, []string{"prices.shop"}) {
		t.Errorf("it got %v and lost %v; want ledger, and prices gone", a.put, a.removed)
	}
}

func TestWhatComesBackHasItsEndpointsAgain(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		with, without := selects("checkout", endpoint("orders", local)), selects("checkout")
		x := start(t, Settings{}, with)
		x.runs(shop("orders"), "10.0.0.1:50002")
		c := x.connect(t, shop("checkout"), delta)
		c.follow(clusters, "orders.shop")
		c.follow(endpoints, "orders.shop")
		for range 3 {
			c.until("endpoints", func() bool { return len(c.have[clusters]) == 1 && len(c.endpointsOf("orders.shop")) == 1 })
			x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{without}}})
			c.until("gone", func() bool { return len(c.have[clusters]) == 0 && len(c.endpointsOf("orders.shop")) == 0 })
			x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{with}}})
		}
	})
}

func TestNamesComeAndGo(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local), endpoint("ledger", local)))
		x.runs(shop("orders"), "10.0.0.1:50002")
		x.runs(shop("ledger"), "10.0.0.2:50002")
		c := x.connect(t, shop("checkout"), delta)
		c.follow(endpoints, "orders.shop")
		c.until("orders", func() bool { return len(c.have[endpoints]) == 1 })
		c.follow(endpoints, "ledger.shop")
		c.until("ledger, too", func() bool { return len(c.have[endpoints]) == 2 })
		c.leave(endpoints, "orders.shop")
		c.follow(clusters, "orders.shop") // requests are taken in order
		c.until("the request after that", func() bool { return len(c.have[clusters]) == 1 })
		c.order = nil
		x.runs(shop("orders"), "10.0.0.3:50002")
		x.runs(shop("ledger"), "10.0.0.4:50002")
		c.until("ledger's change", func() bool {
			return slices.Equal(c.endpointsOf("ledger.shop"), []string{"0 west x1: 10.0.0.4:50002"})
		})
		if !slices.Equal(c.order, []string{"EDS +ledger.shop"}) {
			t.Errorf("responses %q; want none of orders, which it has left", c.order)
		}
	})
}

func TestANodeMustBeWhoItIs(t *testing.T) {
	x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
	c := x.connect(t, catalog.App{Namespace: "shop", ID: "check_out!"}, true)
	c.follow(endpoints, "orders.shop")
	if _, open := <-c.answers; open || c.ended == nil || !strings.Contains(c.ended.Error(), `write "id": "namespace/app-id" into the bootstrap`) {
		t.Errorf("ended with %v", c.ended)
	}
}

// A client whose TLS sends no server name gets the addresses that lead to one app each.
func TestAClientWithoutServerNames(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		east := cluster("east", "203.0.113.7:15443")
		east.AppGateways = []catalog.AppGateway{{App: shop("orders"), Address: "203.0.113.7:50002"}}
		x := start(t, Settings{}, east, selects("checkout", endpoint("orders"), endpoint("ledger")))
		x.exports("east", shop("orders"), 1)
		x.exports("east", shop("ledger"), 1)
		c := x.connect(t, shop("checkout"), delta)
		c.node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{namelessKey: structpb.NewBoolValue(true)}}
		c.follow(endpoints, "orders.shop", "ledger.shop")
		c.until("the app's own address", func() bool {
			ledger := c.endpointsOf("ledger.shop")
			return slices.Equal(c.endpointsOf("orders.shop"), []string{"0 east x1: 203.0.113.7:50002"}) && ledger != nil && len(ledger) == 0
		})
		east = cluster("east", "203.0.113.7:15443")
		east.AppGateways = []catalog.AppGateway{{App: shop("ledger"), Address: "203.0.113.8:50002"}}
		x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{east}}})
		c.until("the address of the other", func() bool {
			return len(c.endpointsOf("orders.shop")) == 0 && slices.Equal(c.endpointsOf("ledger.shop"), []string{"0 east x1: 203.0.113.8:50002"})
		})
		ledger := endpoint("ledger", catalog.RouteSpec{Cluster: "east", Weight: 1, Versions: "2.*"})
		x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selects("checkout", ledger)}}, Peers: []topology.PeerChange{{Cluster: "east", Put: []topology.PeerExport{{
			App: shop("ledger"), Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1, Instances: []uint32{7}, Versions: catalog.NewLabels([]string{"2.0"}),
		}}}}})
		c.until("none, as that address leads to any version", func() bool {
			all := c.endpointsOf("ledger.shop")
			return all != nil && len(all) == 0
		})
	})
}

// The instances that several sources know of an app reach its caller as one set, beside those of
// another cluster; docs/explanation/merged-catalog.md tells of it.
func TestTheCatalogIsMerged(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, cluster("east", "203.0.113.7:15443"), selects("checkout", endpoint("orders")))
		c := x.connect(t, shop("checkout"), delta)
		c.follow(endpoints, "orders.shop")
		source := func(name string, addresses ...string) {
			t.Helper()
			change := topology.InstanceChange{Source: name, Full: true}
			for _, a := range addresses {
				change.Put = append(change.Put, catalog.Instance{App: shop("orders"), ID: a, Address: netip.MustParseAddrPort(a)})
			}
			x.apply(topology.Change{Instances: []topology.InstanceChange{change}})
		}
		want := func(what string, lines ...string) {
			t.Helper()
			c.until(what, func() bool { return slices.Equal(c.endpointsOf("orders.shop"), lines) })
		}
		source("kubernetes", "10.0.0.1:50002")
		want("the first source", "0 west x1: 10.0.0.1:50002")
		source("consul", "10.0.0.2:50002")
		want("both sources", "0 west x1: 10.0.0.1:50002 10.0.0.2:50002")
		x.exports("east", shop("orders"), 1)
		want("and another cluster", "0 west x1: 10.0.0.1:50002 10.0.0.2:50002", "1 east x1: 203.0.113.7:15443")
		source("consul", "10.0.0.1:50002")
		want("an address that both know", "0 west x1: 10.0.0.1:50002", "1 east x1: 203.0.113.7:15443")
		source("kubernetes")
		source("consul")
		want("the other cluster alone", "0 east x1: 203.0.113.7:15443")
	})
}
