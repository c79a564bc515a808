package faults

import (
	"testing"
	"time"
)

// Everything of a cluster ends at once, so its connections are refused. When it runs again it
// gets its traffic back in steps.
func killedCluster(t *testing.T, m *mesh) {
	x := m.newTrial(t, "whole cluster, preferred by all: kill -9", deadline, m.toOrders(), m.toStock())
	x.strike(m.east.kill)
	x.answeredBy("north")
	time.Sleep(max(2*time.Second, time.Until(m.ramps)))
	f := x.done("1 s")
	x.shorter(f, time.Second)

	back := m.newTrial(t, "that cluster comes back", deadline, m.toOrders(), m.toStock())
	back.strike(func() error { return nil })
	m.east.restart(t)
	back.returns(m.east)
}
