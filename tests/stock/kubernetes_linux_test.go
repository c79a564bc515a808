package stock

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// kubernetesDomain is the clusters' in Kubernetes.
const kubernetesDomain = "cluster.local"

// services is Dapr's component for Kubernetes. It asks for names of the services that
// Dapr's operator makes, and needs no API server.
func services() resolution {
	return resolution{component: "kubernetes", configuration: fmt.Sprintf(`{clusterDomain: "%s"}`, kubernetesDomain)}
}

// serviceFormat is Dapr's component nameformat with the names of those services.
func serviceFormat() resolution {
	return resolution{component: "nameformat", configuration: fmt.Sprintf(`{format: "{appid}-dapr.%s.svc.%s:%d"}`, namespace, kubernetesDomain, port)}
}

func ofKubernetes(network string) plan {
	all := map[string]any{"dns": map[string]any{"kubernetes": kubernetesDomain}}
	if network != "" {
		all["network"] = network
	}
	return plan{west: site{settings: all}, east: site{settings: all}}
}

// share has each cluster know that the other is in its network.
func (l *lab) share(t *testing.T) {
	t.Helper()
	l.west.apply(t, meshtest.Cluster("east", l.east.Gateway)+"  network: net-1\n")
	l.east.apply(t, meshtest.Cluster("west", l.west.Gateway)+"  network: net-1\n")
}

// Sidecars in clusters that share a network find each other by the names of Dapr's
// services, whichever cluster an app is in.
func TestKubernetesOnASharedNetwork(t *testing.T) {
	l := newLab(t, ofKubernetes("net-1"))
	l.share(t)
	l.east.apply(t, export("invoices", "west"), export("ledger", "west"))
	l.west.known(t, "orders", services())
	l.east.known(t, "invoices", services())
	l.west.apply(t, selection("checkout", "app: orders", "app: invoices"))
	checkout := l.west.known(t, "checkout", services())
	checkout.reaches(t, "orders", l.west)
	checkout.reaches(t, "invoices", l.east)

	checkout.fails(t, "ledger", "lookup ledger-dapr.shop.svc.cluster.local on "+l.west.dns().String()+": no such host")

	l.west.apply(t, selection("checkout", "app: invoices"))
	changed := time.Now()
	meshtest.Eventually(t, meshtest.Patience, func() error { // daprd keeps addresses for 20 s
		if reply, err := checkout.call(meshtest.Within(t, meshtest.Attempt), "orders"); err == nil {
			return fmt.Errorf("orders in %s answers, and the selection does not hold it", reply.Cluster)
		}
		return nil
	})
	t.Logf("the change of a selection counted after %s", time.Since(changed).Round(time.Millisecond))
}

// The component kubernetes looks names up itself and dials an address, so a gateway
// is told no name and takes it for nobody's. By nameformat the same names lead through.
func TestKubernetesThroughAGateway(t *testing.T) {
	l := newLab(t, ofKubernetes(""))
	l.east.apply(t, export("invoices", "west"))
	l.east.known(t, "invoices", services())
	l.west.known(t, "orders", services())
	l.west.apply(t, selection("checkout", "app: orders", "app: invoices"), selection("reporting", "app: orders", "app: invoices"))
	checkout, reporting := l.west.known(t, "checkout", services()), l.west.known(t, "reporting", serviceFormat())
	checkout.reaches(t, "orders", l.west)
	reporting.reaches(t, "orders", l.west)
	reporting.reaches(t, "invoices", l.east)

	checkout.fails(t, "invoices", "tls: unrecognized name")
}

// An address of the gateway that is one app's own needs no name. In the other cluster it
// is written down as an instance of that app.
func TestKubernetesThroughAnAddressOfTheApp(t *testing.T) {
	invoices, ledger := netip.MustParseAddr("10.77.2.2"), netip.MustParseAddr("10.77.2.3")
	p := ofKubernetes("")
	p.east.addresses = []netip.Addr{invoices, ledger}
	at := func(a netip.Addr) string { return netip.AddrPortFrom(a, port).String() }
	p.east.listen = map[string]any{"apps": []any{
		map[string]any{"address": at(invoices), "app": "shop/invoices"},
		map[string]any{"address": at(ledger), "app": "shop/ledger"},
	}}
	l := newLab(t, p)
	l.east.apply(t, export("invoices", "west"), export("ledger", "west"))
	l.east.known(t, "invoices", services())
	l.east.known(t, "ledger", services())
	l.west.apply(t, instance("invoices", "east", at(invoices)), instance("ledger", "east", at(ledger)))
	checkout := l.west.known(t, "checkout", services())
	checkout.reaches(t, "invoices", l.east)
	checkout.reaches(t, "ledger", l.east)
	checkout.reaches(t, "invoices", l.east)
}
