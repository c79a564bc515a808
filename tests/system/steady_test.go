package system

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/sandbox"
)

func TestNoCallFailsWhileASelectionChanges(t *testing.T) {
	m := sharedMesh(t)
	m.apply(t, m.east, export("select", "orders", "west"))
	m.apply(t, m.west, selection("select", "checkout", "app: orders, routes: [{cluster: local}]"))
	m.app(t, m.west, "select", "orders")
	m.app(t, m.east, "select", "orders")
	checkout := m.app(t, m.west, "select", "checkout")
	answers(t, checkout, "orders", "west")

	l := startLoad(t, "a selection changes", calling(checkout, "orders"))
	for range 5 {
		for _, cluster := range []string{"west", "east"} {
			m.apply(t, m.west, selection("select", "checkout", "app: orders, routes: [{cluster: "+cluster+"}]"))
			l.onlyFrom(cluster)
		}
	}
	l.noneFailed()
}

func TestNoCallFailsWhileTheInstancesChange(t *testing.T) {
	m := sharedMesh(t)
	m.apply(t, m.east, export("fleet", "orders", "west"))
	m.apply(t, m.west, selection("fleet", "checkout", "app: orders")) // local first, then east
	m.app(t, m.east, "fleet", "orders")
	checkout := m.app(t, m.west, "fleet", "checkout")
	answers(t, checkout, "orders", "east")
	instance := func(name string) *sandbox.Sidecar {
		return m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "fleet", ID: "orders"}, Instance: name})
	}

	l := startLoad(t, "instances come, go and move", calling(checkout, "orders"))
	first := instance("one")
	l.onlyFrom("west one")
	second := instance("two")
	l.answersFrom("west two")
	stop(t, first)
	l.onlyFrom("west two")
	// It moves: stops, and starts elsewhere.
	stop(t, second)
	l.onlyFrom("east")
	instance("three")
	l.onlyFrom("west three")
	l.noneFailed()
}

// stop ends a sidecar as a user's system does, and waits for it.
func stop(t *testing.T, s *sandbox.Sidecar) {
	t.Helper()
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not stop:\n%s", s.Name(), s.Tail(20))
	}
}

func TestNoCallFailsWhileAGatewaysAddressChanges(t *testing.T) {
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "orders", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders"))
	m.app(t, m.east, "shop", "orders")
	checkout := m.app(t, m.west, "shop", "checkout")
	answers(t, checkout, "orders", "east")

	l := startLoad(t, "a gateway's address changes", calling(checkout, "orders"))
	var old *relay
	for range 5 {
		next := newRelay(t, m.east.Gateway)
		m.apply(t, m.west, clusterObject("east", next.address()))
		l.uses(next)
		if old != nil {
			l.leaves(old)
		}
		old = next
	}
	l.noneFailed()
}

func TestNoCallFailsWhenOneOfTwoGatewaysDies(t *testing.T) {
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "orders", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders"))
	m.app(t, m.east, "shop", "orders")
	checkout := m.app(t, m.west, "shop", "checkout")
	first, second := newRelay(t, m.east.Gateway), newRelay(t, m.east.Gateway)
	m.apply(t, m.west, clusterObject("east", first.address()))
	answers(t, checkout, "orders", "east")

	l := startLoad(t, "one of two gateways dies", calling(checkout, "orders"))
	l.uses(first)
	m.apply(t, m.west, clusterObject("east", first.address(), second.address()))
	l.answersFrom("east")
	first.kill()
	l.answersFrom("east")
	l.uses(second)
	l.noneFailed()
}

// leaves waits until nobody uses a relay any more, and kills it.
func (l *load) leaves(r *relay) {
	l.t.Helper()
	r.retire()
	eventually(l.t, 15*time.Second, func() error {
		if n := r.open(); n > 0 {
			return fmt.Errorf("%s: %d connections to %s are left", l.what, n, r.address())
		}
		return nil
	})
	r.kill()
}

// uses waits until calls go through a relay.
func (l *load) uses(r *relay) {
	l.t.Helper()
	eventually(l.t, 15*time.Second, func() error {
		if r.open() == 0 {
			return fmt.Errorf("%s: nobody has connected to %s", l.what, r.address())
		}
		return nil
	})
	l.answersFrom("east")
}
