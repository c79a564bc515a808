package zone

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// The name of an app does not lead to some of its versions behind a gateway, and that of an instance
// does. Where another route of the same priority can be taken, that one answers.
func TestVersionsBehindAGateway(t *testing.T) {
	w := newWorld(t, west)
	only := func(r catalog.RouteSpec) catalog.RouteSpec {
		r.Versions = "2.*"
		return r
	}
	export := has("shop/orders", 2)
	export.Instances, export.Versions = []uint32{7, 8}, catalog.NewLabels([]string{"1.9", "2.0"})
	cart := export
	cart.App = app("shop/cart")
	w.apply(
		runs("shop/cart", "10.0.0.8:50002"), runs("shop/checkout", "10.0.0.9:50002"),
		full(reaches("east", "203.0.113.7:15443"), selects("shop/checkout",
			calls("shop/orders", only(via("east", 0, 1))), calls("shop/cart", via("local", 0, 1), only(via("east", 0, 10_000))))),
		says("east", export, cart),
	)
	const why = `
			error: 22 No Reachable Authority: the route is for some versions alone, which callers without Isthmus in their daprd can't name at a gateway`
	named := fmt.Sprintf("i%08x.orders.shop.east.isthmus.internal.", catalog.VersionToken(8, "2.0"))
	rows := []row{
		{"orders.shop.isthmus.internal. A +", "SERVFAIL" + why},
		{"orders.shop.east.isthmus.internal. A +", "SERVFAIL" + why},
		{"0.orders.shop.east.isthmus.internal. A +", "SERVFAIL" + why},
		{"_dapr._tcp.orders.shop.isthmus.internal. SRV +", "SERVFAIL" + why},
		{named + " A", `
			NOERROR aa
			` + named + ` 30 IN A 203.0.113.7`},
	}
	for range 20 {
		rows = append(rows, row{"cart.shop.isthmus.internal. A", `
			NOERROR aa
			cart.shop.isthmus.internal. 5 IN A 10.0.0.8`})
	}
	w.check("shop/checkout", rows)
}
