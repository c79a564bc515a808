package faults

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// instanceGap is what the end of an instance costs a caller that calls each 20 ms: an answer,
// where it was under way there, and a new connection.
const instanceGap = 50 * time.Millisecond

func localInstance(t *testing.T, m *mesh) {
	x := m.newTrial(t, "one of two local instances: kill -9", deadline, callers("stock", m.apps()...), callers("orders", m.billing))
	m.killed(t, x, m.west, "stock 1", "west")
}

// The app is in north, too, which is next.
func lastInstance(t *testing.T, m *mesh) {
	other := m.west.sidecars["stock 2"]
	if err := other.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	x := m.newTrial(t, "the only local instance, the app also in another cluster: kill -9", deadline, callers("stock", m.apps()...), callers("orders", m.billing))
	m.killed(t, x, m.west, "stock 1", "north")
	if err := other.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
}

func remoteInstance(t *testing.T, m *mesh) {
	x := m.newTrial(t, "one of five remote instances: kill -9", deadline, m.toOrders(), m.toStock())
	m.killed(t, x, m.east, "orders 1", "east")
}

// killed kills an instance, wants a cluster to answer from then on, and starts it again.
func (m *mesh) killed(t *testing.T, x *trial, c *cluster, name, then string) {
	victim := c.sidecars[name]
	x.strike(victim.Kill)
	x.answeredBy(then)
	time.Sleep(2 * time.Second)
	f := x.done("0 beyond those that the instance had begun; 50 ms")
	x.begunOnly(f)
	x.shorter(f, instanceGap)
	if err := victim.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
}

// An instance whose process does not run says nothing, and its kernel takes what it is sent.
// It is left by those who notice, and is back once it runs.
func stalledInstance(t *testing.T, m *mesh) {
	lasts := during(20*time.Second, 4*time.Second)
	victim := m.east.sidecars["orders 2"]
	x := m.newTrial(t, "one of five remote instances: SIGSTOP for "+lasts.String(), deadline, m.toOrders(), m.toStock())
	goOn := func() error { return victim.Signal(syscall.SIGCONT) }
	t.Cleanup(func() { _ = goOn() })
	x.strike(func() error { return victim.Signal(syscall.SIGSTOP) })
	time.Sleep(lasts)
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	f := x.done("those under way; 500 ms")
	x.shorter(f, silenceGap)
	x.noLaterThan(f, silenceGap)
}

// slower is how many times longer a call takes at the slow instance.
const slower = 50

// One that is slow is left to itself, as far as callers can tell; the rest have its calls.
func slowInstance(t *testing.T, m *mesh) {
	before, lasts := during(6*time.Second, 4*time.Second), during(20*time.Second, 6*time.Second)
	slow := m.east.sidecars["orders 3"].Behind
	x := m.newTrial(t, "one of five remote instances answers 50 times slower", deadline, m.toOrders(), m.toStock())
	time.Sleep(before)
	x.strike(func() error {
		slow.Slow((slower - 1) * takes)
		return nil
	})
	defer slow.Slow(0)
	time.Sleep(lasts)
	x.load.end()
	all := of(x.concerned...)
	slowly := slices.DeleteFunc(all.begunSince(x.moment), func(c call) bool { return c.by != "east 3" })
	was, is := all.begunBefore(x.moment).percentile(99), all.begunSince(x.moment).percentile(99)
	slow.Slow(0)
	f := x.done("0 failed; p99 of all calls at most twice that before", fmt.Sprintf("p99 %s before, %s then; %d calls went there", tenths(was), tenths(is), len(slowly)))
	x.want(f.failed == 0, "%d calls failed", f.failed)
	x.want(is <= allowed(2*was)+f.noise(), "p99 of calls went from %s to %s", was, is)
}

func tenths(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
