package faults

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// The replicas of west's resolver service are stopped and started again one by one, as a
// rolling update does it. With each goes one of west's gateways or none, through which an
// app of east calls.
func rolledReplicas(t *testing.T, m *mesh) {
	fromEast := m.east.sidecars["orders 1"]
	meshtest.Eventually(t, meshtest.Patience, func() error { return answeredFrom(t, fromEast, "stock", "west") })
	concerned := append(m.toOrders(), callers("stock", m.cart, m.billing, fromEast)...)
	x := m.newTrial(t, "three replicas of the resolver service rolled one by one", deadline, concerned, m.toStock())
	x.strike(func() error { return nil })
	for _, s := range m.west.services {
		if err := s.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
	}
	m.ramps = time.Now().Add(settled)
	x.done("0 by HTTP; by gRPC those that the gateways cut off")
	x.drained(len(m.west.gateways))
	north := of(x.concerned...).by(false)["north"]
	x.want(north == 0, "%d calls were answered by north, which nobody prefers", north)
}
