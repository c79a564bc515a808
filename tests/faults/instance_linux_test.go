package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// The issue of both is the same: the next lookup avoids the instance. Calls that begin
// before the service has heard of the end, which the kernel tells it at once, may fail.
const instanceGap = 100 * time.Millisecond

func localInstance(t *testing.T, m *mesh) {
	x := m.newTrial(t, "one of two local instances: kill -9", deadline, callers("stock", m.apps()...), callers("orders", m.billing))
	killed(t, x, m.west, "stock 1")
}

func remoteInstance(t *testing.T, m *mesh) {
	x := m.newTrial(t, "one of three remote instances: kill -9", deadline, m.toOrders(), m.toStock())
	killed(t, x, m.east, "orders 1")
}

// killed kills an instance, wants nobody to be sent there, and starts it again.
func killed(t *testing.T, x *trial, c *cluster, name string) {
	victim := c.sidecars[name]
	x.strike(victim.Kill)
	x.answeredBy(c.name)
	time.Sleep(2 * time.Second)
	all := of(x.concerned...)
	last := all.failed().lastBegun(x.moment)
	f := x.done("100 ms; next lookup avoids it", fmt.Sprintf("the last call that failed began %s after the kill", round(last)))
	x.shorter(f, instanceGap)
	x.takes(last <= allowed(instanceGap)+2*f.still, "a call that began %s after the kill failed; want the next lookup to avoid it", round(last))
	if err := victim.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
}
