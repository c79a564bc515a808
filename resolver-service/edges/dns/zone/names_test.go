package zone

import (
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const soaLine = "authority: isthmus.internal. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5\n"

// shop is a world in which checkout may call orders, ledger, stock and empty; anybody else is
// without a selection.
func shop(t testing.TB, change ...func(*Config)) *world {
	w := newWorld(t, west, change...)
	w.hosts.Store(hosts.Addresses{"gw.north.example": {netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")}})
	w.apply(
		runs("shop/orders", "10.0.0.1:50002", "10.0.0.2:50002", "[fd00::1]:50002"),
		runs("shop/checkout", "10.0.0.9:50002"),
		runs("shop/cart", "10.0.0.8:50002"),
		runs("shop/secret", "10.0.0.7:50002"),
		full(
			reaches("east", "203.0.113.7:15443", "203.0.113.8:15443", "203.0.113.9:9999"),
			forApp(reaches("north", "gw.north.example:15443"), "shop/stock", "198.51.100.21:50002"),
			reaches("south", "gw.south.example:15443"),
			selects("shop/checkout",
				calls("shop/orders"),
				calls("finance/ledger", via("east", 0, 1)),
				calls("shop/stock", via("local", 0, 3), via("north", 1, 1)),
				catalog.Endpoint{App: app("shop/served"), Routes: []catalog.RouteSpec{via("lost", 0, 1)}, WhenStale: catalog.Serve},
				calls("shop/withdrawn", via("lost", 0, 1)),
				calls("shop/dark", via("south", 0, 1)),
				calls("shop/empty"),
				calls("shop/cart"),
			),
			reaches("lost", "203.0.113.66:15443"),
		),
		says("east", has("finance/ledger", 1)),
		says("north", has("shop/stock", 4)),
		says("south", has("shop/dark", 1)),
		says("lost", has("shop/served", 1), has("shop/withdrawn", 1)),
		lapses("lost"),
	)
	return w
}

func TestAppsByView(t *testing.T) {
	w := shop(t)
	rows := []row{
		{"orders.shop.isthmus.internal. A", `
			NOERROR aa
			orders.shop.isthmus.internal. 5 IN A 10.0.0.1
			orders.shop.isthmus.internal. 5 IN A 10.0.0.2`},
		{"orders.shop.isthmus.internal. AAAA", `
			NOERROR aa
			orders.shop.isthmus.internal. 5 IN AAAA fd00::1`},
		{"OrDeRs.SHOP.Isthmus.Internal. AAAA", `
			NOERROR aa
			OrDeRs.SHOP.Isthmus.Internal. 5 IN AAAA fd00::1`},
		{"checkout.shop.isthmus.internal. AAAA", "NOERROR aa\n" + soaLine},
		{"orders.shop.isthmus.internal. MX", "NOERROR aa\n" + soaLine},
		{"orders.shop.isthmus.internal. ANY", `
			NOERROR aa
			orders.shop.isthmus.internal. 5 IN HINFO "RFC8482" ""`},
		{"ledger.finance.isthmus.internal. A", `
			NOERROR aa
			ledger.finance.isthmus.internal. 5 IN A 203.0.113.7
			ledger.finance.isthmus.internal. 5 IN A 203.0.113.8`},
		{"stock.shop.isthmus.internal. AAAA +", `
			NOERROR aa
			stock.shop.isthmus.internal. 5 IN AAAA 2001:db8::1`},
		{"served.shop.isthmus.internal. A +", `
			NOERROR aa
			served.shop.isthmus.internal. 5 IN A 203.0.113.66
			error: 3 Stale Answer: nothing has been heard from lost for longer than its lease; served because whenStale is serve`},
		{"withdrawn.shop.isthmus.internal. A +", "NOERROR aa\n" + soaLine + `
			error: 0 Other: stale: no route to shop/withdrawn is ready: lost (lease has run out; withdrawn because whenStale is withdraw)`},
		{"empty.shop.isthmus.internal. A +", "NOERROR aa\n" + soaLine + `
			error: 22 No Reachable Authority: unavailable: no route to shop/empty is ready: west (no ready instance of shop/empty); if it runs in another cluster, it takes an AppExport there that lets the caller have it`},
		{"dark.shop.isthmus.internal. A +", `
			SERVFAIL
			error: 22 No Reachable Authority: no address is known of the gateways of south: gw.south.example`},
		{"secret.shop.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + `
			error: 15 Blocked: denied: the caller's selection does not hold shop/secret; add it to AppEndpoints shop/checkout`},
		{"nothing.shop.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + `
			error: 15 Blocked: denied: the caller's selection does not hold shop/nothing; add it to AppEndpoints shop/checkout`},
		{"secret.shop.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
	}
	w.check("10.0.0.9", rows) // by the address of an instance
	w.check("shop/checkout", rows)
	w.check("10.0.0.8", []row{
		{"secret.shop.isthmus.internal. A", `
			NOERROR aa
			secret.shop.isthmus.internal. 5 IN A 10.0.0.7`},
		{"ledger.finance.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + `
			error: 0 Other: not found: this cluster has no app finance/ledger, and the caller has no AppEndpoints that would lead it to another cluster`},
	})
}

func TestAppsInAClusterAndTheirShardsAndInstances(t *testing.T) {
	w := shop(t)
	w.check("shop/checkout", []row{
		{"orders.shop.west.isthmus.internal. A", `
			NOERROR aa
			orders.shop.west.isthmus.internal. 5 IN A 10.0.0.1
			orders.shop.west.isthmus.internal. 5 IN A 10.0.0.2`},
		{"ledger.finance.east.isthmus.internal. A", `
			NOERROR aa
			ledger.finance.east.isthmus.internal. 30 IN A 203.0.113.7
			ledger.finance.east.isthmus.internal. 30 IN A 203.0.113.8`},
		{"ledger.finance.east.isthmus.internal. AAAA", "NOERROR aa\n" + soaLine},
		{"stock.shop.north.isthmus.internal. A", `
			NOERROR aa
			stock.shop.north.isthmus.internal. 30 IN A 198.51.100.1`},
		{"7.stock.shop.north.isthmus.internal. A", `
			NOERROR aa
			7.stock.shop.north.isthmus.internal. 30 IN A 198.51.100.1`},
		{"07.stock.shop.north.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + `
			error: 0 Other: not found: no such instance of shop/stock is ready`},
		{"65536.stock.shop.north.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
		{"served.shop.lost.isthmus.internal. A +", `
			NOERROR aa
			served.shop.lost.isthmus.internal. 5 IN A 203.0.113.66
			error: 3 Stale Answer: nothing has been heard from lost for longer than its lease; served because whenStale is serve`},
		{"stock.shop.west.isthmus.internal. A +", "NOERROR aa\n" + soaLine + `
			error: 22 No Reachable Authority: unavailable: no route to shop/stock is ready: west (no ready instance of shop/stock); if it runs in another cluster, it takes an AppExport there that lets the caller have it`},
		{"ledger.finance.north.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + `
			error: 0 Other: not found: the caller's view has no route to finance/ledger in cluster north`},
		{"secret.shop.west.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + `
			error: 15 Blocked: denied: the caller's selection does not hold shop/secret; add it to AppEndpoints shop/checkout`},
		{"10-0-0-1.orders.shop.west.isthmus.internal. A", `
			NOERROR aa
			10-0-0-1.orders.shop.west.isthmus.internal. 5 IN A 10.0.0.1`},
		{"10-0-0-1.orders.shop.west.isthmus.internal. AAAA", "NOERROR aa\n" + soaLine},
		{"fd00-0-0-0-0-0-0-1.orders.shop.west.isthmus.internal. AAAA", `
			NOERROR aa
			fd00-0-0-0-0-0-0-1.orders.shop.west.isthmus.internal. 5 IN AAAA fd00::1`},
		{"10-0-0-3.orders.shop.west.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
		{"10-0-0-01.orders.shop.west.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
		{"fd00--1.orders.shop.west.isthmus.internal. AAAA", "NXDOMAIN aa\n" + soaLine},
	})
}

func TestServiceRecords(t *testing.T) {
	w := shop(t)
	w.check("shop/checkout", []row{
		{"_dapr._tcp.orders.shop.isthmus.internal. SRV", `
			NOERROR aa
			_dapr._tcp.orders.shop.isthmus.internal. 5 IN SRV 0 1 50002 10-0-0-1.orders.shop.west.isthmus.internal.
			_dapr._tcp.orders.shop.isthmus.internal. 5 IN SRV 0 1 50002 10-0-0-2.orders.shop.west.isthmus.internal.
			_dapr._tcp.orders.shop.isthmus.internal. 5 IN SRV 0 1 50002 fd00-0-0-0-0-0-0-1.orders.shop.west.isthmus.internal.
			additional: 10-0-0-1.orders.shop.west.isthmus.internal. 5 IN A 10.0.0.1
			additional: 10-0-0-2.orders.shop.west.isthmus.internal. 5 IN A 10.0.0.2
			additional: fd00-0-0-0-0-0-0-1.orders.shop.west.isthmus.internal. 5 IN AAAA fd00::1`},
		{"_dapr._tcp.ledger.finance.isthmus.internal. SRV", `
			NOERROR aa
			_dapr._tcp.ledger.finance.isthmus.internal. 5 IN SRV 0 1 15443 ledger.finance.east.isthmus.internal.
			additional: ledger.finance.east.isthmus.internal. 5 IN A 203.0.113.7
			additional: ledger.finance.east.isthmus.internal. 5 IN A 203.0.113.8`},
		{"_dapr._tcp.3.stock.shop.north.isthmus.internal. SRV", `
			NOERROR aa
			_dapr._tcp.3.stock.shop.north.isthmus.internal. 5 IN SRV 1 1 15443 3.stock.shop.north.isthmus.internal.
			additional: 3.stock.shop.north.isthmus.internal. 5 IN A 198.51.100.1
			additional: 3.stock.shop.north.isthmus.internal. 5 IN AAAA 2001:db8::1`},
		{"_dapr._tcp.10-0-0-1.orders.shop.west.isthmus.internal. SRV", `
			NOERROR aa
			_dapr._tcp.10-0-0-1.orders.shop.west.isthmus.internal. 5 IN SRV 0 1 50002 10-0-0-1.orders.shop.west.isthmus.internal.`},
		{"_dapr._tcp.orders.shop.isthmus.internal. TXT", "NOERROR aa\n" + soaLine},
		{"_dapr._tcp.empty.shop.isthmus.internal. SRV +", "NOERROR aa\n" + soaLine + `
			error: 22 No Reachable Authority: unavailable: no route to shop/empty is ready: west (no ready instance of shop/empty); if it runs in another cluster, it takes an AppExport there that lets the caller have it`},
		{"_dapr._tcp.secret.shop.isthmus.internal. SRV", "NXDOMAIN aa\n" + soaLine},
		{"orders.shop.isthmus.internal. SRV", "NOERROR aa\n" + soaLine},
		{"cart.shop.isthmus.internal. HTTPS", `
			NOERROR aa
			cart.shop.isthmus.internal. 5 IN HTTPS 1 . alpn="h2" port="50002" ipv4hint="10.0.0.8"`},
		{"stock.shop.isthmus.internal. SVCB", `
			NOERROR aa
			stock.shop.isthmus.internal. 5 IN SVCB 1 . alpn="h2" port="15443" ipv4hint="198.51.100.1" ipv6hint="2001:db8::1"`},
	})
	w.apply(runs("shop/orders", "10.0.0.1:50002", "10.0.0.1:50003", "10.0.0.2:50002"))
	w.check("shop/checkout", []row{
		{"orders.shop.isthmus.internal. A", `
			NOERROR aa
			orders.shop.isthmus.internal. 5 IN A 10.0.0.1
			orders.shop.isthmus.internal. 5 IN A 10.0.0.2`},
		{"_dapr._tcp.10-0-0-1.orders.shop.west.isthmus.internal. SRV", `
			NOERROR aa
			_dapr._tcp.10-0-0-1.orders.shop.west.isthmus.internal. 5 IN SRV 0 1 50002 10-0-0-1.orders.shop.west.isthmus.internal.
			_dapr._tcp.10-0-0-1.orders.shop.west.isthmus.internal. 5 IN SRV 0 1 50003 10-0-0-1.orders.shop.west.isthmus.internal.`},
	})
}

func TestWhoIsNotKnownSeesGateways(t *testing.T) {
	w := shop(t)
	nobody := "error: 18 Prohibited: caller unknown: 10.9.9.9 is no instance's address; ask from one, on a listener that is bound to an app (listen.dns, as), or by a forwarder that is listed (dns.forwarders) and sends the client's whole address"
	w.check("10.9.9.9", []row{
		{"any.thing.east.isthmus.internal. A", `
			NOERROR aa
			any.thing.east.isthmus.internal. 30 IN A 203.0.113.7
			any.thing.east.isthmus.internal. 30 IN A 203.0.113.8`},
		{"12.any.thing.north.isthmus.internal. AAAA", `
			NOERROR aa
			12.any.thing.north.isthmus.internal. 30 IN AAAA 2001:db8::1`},
		{"any.thing.east.isthmus.internal. AAAA", "NOERROR aa\n" + soaLine},
		{"any.thing.east.isthmus.internal. TXT", "NOERROR aa\n" + soaLine},
		{"_dapr._tcp.any.thing.east.isthmus.internal. SRV", `
			NOERROR aa
			_dapr._tcp.any.thing.east.isthmus.internal. 30 IN SRV 0 1 15443 any.thing.east.isthmus.internal.`},
		{"_tcp.any.thing.east.isthmus.internal. A", "NOERROR aa\n" + soaLine},
		{"any.thing.north.isthmus.internal. HTTPS", `
			NOERROR aa
			any.thing.north.isthmus.internal. 30 IN HTTPS 1 . alpn="h2" port="15443" ipv4hint="198.51.100.1" ipv6hint="2001:db8::1"`},
		{"10-0-0-1.any.thing.east.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
		{"orders.shop.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + nobody},
		{"orders.shop.west.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + nobody},
		{"orders.shop.mars.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + nobody},
		{"orders-dapr.shop.svc.cluster.local. A +", `
			NXDOMAIN aa
			authority: svc.cluster.local. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5
			` + nobody},
		{"1.0.0.10.in-addr.arpa. PTR +", `
			REFUSED
			error: 20 Not Authoritative: this server answers for isthmus.internal`},
	})
	w.apply(runs("shop/one", "10.7.0.1:1001"), runs("shop/two", "10.7.0.1:1002"))
	w.check("10.7.0.1", []row{{"orders.shop.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine +
		"error: 18 Prohibited: caller unknown: 10.7.0.1 is the address of several apps; bind a listener to the app (listen.dns, as) and ask there"}})
}

func TestTheZoneItselfAndWhatIsEmpty(t *testing.T) {
	w := shop(t)
	shape := "NXDOMAIN aa\n" + soaLine + "error: 0 Other: not found: no name of this zone has this form"
	rows := []row{
		{"isthmus.internal. SOA", `
			NOERROR aa
			isthmus.internal. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5`},
		{"isthmus.internal. NS", `
			NOERROR aa
			isthmus.internal. 30 IN NS ns.isthmus.internal.
			additional: ns.isthmus.internal. 30 IN A 192.0.2.53`},
		{"isthmus.internal. A", "NOERROR aa\n" + soaLine},
		{"ns.isthmus.internal. A", `
			NOERROR aa
			ns.isthmus.internal. 30 IN A 192.0.2.53`},
		{"dns-version.isthmus.internal. TXT", `
			NOERROR aa
			dns-version.isthmus.internal. 30 IN TXT "1.0.0"`},
		{"dns-version.isthmus.internal. A", "NOERROR aa\n" + soaLine},
		{"ns.isthmus.internal. AAAA", "NOERROR aa\n" + soaLine},
		{"shop.isthmus.internal. A", "NOERROR aa\n" + soaLine},
		{"west.isthmus.internal. SOA", "NOERROR aa\n" + soaLine},
		{"whatever.isthmus.internal. A", "NOERROR aa\n" + soaLine},
		{"orders.isthmus.internal. A +", "NOERROR aa\n" + soaLine + "error: 0 Other: no app has this name; apps are at <app>.<namespace>.isthmus.internal"},
		{"orders.west.isthmus.internal. A +", "NOERROR aa\n" + soaLine + "error: 0 Other: no app has this name; apps are at <app>.<namespace>.isthmus.internal"},
		{"shop.west.isthmus.internal. A", "NOERROR aa\n" + soaLine},
		{"shop.east.isthmus.internal. NS", "NOERROR aa\n" + soaLine},
		{"_resolver.east.isthmus.internal. A +", shape},
		{"_dapr._tcp.isthmus.internal. SRV +", shape},
		{"_tcp.shop.isthmus.internal. SRV +", shape},
		{"a.b.c.d.e.isthmus.internal. A +", shape},
		{"_dapr._tcp.a.b.c.d.e.isthmus.internal. A +", shape},
		{`orders\.shop.isthmus.internal. A`, "NOERROR aa\n" + soaLine},
		{`orders\.shop.west.isthmus.internal. A +`, shape},
		{`\000\255.shop.isthmus.internal. A +`, shape},
		{`ord_ers.shop.isthmus.internal. A +`, shape},
		{`-orders.shop.isthmus.internal. A +`, shape},
		{"xn--bcher-kva.isthmus.internal. A", "NOERROR aa\n" + soaLine},
	}
	w.check("10.9.9.9", rows)
	w.check("shop/checkout", append(rows,
		row{"_tcp.orders.shop.isthmus.internal. A", "NOERROR aa\n" + soaLine},
		row{"_tcp.orders.shop.west.isthmus.internal. SRV", "NOERROR aa\n" + soaLine},
		row{"_tcp.10-0-0-1.orders.shop.west.isthmus.internal. SRV", "NOERROR aa\n" + soaLine},
		row{"_tcp.secret.shop.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
		row{"xn--bcher-kva.shop.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + "error: 15 Blocked: denied: the caller's selection does not hold shop/xn--bcher-kva; add it to AppEndpoints shop/checkout"},
	))
	refused := "REFUSED\nerror: 20 Not Authoritative: this server answers for isthmus.internal"
	w.check("shop/checkout", []row{
		{". NS +", refused},
		{"internal. SOA +", refused},
		{"notisthmus.internal. A +", refused},
		{`x\.isthmus.internal. A +`, refused},
		{"example.com. A +", refused},
		{"isthmus.internal. AXFR", "REFUSED"},
		{"isthmus.internal. IXFR", "REFUSED"},
	})
}

func TestNamesOfDaprsServicesInKubernetes(t *testing.T) {
	w := shop(t)
	soa := "authority: svc.cluster.local. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5\n"
	refused := "REFUSED\nerror: 20 Not Authoritative: this server answers for isthmus.internal"
	w.check("shop/checkout", []row{
		{"orders-dapr.shop.svc.cluster.local. AAAA", `
			NOERROR aa
			orders-dapr.shop.svc.cluster.local. 5 IN AAAA fd00::1`},
		{"ledger-dapr.finance.svc.cluster.local. A", `
			NOERROR aa
			ledger-dapr.finance.svc.cluster.local. 5 IN A 203.0.113.7
			ledger-dapr.finance.svc.cluster.local. 5 IN A 203.0.113.8`},
		{"_dapr._tcp.ledger-dapr.finance.svc.cluster.local. SRV", `
			NOERROR aa
			_dapr._tcp.ledger-dapr.finance.svc.cluster.local. 5 IN SRV 0 1 15443 ledger.finance.east.isthmus.internal.
			additional: ledger.finance.east.isthmus.internal. 5 IN A 203.0.113.7
			additional: ledger.finance.east.isthmus.internal. 5 IN A 203.0.113.8`},
		{"ledger-dapr.finance.svc.cluster.local. AAAA", "NOERROR aa\n" + soa},
		{"secret-dapr.shop.svc.cluster.local. A +", "NXDOMAIN aa\n" + soa + "error: 15 Blocked: denied: the caller's selection does not hold shop/secret; add it to AppEndpoints shop/checkout"},
		{"orders.shop.svc.cluster.local. A +", refused},
		{"-dapr.shop.svc.cluster.local. A +", refused},
		{"shop.svc.cluster.local. A +", refused},
		{"x.orders-dapr.shop.svc.cluster.local. A +", refused},
		{"orders-dapr.shop.pod.cluster.local. A +", refused},
	})
}

func TestWhatIsNotSyncedIsNeverMissing(t *testing.T) {
	settled := make(chan struct{})
	w := newWorld(t, west, func(c *Config) { c.Settled = settled })
	for _, name := range []string{
		"isthmus.internal.", "ns.isthmus.internal.", "shop.isthmus.internal.", "orders.shop.isthmus.internal.", "orders.shop.east.isthmus.internal.",
		"a.b.c.d.e.isthmus.internal.", "orders-dapr.shop.svc.cluster.local.", "_dapr._tcp.orders.shop.isthmus.internal.",
	} {
		for _, who := range []string{"10.0.0.9", "shop/checkout"} {
			w.check(who, []row{{name + " A +", "SERVFAIL\nerror: 14 Not Ready: not ready: the config store's full set has not arrived yet"}})
		}
	}
	w.apply(full(reaches("east", "203.0.113.7:15443"), selects("shop/cart", calls("shop/invoices"), calls("shop/here", via("local", 0, 1)))),
		runs("shop/orders", "10.0.0.1:50002"))
	waits := "SERVFAIL\nerror: 14 Not Ready: not ready: instances and other clusters have not all been heard since the start; ask again"
	w.check("shop/checkout", []row{
		{"orders.shop.isthmus.internal. A", "NOERROR aa\norders.shop.isthmus.internal. 5 IN A 10.0.0.1"},
		{"stock.shop.isthmus.internal. A +", waits},
	})
	w.check("10.0.0.9", []row{{"orders.shop.isthmus.internal. A +", waits}})
	w.check("shop/cart", []row{
		{"invoices.shop.isthmus.internal. A +", waits},
		{"invoices.shop.east.isthmus.internal. A +", waits},
		{"invoices.shop.east.isthmus.internal. HTTPS +", waits},
		{"3.invoices.shop.east.isthmus.internal. AAAA +", waits},
		{"10-3-0-1.invoices.shop.east.isthmus.internal. A +", waits},
		{"_dapr._tcp.invoices.shop.east.isthmus.internal. SRV +", waits},
		{"_dapr._tcp.3.invoices.shop.east.isthmus.internal. SRV +", waits},
		{"invoices.shop.mars.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine}, // no Cluster object has the name
		{"here.shop.east.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},     // the selection leads it elsewhere
		{"stock.shop.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
	})
	w.apply(says("east", has("shop/invoices", 1)))
	w.check("shop/cart", []row{{"invoices.shop.east.isthmus.internal. A", "NOERROR aa\ninvoices.shop.east.isthmus.internal. 30 IN A 203.0.113.7"}})
	close(settled)
	w.check("shop/checkout", []row{{"stock.shop.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine}})
	w.check("10.0.0.9", []row{{"orders.shop.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine}})
}

func TestAnAppAlwaysSeesItself(t *testing.T) {
	closed := west
	closed.Open = false
	w := newWorld(t, closed)
	w.apply(full(), runs("shop/checkout", "10.0.0.9:50002", "10.0.0.10:50002"), runs("shop/orders", "10.0.0.1:50002"))
	w.check("10.0.0.9", []row{
		{"checkout.shop.isthmus.internal. A", "NOERROR aa\ncheckout.shop.isthmus.internal. 5 IN A 10.0.0.10\ncheckout.shop.isthmus.internal. 5 IN A 10.0.0.9"},
		{"checkout.shop.west.isthmus.internal. A", "NOERROR aa\ncheckout.shop.west.isthmus.internal. 5 IN A 10.0.0.10\ncheckout.shop.west.isthmus.internal. 5 IN A 10.0.0.9"},
		{"10-0-0-9.checkout.shop.west.isthmus.internal. A", "NOERROR aa\n10-0-0-9.checkout.shop.west.isthmus.internal. 5 IN A 10.0.0.9"},
		{"10-0-0-10.checkout.shop.west.isthmus.internal. A", "NOERROR aa\n10-0-0-10.checkout.shop.west.isthmus.internal. 5 IN A 10.0.0.10"},
		{"checkout.shop.east.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine},
		{"orders.shop.isthmus.internal. A +", "NXDOMAIN aa\n" + soaLine + "error: 15 Blocked: denied: the caller's selection does not hold shop/orders; the caller has no AppEndpoints: write one that holds it"},
	})
}

func TestInstancesOfAClusterOnTheSameNetwork(t *testing.T) {
	w := newWorld(t, west)
	near := reaches("near", "203.0.113.7:15443")
	near.Network = "net-1"
	export := has("shop/orders", 2)
	export.Addresses = []string{"10.3.0.1:50002", "10.3.0.2:50002"}
	w.apply(full(near, selects("shop/checkout", calls("shop/orders"))),
		topology.Change{Peers: []topology.PeerChange{{Cluster: "near", Put: []topology.PeerExport{export}, Lease: topology.Fresh}}})
	w.check("shop/checkout", []row{
		{"orders.shop.near.isthmus.internal. A", `
			NOERROR aa
			orders.shop.near.isthmus.internal. 5 IN A 10.3.0.1
			orders.shop.near.isthmus.internal. 5 IN A 10.3.0.2`},
		{"10-3-0-2.orders.shop.near.isthmus.internal. A", "NOERROR aa\n10-3-0-2.orders.shop.near.isthmus.internal. 5 IN A 10.3.0.2"},
	})
}
