package topology

import (
	"cmp"
	"context"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Says is what one other cluster says of an app. It is for operators: a caller is not
// told more than that its lookup is refused.
type Says struct {
	Cluster  string
	Heard    bool // it has said what it exports
	Exported bool // the app, to this cluster
	Allowed  bool // and to the caller
}

// Say tells what each cluster that has a Cluster object says of an app to a caller, by
// the clusters' names. everywhere tells whether the caller's selection holds the app
// without routes, so that every cluster that exports it is one.
func (t *Topology) Say(ctx context.Context, caller, app catalog.App) (all []Says, everywhere bool, err error) {
	err = t.ask(ctx, func(g *Graph) { all, everywhere = g.say(caller, app), g.everywhere(caller, app) })
	return all, everywhere, err
}

func (g *Graph) say(caller, app catalog.App) []Says {
	var all []Says
	n := g.apps[app]
	for name, c := range g.clusters {
		if c.object == nil || name == g.cfg.Cluster {
			continue
		}
		s := Says{Cluster: name, Heard: c.heard}
		if n != nil {
			if export := n.remote.of(name); export != nil {
				s.Exported, s.Allowed = true, catalog.Allowed(export.Allow, g.cfg.Cluster, caller)
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Says) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

func (g *Graph) everywhere(caller, app catalog.App) bool {
	n := g.apps[caller]
	if n == nil || n.selection == nil || caller == app {
		return false
	}
	return slices.ContainsFunc(n.selection.Endpoints, func(e catalog.Endpoint) bool {
		return e.App == app && len(e.Routes) == 0
	})
}
