package faults

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The two gateways of west are stopped and started again one after the other. Apps of east
// call through them.
func rolledGateways(t *testing.T, m *mesh) {
	var east []*sandbox.Sidecar
	for _, name := range []string{"orders 1", "orders 2", "orders 3"} {
		east = append(east, m.east.sidecars[name])
		meshtest.Eventually(t, meshtest.Patience, func() error { return answeredFrom(t, m.east.sidecars[name], "stock", "west") })
	}
	x := m.newTrial(t, "gateway process restarted, rolling, two addresses", deadline, callers("stock", east...), callers("orders", m.billing))
	x.strike(func() error { return nil })
	for _, s := range m.west.services[:len(m.west.gateways)] {
		if err := s.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
	}
	m.ramps = time.Now().Add(settled)
	f := x.done("0 by HTTP; by gRPC those that the gateways cut off; 50 ms")
	x.drained(len(m.west.gateways))
	x.shorter(f, instanceGap)
}
