package stock

import (
	"fmt"
	"net/netip"
	"strings"
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

// gatewayOf is the gateway of a cluster that leads to one app alone.
func gatewayOf(number int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("10.77.2.%d", number)), port)
}

// ofApps has east's gateway lead to an app alone at an address of each, from 10.77.2.2 on, and
// makes the Cluster object that says so to west.
func ofApps(ids ...string) (plan, func(l *lab) string) {
	p := ofKubernetes("")
	var listeners []any
	gateways := ""
	for i, id := range ids {
		at := gatewayOf(2 + i)
		p.east.addresses = append(p.east.addresses, at.Addr())
		listeners = append(listeners, map[string]any{"address": at.String(), "app": namespace + "/" + id})
		gateways += fmt.Sprintf("  - {address: %q, app: %s, namespace: %s}\n", at, id, namespace)
	}
	p.east.listen = map[string]any{"apps": listeners}
	return p, func(l *lab) string {
		return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec:
  gateways:
  - {address: %q}
%s  staleAfter: %s
  rampUp: 0s
`, l.east.Gateway, gateways, meshtest.StaleAfter)
	}
}

// An address of the gateway that leads to one app alone needs no name, and apps are kept
// apart by it. An app without one can't be called.
func TestKubernetesThroughTheGatewayOfTheApp(t *testing.T) {
	p, east := ofApps("invoices", "ledger")
	l := newLab(t, p)
	l.west.apply(t, east(l))
	l.east.apply(t, export("invoices", "west"), export("ledger", "west"), export("stock", "west"))
	for _, id := range []string{"invoices", "ledger", "stock"} {
		l.east.known(t, id, services())
	}
	l.west.apply(t, selection("checkout", "app: invoices", "app: ledger", "app: stock"), selection("reporting", "app: invoices"))
	checkout, reporting := l.west.known(t, "checkout", services()), l.west.known(t, "reporting", serviceFormat())
	checkout.reaches(t, "invoices", l.east)
	checkout.reaches(t, "ledger", l.east)
	checkout.reaches(t, "invoices", l.east)
	reporting.reaches(t, "invoices", l.east) // which sends the name of the service

	checkout.fails(t, "stock", "tls: unrecognized name")
	l.west.says(t, "callers without a server name to east: by "+gatewayOf(2).String(), "explain", "--from", "shop/checkout", "invoices")
	l.west.says(t, "callers without a server name to east: refused", "explain", "--from", "shop/checkout", "stock")
	l.west.says(t, "led to gateways that take who sends a server name alone", "status")
	l.west.says(t, gatewayOf(2).String()+" for shop/invoices", "get", "Cluster")
}

// The last instance here dies under calls, and those go through the gateway of the app: as
// through any other.
func TestKubernetesFailsOverThroughTheGatewayOfTheApp(t *testing.T) {
	p, east := ofApps("orders")
	l := newLab(t, p)
	l.west.apply(t, east(l), selection("checkout", "app: orders"))
	l.east.apply(t, export("orders", "west"))
	l.east.known(t, "orders", services())
	here := l.west.known(t, "orders", services())
	checkout := l.west.known(t, "checkout", services())
	checkout.reaches(t, "orders", l.west)
	failsOver(t, l, here, checkout)
}

// What is known of the other cluster decides whether its gateway is answered: the export, what
// is ready there, and the lease.
func TestTheGatewayOfTheAppIsAnsweredWhileItsRouteStands(t *testing.T) {
	p, east := ofApps("orders")
	l := newLab(t, p)
	l.west.apply(t, east(l), selection("checkout", "app: orders, routes: [{cluster: east}, {cluster: local, priority: 1}]"))
	l.east.apply(t, export("orders", "west"))
	there := l.east.known(t, "orders", services())
	here := l.west.known(t, "orders", services())
	checkout := l.west.known(t, "checkout", services())
	leads := func(to netip.Addr, answers *cluster) {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error { return checkout.findsService(t, "orders", to) })
		checkout.reaches(t, "orders", answers)
	}
	back := func() {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error { return checkout.findsService(t, "orders", gatewayOf(2).Addr()) })
		checkout.restart(t) // which keeps an address that works for 20 s
		checkout.reaches(t, "orders", l.east)
	}
	leads(gatewayOf(2).Addr(), l.east)

	l.east.apply(t, export("orders", "nobody")) // withdrawn from west
	leads(here.address, l.west)
	l.east.apply(t, export("orders", "west"))
	back()

	if err := there.Kill(); err != nil {
		t.Fatal(err)
	}
	leads(here.address, l.west)
	if err := there.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	back()

	l.west.apply(t, strings.Replace(east(l), meshtest.StaleAfter.String(), "1s", 1)) // whose lease ends with its service
	if err := l.east.Service.Kill(); err != nil {
		t.Fatal(err)
	}
	leads(here.address, l.west)
}

// findsService looks the service of an app up from where the pod is, and wants one address.
func (p *pod) findsService(t *testing.T, id string, want netip.Addr) error {
	t.Helper()
	name := fmt.Sprintf("%s-dapr.%s.svc.%s.", id, namespace, kubernetesDomain)
	got, err := p.lookup(meshtest.Within(t, meshtest.Attempt), name)
	if err == nil && (len(got) != 1 || got[0] != want.String()) {
		err = fmt.Errorf("%s is at %v, want %s", name, got, want)
	}
	return err
}

// says waits until a command of the cluster's command line prints something.
func (c *cluster) says(t *testing.T, want string, args ...string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		said, err := c.isthmus(meshtest.Within(t, meshtest.Attempt), "", args...)
		if err == nil && !strings.Contains(said, want) {
			err = fmt.Errorf("isthmus %s says\n%s\nwithout %q", strings.Join(args, " "), said, want)
		}
		return err
	})
}
