package faults

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// East's only service is told to stop by SIGTERM and started beside itself, as an update of a
// cluster with one service does it. The old one ends when its connections have had their time.
func onlyService(t *testing.T, m *mesh) {
	x := m.newTrial(t, "the only service stopped and started again by SIGTERM", deadline, m.toOrders(), m.toStock())
	lapses := m.lapses(t, m.west, "east")
	x.strike(func() error { return m.east.services[0].Replace(meshtest.Within(t, meshtest.Patience)) })
	time.Sleep(2 * time.Second)
	after := m.lapses(t, m.west, "east")
	x.done("0 by HTTP; by gRPC those that the gateway cut off")
	x.drained(len(m.east.gateways))
	x.want(after == lapses, "the lease of east has lapsed %d times", after-lapses)
	// Where the machine stands still, east looks silent for a moment, and callers leave it.
	north := of(x.concerned...).by(false)["north"]
	x.want(north <= len(x.concerned)*x.begunWhileStill(), "%d calls were answered by north, which nobody prefers", north)
}
