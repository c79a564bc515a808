package system

import (
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// daprd starts beside its app, and often before it. Nobody is sent there before the app
// listens.
func TestASidecarWhoseAppIsNotThereYetGetsNoCalls(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.apply(t, m.east, export("late", "orders", "west"))
	m.apply(t, m.west, selection("late", "checkout", "app: orders"))
	m.app(t, m.east, "late", "orders")
	checkout := m.app(t, m.west, "late", "checkout")
	answers(t, checkout, "orders", "east")
	l := startLoad(t, "a sidecar starts before its app", calling(checkout, "orders"))
	l.onlyFrom("east")

	// The place is taken, and nobody answers there: the app starts.
	behind, err := m.App(sandbox.AppOptions{Cluster: "west", App: catalog.App{Namespace: "late", ID: "orders"}, Instance: "west"})
	if err != nil {
		t.Fatal(err)
	}
	way := newClosedRelay(t, behind.Address)
	var started sync.WaitGroup
	defer started.Wait()
	started.Go(func() {
		s, err := m.west.Sidecar(meshtest.Within(t, meshtest.Patience), sandbox.SidecarOptions{
			App: catalog.App{Namespace: "late", ID: "orders"}, AppAddress: way.address,
		})
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = s.Kill() })
	})
	time.Sleep(2 * time.Second)
	way.open(t)
	l.onlyFrom("west")
	l.noneFailed()
}
