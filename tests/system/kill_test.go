package system

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Calls under way die with the instance. Those after it go to the other cluster.
func TestAKilledInstanceIsReplacedByTheOtherCluster(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.apply(t, m.east, export("kill", "orders", "west"))
	m.apply(t, m.west, selection("kill", "checkout", "app: orders")) // local first, then east
	m.app(t, m.east, "kill", "orders")
	local := m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "kill", ID: "orders"}, Instance: "one"})
	checkout := m.app(t, m.west, "kill", "checkout")
	answers(t, checkout, "orders", "west")

	l := startLoad(t, "the only local instance is killed", calling(checkout, "orders"))
	l.onlyFrom("west one") // an instance that is here
	l.anew()
	killed := time.Now()
	if err := local.Kill(); err != nil {
		t.Fatal(err)
	}
	l.answersFrom("east")
	t.Logf("the first call that was answered began %s after the kill", l.firstAfter(killed).Round(time.Millisecond))

	after := startLoad(t, "after it", calling(checkout, "orders"))
	after.answersFrom("east")
	after.noneFailed()
	l.noneFailedSince("east")
}
