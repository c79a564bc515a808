package main

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// ours is the cluster whose service is measured, and elsewhere one that is not there.
const (
	ours      = "west"
	elsewhere = "elsewhere"
	namespace = "shop"
	source    = "bench"
)

// exports is how many apps each cluster exports to each other one: a multiple of callees.
var exports = 1000

func peerName(i int) string { return fmt.Sprintf("peer-%03d", i) }

// appOf is the i-th app of a cluster.
func appOf(cluster string, i int) catalog.App {
	return catalog.App{Namespace: namespace, ID: fmt.Sprintf("%s-app-%05d", cluster, i)}
}

// watcher is the app whose sidecar sees the changes.
var watcher = catalog.App{Namespace: namespace, ID: "watcher"}

// caller is the i-th of the apps that may call all that the first peer exports, each so
// many of them.
func caller(i int) catalog.App {
	return catalog.App{Namespace: namespace, ID: fmt.Sprintf("caller-%02d", i)}
}

const callees = 20

// instance is the one instance of the i-th app of a cluster.
func instance(cluster string, i int, draining bool) catalog.Instance {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 50002)
	return catalog.Instance{ID: address.String(), App: appOf(cluster, i), Address: address, Draining: draining}
}

// flip makes the i-th app of a cluster ready or not.
func flip(cluster string, i int, ready bool) topology.Change {
	return topology.Change{Instances: []topology.InstanceChange{{Source: source, Put: []catalog.Instance{instance(cluster, i, !ready)}}}}
}

// fill is a cluster with apps that it exports: the first of them to one cluster, "*" for
// all, and so many others to one that is not there.
func fill(cluster, to string, others int, more ...catalog.Object) topology.Change {
	objects := &topology.ObjectChange{Full: true, Put: more}
	instances := topology.InstanceChange{Source: source}
	for i := range exports + others {
		allow := catalog.Allow{Cluster: to, Namespace: namespace}
		if i >= exports {
			allow.Cluster = elsewhere
		}
		objects.Put = append(objects.Put, &catalog.AppExport{App: appOf(cluster, i), Allow: []catalog.Allow{allow}})
		instances.Put = append(instances.Put, instance(cluster, i, false))
	}
	return topology.Change{Objects: objects, Instances: []topology.InstanceChange{instances}}
}
