package system

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

func TestNoCallFailsWhileASelectionChanges(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	selects := func(cluster string) {
		routes := ", routes: [{cluster: " + cluster + "}]"
		m.apply(t, m.west, selection("select", "checkout", "app: orders"+routes, "app: quotes"+routes))
	}
	selects("west")
	for _, c := range []*sandbox.Cluster{m.west, m.east} {
		m.app(t, c, "select", "orders")
		m.sidecar(t, c, sandbox.SidecarOptions{App: catalog.App{Namespace: "select", ID: "quotes"}, GRPC: true})
	}
	m.apply(t, m.east, export("select", "orders", "west"), export("select", "quotes", "west"))
	checkout := m.app(t, m.west, "select", "checkout")
	conn := dial(t, checkout)
	answers(t, checkout, "orders", "west")

	l := startLoad(t, "a selection changes", calling(checkout, "orders"))
	proxied := startLoad(t, "a selection changes, with calls proxied over gRPC", proxying(conn, "quotes"))
	for range 4 {
		for _, cluster := range []string{"east", "west"} {
			selects(cluster)
			l.onlyFrom(cluster)
			proxied.onlyFrom(cluster)
		}
	}
	l.noneFailed()
	proxied.noneFailed()
}

func TestNoCallFailsWhileTheInstancesChange(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	for id, c := range map[string]struct {
		grpc bool
		call func(*sandbox.Sidecar) call
	}{
		"orders": {false, func(from *sandbox.Sidecar) call { return calling(from, "orders") }},
		"quotes": {true, func(from *sandbox.Sidecar) call { return proxying(dial(t, from), "quotes") }},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			o := sandbox.SidecarOptions{App: catalog.App{Namespace: "fleet", ID: id}, GRPC: c.grpc, Args: leavesSlowly}
			m.apply(t, m.east, export("fleet", id, "west"))
			m.apply(t, m.west, selection("fleet", "for-"+id, "app: "+id)) // local first, then east
			m.sidecar(t, m.east, o)
			from := m.app(t, m.west, "fleet", "for-"+id)
			m.leadsTo(t, m.west, "fleet/for-"+id, id, "east")
			instance := func(name string) *sandbox.Sidecar {
				o.Instance = name
				return m.sidecar(t, m.west, o)
			}

			l := startLoad(t, "instances come, go and move", c.call(from))
			l.onlyFrom("east")
			first := instance("one")
			l.onlyFrom("west one")
			second := instance("two")
			l.answersFrom("west two")
			leave(t, first)
			l.onlyFrom("west two")
			// It moves: stops, and starts elsewhere.
			leave(t, second)
			l.onlyFrom("east")
			third := instance("three")
			l.onlyFrom("west three")
			// It restarts in its place.
			leave(t, third)
			gone(t, first, second, third)
			if err := third.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
				t.Fatal(err)
			}
			l.onlyFrom("west three")
			l.noneFailed()
		})
	}
}

// A connection through a gateway stays with one instance. It has to find another when
// that one leaves.
func TestNoCallFailsWhileTheInstancesBehindAGatewayChange(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	for id, c := range map[string]struct {
		grpc bool
		call func(*sandbox.Sidecar) call
	}{
		"orders": {false, func(from *sandbox.Sidecar) call { return calling(from, "orders") }},
		"quotes": {true, func(from *sandbox.Sidecar) call { return proxying(dial(t, from), "quotes") }},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			m.apply(t, m.east, export("behind", id, "west"))
			m.apply(t, m.west, selection("behind", "for-"+id, "app: "+id))
			instance := func(name string) *sandbox.Sidecar {
				return m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "behind", ID: id}, GRPC: c.grpc, Instance: name, Args: leavesSlowly})
			}
			first := instance("one")
			from := m.app(t, m.west, "behind", "for-"+id)
			m.leadsTo(t, m.west, "behind/for-"+id, id, "east")

			l := startLoad(t, "instances behind a gateway come and go", c.call(from))
			l.onlyFrom("east one")
			second := instance("two")
			m.ready(t, m.east, 2, id)
			leave(t, first)
			l.onlyFrom("east two")
			instance("three")
			m.ready(t, m.east, 2, id)
			leave(t, second)
			l.onlyFrom("east three")
			gone(t, first, second)
			l.answersFrom("east three")
			l.noneFailed()
		})
	}
}

// ready waits until a cluster's service has so many instances of an app of namespace
// "behind". A sidecar is healthy a moment before.
func (m *mesh) ready(t *testing.T, c *sandbox.Cluster, n int, id string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		d, err := m.explain(t, c, "behind/anyone", id)
		if err == nil && (len(d.Routes) != 1 || d.Routes[0].Ready != n) {
			err = fmt.Errorf("%+v, want %d instances", d, n)
		}
		return err
	})
}

// leavesSlowly are arguments of a sidecar that is told to end while it is called. It serves on for
// so long, where two seconds are the default: a machine may stand still for longer than
// that, and the sidecar has to leave the views of others before it ends.
var leavesSlowly = []string{"--dapr-block-shutdown-duration", "10s"}

// leave tells a sidecar to end, as a user's system does.
func leave(t *testing.T, s *sandbox.Sidecar) {
	t.Helper()
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// gone waits until sidecars have ended.
func gone(t *testing.T, all ...*sandbox.Sidecar) {
	t.Helper()
	for _, s := range all {
		select {
		case <-s.Done():
		case <-time.After(meshtest.Patience):
			t.Fatalf("%s does not end:\n%s", s.Name(), s.Tail(20))
		}
	}
}

func TestNoCallFailsWhileAGatewaysAddressChanges(t *testing.T) {
	t.Parallel()
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
		m.apply(t, m.west, meshtest.Cluster("east", next.address))
		l.uses(next)
		if old != nil {
			l.leaves(old)
		}
		old = next
	}
	l.noneFailed()
}

func TestNoCallFailsWhenOneOfTwoGatewaysDies(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "orders", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders"))
	m.app(t, m.east, "shop", "orders")
	checkout := m.app(t, m.west, "shop", "checkout")
	first, second := newRelay(t, m.east.Gateway), newRelay(t, m.east.Gateway)
	m.apply(t, m.west, meshtest.Cluster("east", first.address))
	answers(t, checkout, "orders", "east")

	l := startLoad(t, "one of two gateways dies", calling(checkout, "orders"))
	l.uses(first)
	m.apply(t, m.west, meshtest.Cluster("east", first.address, second.address))
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
	meshtest.Eventually(l.t, meshtest.Patience, func() error {
		if n := r.connections(); n > 0 {
			return fmt.Errorf("%s: %d connections to %s are left", l.what, n, r.address)
		}
		return nil
	})
	r.kill()
}

// uses waits until calls go through a relay.
func (l *load) uses(r *relay) {
	l.t.Helper()
	meshtest.Eventually(l.t, meshtest.Patience, func() error {
		if r.connections() == 0 {
			return fmt.Errorf("%s: nobody has connected to %s", l.what, r.address)
		}
		return nil
	})
	l.answersFrom("east")
}

// One gateway is all there is, and its whole service goes with it: connections end when
// the gateway has waited for them long enough, and calls under way at that moment can
// fail. What must hold is that nothing is left of it afterwards.
func TestCallsGoOnAfterTheOtherClustersServiceRestarted(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{eastSettings: map[string]any{"gateway": map[string]any{"drainTimeout": "1s"}}})
	m.apply(t, m.east, export("shop", "orders", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders"))
	m.app(t, m.east, "shop", "orders")
	checkout := m.app(t, m.west, "shop", "checkout")
	answers(t, checkout, "orders", "east")

	l := startLoad(t, "the only gateway restarts", calling(checkout, "orders"))
	l.answersFrom("east")
	if err := m.east.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	if err := m.east.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	l.answersFrom("east")
	l.end()
	after := startLoad(t, "after it", calling(checkout, "orders"))
	after.answersFrom("east")
	after.noneFailed()
}
