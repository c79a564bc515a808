package system

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// gRPC tries an address that refused connections ever later. Callers of a cluster that was
// away for long find it all the same, as soon as lookups lead there again.
func TestAClusterThatWasAwayIsCalledAtOnce(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "orders", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders, routes: [{cluster: east}, {cluster: local, priority: 1}]"))
	instances := []string{"one", "two", "three", "four", "five"} // connections on which no call fails are kept
	for _, name := range instances {
		m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "orders"}, Instance: name})
	}
	m.app(t, m.west, "shop", "orders")
	checkout := m.app(t, m.west, "shop", "checkout")
	m.hasReady(t, m.west, "shop/checkout", "orders", 5)
	allAnswer(t, checkout, 5)

	if err := m.east.Kill(); err != nil { // and its gateway
		t.Fatal(err)
	}
	answers(t, checkout, "orders", "west")
	time.Sleep(away) // by the clock of gRPC
	l := startLoad(t, "a cluster that was away is back", calling(checkout, "orders"))
	l.answersFrom("west")
	if err := m.east.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	for _, name := range instances {
		l.answersFrom("east " + name)
	}
	l.noneFailed()
}

// away is long enough for gRPC's next attempt to be some seconds off.
const away = 10 * time.Second
