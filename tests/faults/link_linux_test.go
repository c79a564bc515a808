package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
)

// A gateway address that swallows packets costs the connections through it and no others.
// Those are given up in less than a second.
func gatewayAddress(t *testing.T, m *mesh) {
	x := m.newTrial(t, "one of two gateway addresses dropped", deadline, m.toOrders(), m.toStock())
	before := m.lapses(t, m.west, "east")
	x.strike(func() error {
		m.cut(everywhere, only(m.east.gateways[0]))
		m.cut(only(m.east.gateways[0]), everywhere)
		return nil
	})
	time.Sleep(5 * time.Second)
	lapses := m.lapses(t, m.west, "east") - before
	all := of(x.concerned...)
	elsewhere := all.since(x.moment).by(false)["north"]
	last := all.failed().lastBegun(x.moment)
	f := x.done("1 s", fmt.Sprintf("%d lapses; %d calls answered by north; the last call that failed began %s after the fault", lapses, elsewhere, round(last)))
	x.shorter(f, time.Second)
	x.takes(last <= allowed(time.Second)+2*f.still, "a call that began %s after the fault failed", round(last))
	x.stays(lapses == 0 && elsewhere == 0, "%d lapses and %d calls to north, though the other gateway address is up", lapses, elsewhere)
}

// A link that is merely bad is no reason to go elsewhere. Calls take their time, so they get
// more of it.
func badLink(t *testing.T, m *mesh) {
	lasts := during(30*time.Second, 2*staleAfter())
	x := m.newTrial(t, "300 ms delay and 5 % loss, each way", 10*time.Second, m.toOrders(), m.toStock())
	before := m.lapses(t, m.west, "east")
	bad := network.Conditions{Delay: 300 * time.Millisecond, Loss: 0.05}
	x.strike(func() error {
		m.Set(m.west.network, m.east.network, bad)
		m.Set(m.east.network, m.west.network, bad)
		return nil
	})
	time.Sleep(lasts)
	lapses := m.lapses(t, m.west, "east") - before
	elsewhere := of(x.concerned...).since(x.moment).by(false)["north"]
	m.Heal()
	x.answeredBy("east")
	x.done("no failover, no flap", fmt.Sprintf("%d lapses; %d calls answered by north", lapses, elsewhere))
	x.stays(lapses == 0 && elsewhere == 0, "%d lapses and %d calls to north", lapses, elsewhere)
}

// Packets vanish, and nobody is told. The lease says when that is noticed.
func cutLink(t *testing.T, m *mesh) {
	x := m.newTrial(t, "link of a cluster dropped silently", deadline, m.toOrders(), m.toStock())
	x.strike(func() error {
		m.cut(everywhere, m.east.network)
		m.cut(m.east.network, everywhere)
		return nil
	})
	x.answeredBy("north")
	time.Sleep(max(2*time.Second, time.Until(m.ramps)))
	f := x.done(fmt.Sprintf("staleAfter + 1 s = %s", staleAfter()+time.Second))
	x.shorter(f, staleAfter()+time.Second)

	back := m.newTrial(t, "that link is back", deadline, m.toOrders(), m.toStock())
	back.strike(func() error {
		m.Heal()
		return nil
	})
	back.returns(m.east)
}
