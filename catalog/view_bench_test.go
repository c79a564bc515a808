package catalog

import (
	"fmt"
	"testing"
)

func benchView(callees, instances int) (*View, []App) {
	var edits []Edit[*Entry]
	var apps []App
	for i := range callees {
		app := App{"shop", fmt.Sprintf("app-%05d", i)}
		apps = append(apps, app)
		var addresses []string
		for j := range instances {
			addresses = append(addresses, fmt.Sprintf("10.1.%d.%d:50002", i%250, j))
		}
		edits = append(edits, Edit[*Entry]{App: app, Value: NewEntry(app, Rule{}, []Route{{RouteSpec: RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: uint32(instances), Addresses: addresses}})})
	}
	return &View{Entries: Table[*Entry]{}.With(edits...)}, apps
}

func BenchmarkResolve(b *testing.B) {
	for _, size := range [][2]int{{10, 1}, {10, 10}, {10_000, 10}} {
		v, apps := benchView(size[0], size[1])
		b.Run(fmt.Sprintf("callees=%d/instances=%d/serial", size[0], size[1]), func(b *testing.B) {
			b.ReportAllocs()
			a := apps[len(apps)/2]
			for b.Loop() {
				if _, err := resolve(v, a); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("callees=%d/instances=%d/spread", size[0], size[1]), func(b *testing.B) {
			i := 0
			for b.Loop() {
				if i++; i == len(apps) {
					i = 0
				}
				if _, err := resolve(v, apps[i]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("callees=%d/instances=%d/parallel", size[0], size[1]), func(b *testing.B) {
			a := apps[len(apps)/2]
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := resolve(v, a); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
	m := map[App]int{}
	ms := map[string]int{}
	_, apps := benchView(10000, 1)
	for i, a := range apps {
		m[a] = i
		ms[a.ID] = i
	}
	b.Run("map/app", func(b *testing.B) {
		a := apps[5000]
		for b.Loop() {
			_ = m[a]
		}
	})
	b.Run("map/string", func(b *testing.B) {
		a := apps[5000]
		for b.Loop() {
			_ = ms[a.ID]
		}
	})
}
