package topology

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// fleet is a cluster with so many apps, each with 10 instances and 20 callees.
func fleet(apps int) Change {
	put := make([]catalog.Object, apps)
	instances := make([]catalog.Instance, 0, 10*apps)
	name := make([]catalog.App, apps)
	for i := range apps {
		name[i] = app(fmt.Sprintf("app-%05d", i))
	}
	for i := range apps {
		endpoints := make([]catalog.Endpoint, 20)
		for j := range endpoints {
			endpoints[j] = catalog.Endpoint{App: name[(i+1+j*37)%apps], Line: int32(8 + j)}
		}
		put[i] = &catalog.AppEndpoints{App: name[i], Endpoints: endpoints}
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

// BenchmarkInstanceChanges measures from an instance's change to its published views.
func BenchmarkInstanceChanges(b *testing.B) {
	for _, apps := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("apps=%d", apps), func(b *testing.B) {
			before := heapSize()
			top := running(b, Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true})
			change := fleet(apps)
			start := time.Now()
			top.must(b, change)
			ready := time.Since(start)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				n := instanceOf(app(fmt.Sprintf("app-%05d", i/2%apps)), i/2%apps, 3)
				n.Draining = i%2 == 0
				top.must(b, Change{Instances: []InstanceChange{{Source: "test", Put: []catalog.Instance{n}}}})
				i++
			}
			b.ReportMetric(float64(ready.Milliseconds()), "ms-to-ready")
			b.ReportMetric(float64(heapSize()-before)/(1<<20), "MiB-heap")
			runtime.KeepAlive(top)
		})
	}
}

func heapSize() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
