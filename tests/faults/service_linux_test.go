package faults

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The resolver service of the callers' own cluster is gone. What sidecars know they know, of
// their own cluster as well as of others; the gateways of others have nothing to do with
// it. Sidecars do not look at the time that has passed, see TestTenMinutesWithoutAService.
func serviceGone(t *testing.T, m *mesh) {
	lasts := during(20*time.Second, 8*time.Second)
	x := m.newTrial(t, fmt.Sprintf("resolver service gone for %s, and back", lasts), deadline, append(m.toOrders(), callers("stock", m.cart, m.billing)...), m.toStock())
	x.strike(func() error {
		var errs []error
		for _, s := range m.west.services {
			errs = append(errs, s.Kill())
		}
		return errors.Join(errs...)
	})
	time.Sleep(lasts)
	together(t, m.west.services, func(s *sandbox.Service) error { return s.Restart(meshtest.Within(t, meshtest.Patience)) })
	m.ramps = time.Now().Add(settled)
	time.Sleep(5 * time.Second)
	f := x.done("local and known remote lookups go on")
	x.want(f.failed == 0, "%d calls failed", f.failed)
	north := of(x.concerned...).by(false)["north"]
	x.want(north == 0, "%d calls were answered by north, which nobody prefers", north)

	// A change takes effect again: orders from north only.
	m.west.apply(t, selection("cart", "orders: north", "stock: local north"))
	meshtest.Eventually(t, meshtest.Patience, func() error { return answeredFrom(t, m.cart, "orders", "north") })
	m.west.apply(t, usual("cart"))
}
