package zone

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const (
	servicesSOA = "authority: svc.cluster.local. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5\n"
	byNameAlone = "error: 0 Other: the gateways of east lead by server name, which Dapr's resolver kubernetes does not send; " +
		"list one for shop/cart alone in the Cluster object east, with its app and namespace\n"
)

// unnamed is a world whose checkout calls apps in east, where a gateway leads to orders alone.
func unnamed(t *testing.T) *world {
	w := newWorld(t, west)
	w.hosts.Store(hosts.Addresses{"gw.example": {netip.MustParseAddr("198.51.100.1")}})
	east := forApp(reaches("east", "203.0.113.7:15443"), "shop/orders", "203.0.113.21:50002", "[2001:db8::21]:50002")
	forApp(forApp(east, "shop/ledger", "203.0.113.23:50003"), "shop/dark", "nowhere.example:50002")
	w.apply(
		runs("shop/checkout", "10.0.0.9:50002"),
		full(forApp(east, "shop/named", "GW.example.:50002"), selects("shop/checkout",
			calls("shop/orders"), calls("shop/cart"), calls("shop/ledger"), calls("shop/dark"), calls("shop/named"),
			catalog.Endpoint{App: app("shop/served"), Routes: []catalog.RouteSpec{via("lost", 0, 1)}, WhenStale: catalog.Serve},
		), reaches("lost", "203.0.113.66:15443")),
		says("east", has("shop/orders", 1), has("shop/cart", 1), has("shop/ledger", 1), has("shop/dark", 1), has("shop/named", 1)),
		says("lost", has("shop/served", 1)), lapses("lost"),
	)
	return w
}

// TestNamesOfServicesLeadThroughTheGatewayOfTheApp, and no other names: whoever asks for those
// sends a server name.
func TestNamesOfServicesLeadThroughTheGatewayOfTheApp(t *testing.T) {
	w := unnamed(t)
	w.check("shop/checkout", []row{
		{"orders-dapr.shop.svc.cluster.local. A +", "NOERROR aa\norders-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.21"},
		{"orders-dapr.shop.svc.cluster.local. AAAA +", "NOERROR aa\norders-dapr.shop.svc.cluster.local. 5 IN AAAA 2001:db8::21"},
		{"orders-dapr.shop.svc.cluster.local. HTTPS +", `
			NOERROR aa
			orders-dapr.shop.svc.cluster.local. 5 IN HTTPS 1 . alpn="h2" port="50002" ipv4hint="203.0.113.21" ipv6hint="2001:db8::21"`},
		{"_dapr._tcp.orders-dapr.shop.svc.cluster.local. SRV +", `
			NOERROR aa
			_dapr._tcp.orders-dapr.shop.svc.cluster.local. 5 IN SRV 1 1 15443 orders.shop.east.isthmus.internal.
			additional: orders.shop.east.isthmus.internal. 5 IN A 203.0.113.7`},
		{"orders.shop.isthmus.internal. A +", "NOERROR aa\norders.shop.isthmus.internal. 5 IN A 203.0.113.7"},
		{"orders.shop.east.isthmus.internal. A +", "NOERROR aa\norders.shop.east.isthmus.internal. 30 IN A 203.0.113.7"},
		{"named-dapr.shop.svc.cluster.local. A +", "NOERROR aa\nnamed-dapr.shop.svc.cluster.local. 5 IN A 198.51.100.1"},
		{"dark-dapr.shop.svc.cluster.local. A +", `
			SERVFAIL
			error: 22 No Reachable Authority: no address is known of the gateways of shop/dark in east: nowhere.example`},
		{"served-dapr.shop.svc.cluster.local. A +", `
			NOERROR aa
			served-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.66
			error: 3 Stale Answer: nothing has been heard from lost for longer than its lease; served because whenStale is serve`},
	})
	w.check("10.9.9.9", []row{{"orders.shop.east.isthmus.internal. A", "NOERROR aa\norders.shop.east.isthmus.internal. 30 IN A 203.0.113.7"}})
}

// TestAnAnswerSaysWhoGetsThrough where Dapr's resolver kubernetes does not.
func TestAnAnswerSaysWhoGetsThrough(t *testing.T) {
	w := unnamed(t)
	w.check("shop/checkout", []row{
		{"cart-dapr.shop.svc.cluster.local. A +", "NOERROR aa\ncart-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.7\n" + byNameAlone},
		{"cart-dapr.shop.svc.cluster.local. A", "NOERROR aa\ncart-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.7"},
		{"cart-dapr.shop.svc.cluster.local. AAAA +", "NOERROR aa\n" + servicesSOA},
		{"cart.shop.isthmus.internal. A +", "NOERROR aa\ncart.shop.isthmus.internal. 5 IN A 203.0.113.7"},
		{"ledger-dapr.shop.svc.cluster.local. A +", `
			NOERROR aa
			ledger-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.23
			error: 0 Other: the gateway of east for shop/ledger is on port 50003, and Dapr's resolver kubernetes dials the one that the caller listens on, 50002; give both one port`},
	})
	if byName, other := w.Unusable(); byName != 2 || other != 1 {
		t.Errorf("%d answers by server name alone and %d at another port are counted, want 2 and 1", byName, other)
	}
	gateway := func(name string) string {
		for _, rr := range w.ask(asking{as: "shop/checkout", name: name, typ: "TXT", over: transport.TCP}).Answer {
			if text, found := strings.CutPrefix(strings.Join(rr.(*dns.TXT).Txt, ""), "gateway="); found {
				return text
			}
		}
		return ""
	}
	for name, want := range map[string]string{
		"orders-dapr.shop.svc.cluster.local.": "east also without a server name, by 203.0.113.21:50002, [2001:db8::21]:50002",
		"cart-dapr.shop.svc.cluster.local.":   "east by server name alone, which Dapr's resolver kubernetes does not send; list a gateway for shop/cart in the Cluster object",
		"ledger-dapr.shop.svc.cluster.local.": "east also without a server name, by 203.0.113.23:50003; the caller listens on port 50002, and so dials that",
		"dark-dapr.shop.svc.cluster.local.":   "no address is known of the gateways of shop/dark in east: nowhere.example",
		"orders.shop.isthmus.internal.":       "",
	} {
		if got := gateway(name); got != want {
			t.Errorf("TXT of %s says %q, want %q", name, got, want)
		}
	}
	w.apply(runs("shop/checkout", "10.0.0.9:50002", "10.0.0.10:50003")) // one of them dials right
	w.check("shop/checkout", []row{{"ledger-dapr.shop.svc.cluster.local. A +", "NOERROR aa\nledger-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.23"}})
	w.apply(runs("shop/checkout")) // and of none it is not known
	w.check("shop/checkout", []row{{"ledger-dapr.shop.svc.cluster.local. A +", "NOERROR aa\nledger-dapr.shop.svc.cluster.local. 5 IN A 203.0.113.23"}})
}

// TestTheGatewayOfAnAppFollowsItsRoute: priorities, weights, exports and leases decide as for
// all else, and the next answer has what they say.
func TestTheGatewayOfAnAppFollowsItsRoute(t *testing.T) {
	w := newWorld(t, west)
	east := func(addresses ...string) *catalog.Cluster {
		return forApp(reaches("east", "203.0.113.7:15443"), "shop/orders", addresses...)
	}
	w.apply(
		runs("shop/checkout", "10.0.0.9:50002"), runs("shop/orders", "10.0.0.1:50002"),
		full(east("203.0.113.21:50002"), forApp(reaches("north", "203.0.113.8:15443"), "shop/orders", "203.0.113.22:50002"),
			selects("shop/checkout", calls("shop/orders", via("local", 0, 1), via("east", 1, 90), via("north", 1, 10)))),
		says("east", has("shop/orders", 1)), says("north", has("shop/orders", 1)))
	const name = "orders-dapr.shop.svc.cluster.local."
	for i, step := range []struct {
		change topology.Change
		want   string
	}{
		{topology.Change{}, "10.0.0.1"},
		{runs("shop/orders", "10.0.0.2:50002"), "10.0.0.2"},
		{runs("shop/orders"), "203.0.113.21 203.0.113.22"},
		{says("north", has("shop/orders", 0)), "203.0.113.21"},              // nothing ready
		{put(east("203.0.113.31:50002")), "203.0.113.31"},                   // the gateway moves
		{put(east()), "203.0.113.7"},                                        // by server name alone
		{put(east("203.0.113.21:50002")), "203.0.113.21"},                   //
		{says("north", has("shop/orders", 1)), "203.0.113.21 203.0.113.22"}, //
		{topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Delete: []catalog.App{app("shop/orders")}}}}, "203.0.113.22"}, // export withdrawn
		{lapses("north"), ""}, // lease run out
		{says("east", has("shop/orders", 1)), "203.0.113.21"},
		{runs("shop/orders", "10.0.0.1:50002"), "10.0.0.1"},
	} {
		w.apply(step.change)
		seen := map[string]bool{}
		for range 100 {
			for _, rr := range w.ask(asking{from: "10.0.0.9", name: name, typ: "A"}).Answer {
				seen[rr.(*dns.A).A.String()] = true
			}
		}
		want := map[string]bool{}
		for _, address := range strings.Fields(step.want) {
			want[address] = true
		}
		if fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("step %d: got %v, want %v", i, seen, want)
		}
	}
}

func TestUnusableAnswersAllocateNothing(t *testing.T) {
	w := unnamed(t)
	out := make([]byte, 0, 65535)
	for _, name := range []string{"orders", "cart", "ledger", "named", "served"} {
		a := asking{from: "10.0.0.9", name: name + "-dapr.shop.svc.cluster.local.", typ: "A", edns: true}
		q := query(a, must(a.message().Pack()))
		if n := testing.AllocsPerRun(100, func() { w.Answer(q, out) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestTheSerialIsOfTheLastChange, so that it grows over restarts too: another life begins with
// small revisions.
func TestTheSerialIsOfTheLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serial := func(w *world) uint32 {
			return w.ask(asking{from: "10.9.9.9", name: "isthmus.internal.", typ: "SOA"}).Answer[0].(*dns.SOA).Serial
		}
		w := newWorld(t, west)
		w.apply(full())
		begin := uint32(time.Now().Unix())
		if got := serial(w); got != begin {
			t.Errorf("the serial is %d, want %d", got, begin)
		}
		time.Sleep(time.Minute)
		if got := serial(w); got != begin {
			t.Errorf("without a change the serial is %d, want %d", got, begin)
		}
		for range 10 {
			w.apply(runs("shop/orders", "10.0.0.1:50002"), runs("shop/orders", "10.0.0.2:50002"))
		}
		w.apply(runs("shop/orders", "10.0.0.2:50002")) // which is nothing new
		changed := serial(w)
		if changed != begin+60 {
			t.Errorf("after a change the serial is %d, want %d", changed, begin+60)
		}
		time.Sleep(time.Second)
		next := newWorld(t, west) // as after a restart, or in another replica
		next.apply(full())
		w.apply(runs("shop/orders", "10.0.0.3:50002"))
		if one, two := serial(w), serial(next); one != two || one != changed+1 {
			t.Errorf("the serials of replicas are %d and %d, want %d", one, two, changed+1)
		}
	})
}
