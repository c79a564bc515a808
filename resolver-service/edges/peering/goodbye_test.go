package peering

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
)

func TestCallersThatAgreeEndALeaseThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		_, west := westOf(t, n, 10*time.Second, "east-gw")
		west.takes(time.Second, "heard", west.ok)
		west.links.SetUnreachable("north", "nobody knows it")
		west.links.SetUnreachable("east", "3 of 3 callers don't reach it; shop/checkout: refused")
		west.takes(time.Second, "stale", west.staleNow)
		time.Sleep(30 * time.Second) // messages keep arriving
		west.links.SetUnreachable("east", "and still so")
		if s := west.status(); !west.staleNow() || s.State != stale || s.Lapses != 1 {
			t.Errorf("while callers agree: %v", s)
		}
		if got, want := west.links.Describe("east"), "lease ended 30 s ago: 3 of 3 callers don't reach it; shop/checkout: refused"; !strings.HasPrefix(got, want) {
			t.Errorf("explained as %q, want %q", got, want)
		}
		west.links.SetUnreachable("east", "")
		if took := west.takes(time.Second, "relied on again", west.ok); took > 100*time.Millisecond {
			t.Errorf("relied on again after %s", took)
		}
		west.links.SetUnreachable("east", "and again")
		n.Drop("west", "east-gw")
		time.Sleep(time.Minute)
		west.links.SetUnreachable("east", "")
		if time.Sleep(time.Second); !west.staleNow() {
			t.Errorf("nothing was heard for a minute: %s", west.outcome("checkout", "orders"))
		}
		n.Heal("west", "east-gw")
		west.takes(2*time.Second, "relied on again", west.ok)
	})
}

// TestAGoodbyeKeepsTheLease stops a peer with a goodbye. Its gateway refuses connections then,
// which would otherwise end the lease.
func TestAGoodbyeKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east, west := westOf(t, n, 10*time.Second, "east-gw")
		west.takes(time.Second, "heard", west.ok)
		leave := func(holds time.Duration) {
			time.Sleep(time.Minute)
			east.server.Leave(holds)
			synctest.Wait()
			time.Sleep(time.Second) // for the last messages to arrive
			east.stop()
		}
		leave(4 * time.Second)
		time.Sleep(2 * time.Second)
		if s := west.status(); !west.ok() || s.Lapses != 0 || !strings.Contains(west.links.Describe("east"), "being restarted") {
			t.Errorf("while it is away: %v, %s", s, west.links.Describe("east"))
		}
		east.serve("east-gw")
		west.takes(time.Second, "heard again", func() bool { return west.status().State == connected })
		if s := west.status(); s.Lapses != 0 || strings.Contains(west.links.Describe("east"), "being restarted") {
			t.Errorf("back again: %v, %s", s, west.links.Describe("east"))
		}
		leave(4 * time.Second)
		if took := west.takes(time.Minute, "stale", west.staleNow); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("nobody came back: the lease ended %s after the end", took)
		}
	})
}
