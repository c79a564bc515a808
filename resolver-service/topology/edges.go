package topology

import (
	"cmp"
	"context"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Map is the apps, the other clusters, and the views of apps with a selection, as of one moment:
// nodes of a graph whose edges are the views' entries.
type Map struct {
	Cluster  string // this one
	Apps     []MapApp
	Clusters []MapCluster // the others
	Views    []ViewUpdate // of the apps with a selection
}

// MapApp is an app that is known here.
type MapApp struct {
	App        catalog.App
	Here       bool // it runs here, or an object here is about it
	Ready      uint32
	Selection  bool
	ExportedTo []string // see [AppState]
}

// MapCluster is another cluster.
type MapCluster struct {
	Name   string
	Object bool   // there is a Cluster object
	State  string // connected, stale, damped or unheard
}

// Map returns the graph's nodes, sorted, and the views with its edges. A change waits only while
// they are gathered, about 100 ns for each app. The error is that ctx or the topology has ended.
func (t *Topology) Map(ctx context.Context) (m Map, err error) {
	err = t.ask(ctx, func(g *Graph) {
		m.Cluster = g.cfg.Cluster
		for app, n := range g.apps {
			m.Apps = append(m.Apps, MapApp{app, n.present(), uint32(len(n.ready)), n.own != nil, exportedTo(n)})
			if n.view != nil {
				m.Views = append(m.Views, ViewUpdate{app, n.view})
			}
		}
		for name, c := range g.clusters {
			m.Clusters = append(m.Clusters, MapCluster{name, c.object != nil, c.state()})
		}
	})
	slices.SortFunc(m.Apps, func(a, b MapApp) int { return a.App.Compare(b.App) })
	slices.SortFunc(m.Views, func(a, b ViewUpdate) int { return a.App.Compare(b.App) })
	slices.SortFunc(m.Clusters, func(a, b MapCluster) int { return cmp.Compare(a.Name, b.Name) })
	return m, err
}

func (c *cluster) state() string {
	switch {
	case !c.heard:
		return "unheard"
	case c.damped:
		return "damped"
	case c.lapsed:
		return "stale"
	}
	return "connected"
}
