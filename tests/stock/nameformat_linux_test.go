package stock

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// nameFormat is Dapr's component on our zone.
func nameFormat() resolution {
	return resolution{component: "nameformat", configuration: fmt.Sprintf(`{format: "{appid}.%s.isthmus.internal:%d"}`, namespace, port)}
}

// A sidecar that nobody rebuilt calls an app here and one in another cluster, by one name,
// and its view decides where that leads.
func TestNameFormat(t *testing.T) {
	l := newLab(t, plan{})
	l.east.apply(t, export("orders", "west"), export("invoices", "west"))
	l.west.known(t, "orders", nameFormat())
	l.east.known(t, "orders", nameFormat())
	billing := l.east.known(t, "invoices", nameFormat()) // which west will be told is billing
	l.west.apply(t,
		selection("checkout", "app: orders", "app: invoices"),
		selection("reporting", "app: orders, routes: [{cluster: east}]"))
	checkout, reporting := l.west.known(t, "checkout", nameFormat()), l.west.known(t, "reporting", nameFormat())

	checkout.reaches(t, "orders", l.west)
	checkout.reaches(t, "invoices", l.east)
	reporting.reaches(t, "orders", l.east) // one name, another caller

	t.Run("a call that is denied says so", func(t *testing.T) {
		reporting.fails(t, "invoices", "lookup invoices.shop.isthmus.internal on "+l.west.dns().String()+": no such host")
	})
	t.Run("an instance that is another app is not called", func(t *testing.T) {
		l.west.apply(t, selection("checkout", "app: orders", "app: invoices", "app: billing"), instance("billing", "wrong", billing.Internal))
		checkout.fails(t, "billing", "unexpected SPIFFE ID")
	})
	// A pattern has one namespace, and daprd takes two apps at one address for the same.
	t.Run("an app in another namespace is mistaken for the one in the pattern's", func(t *testing.T) {
		reply, err := checkout.call(meshtest.Within(t, meshtest.Attempt), "orders.finance")
		if err != nil || reply.Namespace != namespace {
			t.Errorf("orders.finance: %+v, %v; docs/how-to/stock-daprd.md says that %s/orders answers", reply, err, namespace)
		}
	})
	t.Run("the next connection follows the selection", func(t *testing.T) {
		l.west.apply(t, selection("checkout", "app: orders, routes: [{cluster: east}]"))
		meshtest.Eventually(t, meshtest.Patience, func() error { return checkout.looksUp(t, "orders", l.east.address(1)) })
		if reply, err := checkout.call(meshtest.Within(t, meshtest.Attempt), "orders"); err != nil || reply.Cluster != "west" {
			t.Errorf("the connection that was there leads to %+v, %v, want west, where it led", reply, err)
		}
		checkout.restart(t)
		checkout.reaches(t, "orders", l.east)
		checkout.fails(t, "invoices", "no such host")
	})
}

// looksUp looks an app up from where the pod is, and wants one address.
func (p *pod) looksUp(t *testing.T, id string, want netip.Addr) error {
	t.Helper()
	name := fmt.Sprintf("%s.%s.isthmus.internal.", id, namespace)
	got, err := p.lookup(meshtest.Within(t, meshtest.Attempt), name)
	if err == nil && (len(got) != 1 || got[0] != want.String()) {
		err = fmt.Errorf("%s is at %v, want %s", name, got, want)
	}
	return err
}

// restart has the sidecar end and start anew, without the connections that it had.
func (p *pod) restart(t *testing.T) {
	t.Helper()
	if err := p.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
}

// A listener that is bound to an app answers whoever asks there as that app, so that
// sidecars need no address that tells who they are.
func TestNameFormatWithAListenerForAnApp(t *testing.T) {
	asCheckout := netip.MustParseAddr("10.77.1.2")
	l := newLab(t, plan{west: site{
		addresses: []netip.Addr{asCheckout},
		listen: map[string]any{"dns": []any{
			"10.77.1.1:53", map[string]any{"address": netip.AddrPortFrom(asCheckout, 53).String(), "as": "shop/checkout"},
		}},
	}})
	l.west.known(t, "orders", nameFormat())
	l.west.apply(t, selection("checkout", "app: orders"))
	bound := nameFormat()
	bound.dns = asCheckout
	checkout, stranger := l.west.pod(t, "checkout", bound), l.west.pod(t, "checkout", nameFormat())
	checkout.reaches(t, "orders", l.west)
	stranger.fails(t, "orders", "no such host") // nobody has told Isthmus who is at its address
}
