package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
)

// silenceGap is how long callers take to notice that nobody answers any more.
const silenceGap = 500 * time.Millisecond

// A gateway address that swallows packets costs the connections through it and no others.
// Calls leave those within half a second.
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
	f := x.done("those under way; 500 ms; no failover", fmt.Sprintf("%d lapses; %d calls answered by north", lapses, elsewhere))
	x.shorter(f, silenceGap)
	x.noLaterThan(f, silenceGap)
	x.want(lapses == 0 && elsewhere == 0, "%d lapses and %d calls to north, though the other gateway address is up", lapses, elsewhere)
}

// A link that is merely bad is no reason to go elsewhere, once callers know that it is: before
// the first packet was late enough, nobody can tell it from one that is dead. Calls take their
// time, so they get more of it.
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
	since := of(x.concerned...).begunSince(x.moment)
	elsewhere, late := since.by(false)["north"], since.begunSince(x.moment.Add(toLearn)).by(false)["north"]
	m.Heal()
	x.answeredBy("east")
	f := x.done("0 failed; 0 lapses; calls elsewhere only in the first 1.5 s", fmt.Sprintf("%d lapses; %d calls answered by north, %d of them after 1.5 s", lapses, elsewhere, late))
	x.want(f.failed == 0, "%d calls failed", f.failed)
	x.want(lapses == 0 && late == 0, "%d lapses, and %d calls to north that began later than %s", lapses, late, toLearn)
}

// toLearn is how long callers take to learn how long a link takes that has become slow.
const toLearn = 1500 * time.Millisecond

// Packets vanish, and nobody is told: neither callers nor the service, whose lease ends later.
func cutLink(t *testing.T, m *mesh) {
	m.swallows(t, staleAfter(), staleAfter()+time.Second)

	back := m.newTrial(t, "that link is back", deadline, m.toOrders(), m.toStock())
	back.strike(func() error {
		m.Heal()
		return nil
	})
	back.returns(m.east)
}

// What callers notice by themselves has nothing to do with the lease.
func cutLinkWithLongLease(t *testing.T, m *mesh) {
	m.west.apply(t, clusterObject(m.east, 10*time.Second))
	m.swallows(t, 10*time.Second, 2*time.Second)
	m.Heal()
	m.west.apply(t, clusterObject(m.east, staleAfter()))
}

// swallows cuts the link of the cluster that all prefer.
func (m *mesh) swallows(t *testing.T, staleAfter, lasts time.Duration) {
	t.Helper()
	x := m.newTrial(t, "a cluster's link swallows packets, staleAfter "+staleAfter.String(), deadline, m.toOrders(), m.toStock())
	x.strike(func() error {
		m.cut(everywhere, m.east.network)
		m.cut(m.east.network, everywhere)
		return nil
	})
	x.answeredBy("north")
	time.Sleep(max(2*time.Second, time.Until(m.ramps), time.Until(x.moment.Add(lasts))))
	f := x.done("those under way; 500 ms")
	x.shorter(f, silenceGap)
	x.noLaterThan(f, silenceGap)
}
