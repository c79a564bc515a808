package topology

import (
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// fleet is a cluster with so many apps, each with 10 instances and so many callees. So many have app 0
// in their selection beside those.
func fleet(apps, callees, popular int) Change {
	var put []catalog.Object
	instances := make([]catalog.Instance, 0, 10*apps)
	name := make([]catalog.App, apps)
	for i := range apps {
		name[i] = app(fmt.Sprintf("app-%05d", i))
	}
	for i := range apps {
		endpoints := make([]catalog.Endpoint, callees, callees+1)
		for j := range endpoints {
			endpoints[j] = catalog.Endpoint{App: name[(i+1+j*37)%apps], Line: int32(8 + j)}
		}
		if i > 0 && i <= popular && !slices.ContainsFunc(endpoints, func(e catalog.Endpoint) bool { return e.App == name[0] }) {
			endpoints = append(endpoints, catalog.Endpoint{App: name[0], Line: int32(8 + callees)})
		}
		if callees > 0 {
			put = append(put, &catalog.AppEndpoints{App: name[i], Endpoints: endpoints})
		}
		for j := range 10 {
			instances = append(instances, instanceOf(name[i], i, j))
		}
	}
	return Change{Objects: &ObjectChange{Full: true, Put: put}, Instances: []InstanceChange{{Source: "test", Put: instances}}}
}

func instanceOf(a catalog.App, i, j int) catalog.Instance {
	address := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)})
	return catalog.Instance{ID: fmt.Sprintf("%s-%d", a.ID, j), App: a, Address: netip.AddrPortFrom(address, 50002)}
}

// BenchmarkInstanceChanges measures from an instance's change to its published views: by the size of the
// cluster, with and without selections, and then by how many apps may call the changed one. What it
// costs must follow what it reaches, and not how large the cluster is.
func BenchmarkInstanceChanges(b *testing.B) {
	sizes := []int{100, 1_000, 10_000}
	for _, callees := range []int{20, 0} {
		for _, apps := range sizes {
			b.Run(fmt.Sprintf("apps=%d,callees=%d", apps, callees), func(b *testing.B) { instanceChanges(b, apps, callees, 0) })
		}
	}
	for _, popular := range []int{100, 1_000, 9_999} {
		b.Run(fmt.Sprintf("callers=%d", popular), func(b *testing.B) { instanceChanges(b, sizes[len(sizes)-1], 20, popular) })
	}
}

func instanceChanges(b *testing.B, apps, callees, popular int) {
	before := heapSize()
	cfg := Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}
	top, all := running(b, cfg), fleet(apps, callees, popular)
	start := time.Now()
	top.must(b, all)
	ready := time.Since(start)
	all = Change{}
	heap := heapSize() - before
	change := func(n int) Change {
		i := 0 // the app that many may call
		if popular == 0 {
			i = n / 2 % apps
		}
		one := instanceOf(app(fmt.Sprintf("app-%05d", i)), i, 3)
		one.Draining = n%2 == 0
		return Change{Instances: []InstanceChange{{Source: "test", Put: []catalog.Instance{one}}}}
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		top.must(b, change(len(took)))
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(heap)/(1<<20), "MiB-heap")
	b.ReportMetric(float64(ready.Microseconds())/1e3, "ms-to-ready")
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
	runtime.KeepAlive(top)
	g, views := NewGraph(cfg), 0 // which makes the same views
	g.Apply(fleet(apps, callees, popular))
	for n := range 10 {
		u := g.Apply(change(n))[0]
		if views += len(u.Views); u.Open != nil {
			views++
		}
	}
	b.ReportMetric(float64(views)/10, "views")
}

func heapSize() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
