package zone

import (
	"strings"
	"testing"
)

// What is called by another name is none of DNS: a gateway that is asked for the name would lead to
// the app that has it.
func TestANameOfTheCallersOwnIsRefused(t *testing.T) {
	w := newWorld(t, west)
	renamed := calls("shop/ledger", via("local", 0, 1), via("east", 0, 1))
	renamed.As = "orders"
	w.apply(full(selects("shop/checkout", renamed), reaches("east", "203.0.113.7:15443")),
		runs("shop/checkout", "10.0.0.9:50002"), runs("shop/ledger", "10.0.0.1:50002"), runs("shop/orders", "10.0.0.2:50002"),
		says("east", has("shop/ledger", 1), has("shop/orders", 1)))
	const why = `NXDOMAIN aa
		authority: isthmus.internal. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5
		error: 15 Blocked: denied: shop/orders is the caller's own name for another app (as: in its AppEndpoints), which sidecars with Isthmus and xDS clients follow; its certificate has its own name, so ask for that one`
	w.check("shop/checkout", []row{
		{"orders.shop.isthmus.internal. A +", why},
		{"orders.shop.east.isthmus.internal. A +", why},
		{"_dapr._tcp.orders.shop.isthmus.internal. SRV +", why},
		{"orders-dapr.shop.svc.cluster.local. A +", strings.Replace(why, "y: isthmus.internal", "y: svc.cluster.local", 1)},
		{"2.0.0.10.in-addr.arpa. PTR", "REFUSED"},
	})
}
