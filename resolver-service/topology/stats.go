package topology

import (
	"context"
	"maps"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Stats counts what a topology holds.
type Stats struct {
	Apps      int // that this cluster has: running here, or named by an object here
	Instances int // by address: one that several sources know counts once
	Draining  int
	Objects   int
	Exports   int
	Views     int // of apps with a selection
}

func (s *Stats) object(kind catalog.Kind, by int) {
	s.Objects += by
	switch kind {
	case catalog.KindAppEndpoints:
		s.Views += by
	case catalog.KindAppExport:
		s.Exports += by
	}
}

// countApps notes which of the touched apps this cluster has now.
func (g *Graph) countApps(touched map[*node]struct{}) {
	for n := range touched {
		switch has := g.apps[n.app] == n && n.present(); {
		case has && !n.counted:
			g.counts.Apps++
			n.counted = true
		case !has && n.counted:
			g.counts.Apps--
			n.counted = false
		}
	}
}

// Stats counts what the graph holds.
func (g *Graph) Stats() Stats { return g.counts }

// Sources counts the instances that each source names, for status.
func (v Inventory) Sources(ctx context.Context) (instances map[string]int, err error) {
	err = v.t.ask(ctx, func(g *Graph) { instances = maps.Clone(g.owners.sources) })
	return instances, err
}
