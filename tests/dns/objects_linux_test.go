package dns

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// westObjects are those of the cluster that is asked. Its instances need not run, since
// nobody calls them.
func westObjects() string {
	instances := []string{
		instance("checkout-1", "shop/checkout", "10.77.3.11:50001"),
		instance("follower-1", "shop/follower", "10.77.3.12:50001"),
		instance("cart-1", "shop/cart", "10.77.3.21:50001"),
		instance("one-1", "shop/one", "10.77.3.13:50001"),
		instance("two-1", "shop/two", "10.77.3.13:50002"),
		instance("orders-1", "shop/orders", "10.77.1.101:50002"),
		instance("orders-2", "shop/orders", "10.77.1.102:50002"),
		instance("orders-3", "shop/orders", "10.77.1.103:50003"),
		instance("orders-4", "shop/orders", "[fd00:77::1]:50002"),
		instance("orders-5", "shop/orders", notReady+":50002") + "  check: {tcp: {port: 9}}\n",
		instance("v6only-1", "shop/v6only", "[fd00:77::2]:50002"),
		instance("everywhere-1", "shop/everywhere", "10.77.1.111:50002"),
		instance("everywhere-2", "shop/everywhere", "10.77.1.112:50002"),
		instance("payroll-1", "finance/payroll", "10.77.1.120:50002"),
	}
	for i := range 120 {
		instances = append(instances, instance(fmt.Sprintf("many-%d", i), "shop/many", fmt.Sprintf("10.77.5.%d:50002", i+1)))
	}
	return strings.Join(append(instances,
		meshtest.Cluster("east", "10.77.2.11:15443", "10.77.2.12:15443"),
		meshtest.Cluster("north", "10.77.4.11:15443")+"  network: net-1\n",
		meshtest.Cluster("far", "[fd00:77:9::11]:15443"),
		`apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - app: orders
  - app: v6only
  - app: many
  - app: empty
  - {app: stock, routes: [{cluster: east}]}
  - {app: near, routes: [{cluster: north}]}
  - {app: lost, routes: [{cluster: far}]}
  - app: everywhere
    routes: [{cluster: local, weight: 30}, {cluster: east, weight: 70}, {cluster: north, priority: 1}]
---
apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: cart}
spec:
  endpoints:
  - {app: orders, routes: [{cluster: east}]}
`), "---\n")
}

var eastObjects = strings.Join([]string{
	meshtest.Cluster("west"), export("orders", "west"), export("stock", "west"), export("everywhere", "west"),
	instance("orders-1", "shop/orders", "10.77.2.101:50002"),
	instance("stock-1", "shop/stock", "10.77.2.102:50002"),
	instance("everywhere-1", "shop/everywhere", "10.77.2.103:50002"),
	instance("secret-1", "shop/secret", "10.77.2.104:50002"),
}, "---\n")

var northObjects = strings.Join([]string{
	export("near", "west"), export("everywhere", "west"),
	"apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: west}\nspec: {network: net-1}\n",
	instance("near-1", "shop/near", "10.77.4.101:50002"),
	instance("everywhere-1", "shop/everywhere", "10.77.4.103:50002"),
}, "---\n")

// notReady is the address of an instance whose check fails.
const notReady = "10.77.1.12"

// instance is an AppInstance that is always ready.
func instance(name, app, address string) string {
	namespace, id, _ := strings.Cut(app, "/")
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppInstance
metadata: {namespace: %s, name: %s}
spec:
  app: %s
  address: %q
`, namespace, name, id, address)
}

// export lets every app of a cluster call an app of the namespace shop.
func export(id, cluster string) string { return meshtest.Export("shop", id, cluster) }
