package harness

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Fleet is a cluster with so many apps, each with so many instances and, in its
// selection, so many callees.
type Fleet struct {
	Apps      int
	Instances int
	Callees   int // 0 for apps without a selection

	// Popular is how many apps have app 0 in their selection beside their callees.
	Popular int
}

// Namespace is that of every app in a fleet.
const Namespace = "shop"

// App is the i-th app.
func App(i int) catalog.App { return catalog.App{Namespace: Namespace, ID: fmt.Sprintf("app-%05d", i)} }

// Port is where every instance listens.
const Port = 50002

// Instance is the j-th instance of the i-th app, with its address for an ID, as
// sidecars have it.
func Instance(i, j int) catalog.Instance {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)}), Port)
	return catalog.Instance{ID: address.String(), App: App(i), Address: address}
}

// stride spreads the callees of an app over the fleet. It has no divisor in common with
// the sizes that are measured, so no app has a callee twice.
const stride = 37

// Objects are the selections of all apps.
func (f Fleet) Objects() []catalog.Object {
	if f.Callees == 0 {
		return nil
	}
	objects := make([]catalog.Object, f.Apps)
	for i := range objects {
		endpoints := make([]catalog.Endpoint, 0, f.Callees+1)
		called := false
		for j := range f.Callees {
			callee := (i + 1 + j*stride) % f.Apps
			called = called || callee == 0
			endpoints = append(endpoints, catalog.Endpoint{App: App(callee), Line: int32(8 + j)})
		}
		if i > 0 && i <= f.Popular && !called {
			endpoints = append(endpoints, catalog.Endpoint{App: App(0), Line: int32(8 + f.Callees)})
		}
		objects[i] = &catalog.AppEndpoints{App: App(i), Endpoints: endpoints}
	}
	return objects
}

// Full is all that a topology has, as it is told of it.
func Full(objects []catalog.Object, instances []catalog.Instance) topology.Change {
	c := Put(instances...)
	c.Objects = &topology.ObjectChange{Full: true, Put: objects}
	return c
}

// Put tells a topology of instances.
func Put(instances ...catalog.Instance) topology.Change {
	return topology.Change{Instances: []topology.InstanceChange{{Source: "bench", Put: instances}}}
}

// Flip makes an instance leave, when n is even, or come back.
func Flip(i catalog.Instance, n int) topology.Change {
	i.Draining = n%2 == 0
	return Put(i)
}

// Apply tells a topology of a change, and waits until its views are published.
func Apply(ctx context.Context, t *topology.Topology, c topology.Change) { Must(t.Apply(ctx, c)) }

// Write writes objects into a store.
func Write(ctx context.Context, store configstore.Writer, objects []catalog.Object) {
	writes := make([]configstore.Write, len(objects))
	for i := range objects {
		writes[i].Object = objects[i]
	}
	Must(store.Write(ctx, writes...))
}
