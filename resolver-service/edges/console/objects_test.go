package console_test

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// The apps of the worlds, in two namespaces. The last of each is one that nothing is known of.
var (
	apps    = append(appsIn("shop", 6), appsIn("bank", 6)...)
	unknown = []catalog.App{{Namespace: "shop", ID: "ghost"}, {Namespace: "bank", ID: "ghost"}}
	asked   = append(append([]catalog.App{}, apps...), unknown...)
)

func appsIn(namespace string, n int) (all []catalog.App) {
	for i := range n {
		all = append(all, catalog.App{Namespace: namespace, ID: fmt.Sprintf("app-%d", i)})
	}
	return all
}

// populate writes instances, exports and, in west, selections, and waits until west knows what others export.
func (w *world) populate() {
	w.t.Helper()
	ready, running := map[*cluster]uint32{}, map[*cluster]int{} // exports to west, and instances
	for i, c := range []*cluster{w.west, w.east, w.north} {
		var objects []catalog.Object
		for j, app := range apps {
			instances := one(w, []int{0, 1, 1, 2, 3})
			running[c] += instances
			for n := range instances {
				objects = append(objects, &catalog.AppInstance{
					Namespace: app.Namespace, Name: fmt.Sprintf("%s-%d", app.ID, n), App: app.ID,
					Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j), byte(n + 1)}), 50002),
				})
			}
			if w.chance(80) {
				e := w.export(app)
				objects = append(objects, e)
				if instances > 0 && slices.ContainsFunc(e.Allow, func(a catalog.Allow) bool { return a.Cluster == "*" || a.Cluster == "west" }) {
					ready[c]++
				}
			}
			if c == w.west && w.chance(75) {
				objects = append(objects, w.selection(app))
			}
		}
		c.apply(objects...)
	}
	for _, c := range []*cluster{w.east, w.north} {
		w.west.hears(c, "connected")
		c.hears(w.west, "connected")
		w.west.within("what is ready in "+c.name, func() bool {
			imported := uint32(0) // by the topology, which hears of it after the link
			stream, err := v1alpha1.NewInventoryClient(w.west.conn).Apps(w.t.Context(), &v1alpha1.AppsRequest{})
			err = receive(stream, err, func(m *v1alpha1.AppsResponse) {
				for _, a := range m.GetApps() {
					if slices.ContainsFunc(a.GetImports(), func(i *v1alpha1.ExportState) bool { return i.GetCluster() == c.name && i.GetReady() > 0 }) {
						imported++
					}
				}
			})
			return err == nil && imported == ready[c]
		})
	}
	w.west.within("its own instances", func() bool { return int(w.west.status().GetInstances()) == running[w.west] })
}

// selection is a random AppEndpoints of an app, or of a default.
func (w *world) selection(app catalog.App) *catalog.AppEndpoints {
	s := &catalog.AppEndpoints{App: app}
	for _, callee := range asked {
		if callee != app && w.chance(60) {
			s.Endpoints = append(s.Endpoints, w.endpoint(callee))
		}
	}
	if len(s.Endpoints) == 0 {
		s.Endpoints = append(s.Endpoints, w.endpoint(unknown[0]))
	}
	return s
}

func (w *world) endpoint(callee catalog.App) catalog.Endpoint {
	e := catalog.Endpoint{App: callee}
	if w.chance(40) {
		e.WhenStale = catalog.Serve
	}
	if w.chance(30) {
		return e // every cluster that has it
	}
	for _, to := range []string{catalog.LocalCluster, "east", "north", "nowhere"} {
		if w.chance(70) && to != "nowhere" || w.chance(10) {
			e.Routes = append(e.Routes, catalog.RouteSpec{Cluster: to, Priority: one(w, []uint32{0, 0, 1}), Weight: one(w, []uint32{0, 1, 1, 2, 30})})
		}
	}
	if len(e.Routes) > 0 {
		e.Routes[0].Weight = max(e.Routes[0].Weight, 1) // all of 0 are refused
	}
	return e
}

func (w *world) export(app catalog.App) *catalog.AppExport {
	e := &catalog.AppExport{App: app, Allow: []catalog.Allow{{Cluster: one(w, []string{"*", "*", "*", "west", "east"})}}}
	if w.chance(30) {
		e.Allow = append(e.Allow, catalog.Allow{Cluster: one(w, []string{"west", "east"}), Namespace: one(w, []string{"shop", "bank"}), App: one(w, apps).ID})
	}
	return e
}

// settled is how long a service has to run until what comes back takes its traffic slowly: before that,
// it does not know what was there all along.
const settled = 6 * time.Second

// troubles makes east one that has come back and takes its traffic slowly, and north one that is gone.
func (w *world) troubles() {
	w.t.Helper()
	time.Sleep(time.Until(w.began.Add(settled)))
	w.east.stop()
	w.west.hears(w.east, "stale")
	w.east.start()
	w.west.hears(w.east, "connected")
	w.north.stop()
	w.west.hears(w.north, "stale")
}
