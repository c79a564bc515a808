package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// mesh is the three clusters that faults happen to: orders is in east and north, stock in
// west and north, and three apps of west call them.
type mesh struct {
	*lab
	checkout, cart, billing *sandbox.Sidecar
	watch                   *stalls.Watch
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	l := newLab(t, plan{name: "west", replicas: 3}, plan{name: "east"}, plan{name: "north"})
	selections := []string{}
	for _, id := range []string{"checkout", "cart", "billing"} {
		selections = append(selections, usual(id))
	}
	l.west.apply(t, append(selections, export("stock"), export("billing"))...)
	l.east.apply(t, export("orders"), selection("orders", "stock: west north", "billing: west"))
	l.north.apply(t, export("orders"), export("stock"))
	l.run(t, has{l.west, "checkout", 1}, has{l.west, "cart", 1}, has{l.west, "billing", 1}, has{l.west, "stock", 2},
		has{l.east, "orders", 5}, has{l.north, "orders", 2}, has{l.north, "stock", 1})
	return &mesh{
		lab: l, checkout: l.west.sidecars["checkout 1"], cart: l.west.sidecars["cart 1"], billing: l.west.sidecars["billing 1"],
		watch: stalls.Begin(t),
	}
}

// usual is what the apps of west select.
func usual(id string) string { return selection(id, "orders: east north", "stock: local north") }

// steady waits until all is as it was before any fault: orders is answered by east, also
// where traffic ramps back.
func (m *mesh) steady(t *testing.T) {
	t.Helper()
	const row = 20
	for _, s := range m.apps() {
		for id, cluster := range map[string]string{"orders": "east", "stock": "west"} {
			meshtest.Eventually(t, damped, func() error {
				for range row {
					if err := answeredFrom(t, s, id, cluster); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// answeredFrom makes one call and wants it to be answered by a cluster.
func answeredFrom(t *testing.T, from *sandbox.Sidecar, id, cluster string) error {
	ctx, cancel := context.WithTimeout(t.Context(), meshtest.Attempt)
	defer cancel()
	reply, err := from.Invoke(ctx, id, "hello", untraced)
	if err == nil && reply.Cluster != cluster {
		err = fmt.Errorf("%s in %s answers, want %s", id, reply.Cluster, cluster)
	}
	return err
}

func (m *mesh) apps() []*sandbox.Sidecar { return []*sandbox.Sidecar{m.checkout, m.cart, m.billing} }

// toOrders are callers of the app in east and north, and toStock is one of the app in west.
func (m *mesh) toOrders() []*caller { return callers("orders", m.apps()...) }
func (m *mesh) toStock() []*caller  { return callers("stock", m.checkout) }

// The faults happen one after the other to the same clusters, each once all is well again.
func TestFaults(t *testing.T) {
	m := newMesh(t)
	for _, fault := range []struct {
		name string
		test func(*testing.T, *mesh)
	}{
		{"none", noFault},
		{"a local instance is killed", localInstance},
		{"the only local instance is killed", lastInstance},
		{"a remote instance is killed", remoteInstance},
		{"a remote instance stalls", stalledInstance},
		{"a remote instance is slow", slowInstance},
		{"remote instances come and go", comeAndGo},
		{"the resolver service is gone", serviceGone},
		{"the store is down and comes back with changes", storeDown},
		{"all replicas are rolled one by one", rolledReplicas},
		{"gateways are rolled", rolledGateways},
		{"the only service is stopped and started", onlyService},
		{"one of two gateway addresses is dropped", gatewayAddress},
		{"a link is slow and loses packets", badLink},
		{"a link is cut in one direction", split},
		{"a link is cut silently", cutLink},
		{"a link is cut silently, and the lease is long", cutLinkWithLongLease},
		{"a cluster is killed and comes back", killedCluster},
		{"all clusters are dead, and come back", allDead},
	} {
		t.Run(fault.name, func(t *testing.T) {
			m.make(t, fault.test)
			if t.Failed() {
				for _, c := range m.clusters() {
					c.logs(t)
				}
			}
		})
	}
}

// noFault measures what this machine does to calls by itself.
func noFault(t *testing.T, m *mesh) {
	x := m.newTrial(t, "none", deadline, m.toOrders(), m.toStock())
	x.strike(func() error { return nil })
	time.Sleep(3 * time.Second)
	f := x.done("no failed call")
	x.want(f.failed == 0, "%d calls failed", f.failed)
}
