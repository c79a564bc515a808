package answers

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// Lacking are the apps with sidecars that lack one of a cluster's roots, or do not say. roots and
// the result are by cluster; of roots there are the fingerprints. Sidecars that lack nothing cost as
// much as there are different sets of trust anchors.
func (v *Inventory) Lacking(ctx context.Context, roots map[string][]string) map[string][]*v1alpha1.LackingApp {
	all := map[string][]*v1alpha1.LackingApp{}
	lacked := map[string][]string{} // clusters, by the anchors that lack one of their roots
	every := slices.Sorted(maps.Keys(roots))
	apps := map[catalog.App]bool{}
	for _, one := range v.Stream.Sidecars(func(catalog.App) bool { return true }) {
		silent := len(one.Anchors) == 0 && one.Address.IsValid() && !one.PlainText
		anchors := strings.Join(one.Anchors, " ")
		clusters, known := lacked[anchors]
		switch {
		case silent:
			clusters = every
		case !known:
			clusters = slices.DeleteFunc(slices.Clone(every), func(cluster string) bool { return !identity.LacksARoot(one.Anchors, roots[cluster]) })
			lacked[anchors] = clusters
		}
		for _, cluster := range clusters {
			apps[one.App] = true
			some := all[cluster]
			if len(some) == 0 || some[len(some)-1].GetApp().GetNamespace() != one.App.Namespace || some[len(some)-1].GetApp().GetId() != one.App.ID {
				some = append(some, &v1alpha1.LackingApp{App: wire.App(one.App)})
				all[cluster] = some
			}
			last := some[len(some)-1]
			if silent {
				last.Silent++
			} else {
				last.Sidecars++
			}
			last.Meets = last.Meets || one.LeadsTo(cluster)
		}
	}
	exported := map[catalog.App][]string{}
	states, _ := v.Topology.Inventory().AppStates(ctx, slices.Collect(maps.Keys(apps)))
	for _, a := range states {
		exported[a.App] = a.ExportedTo
	}
	for cluster, some := range all {
		for _, a := range some {
			app, _ := wire.ParseApp(a.GetApp())
			a.Exported = check.Exported(exported[app], cluster)
			a.Meets = a.Meets || a.Exported
		}
	}
	return all
}
