package answers

import (
	"context"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// Lacking are the apps with sidecars that lack one of a cluster's roots, or do not say.
func (v *Inventory) Lacking(ctx context.Context, cluster string, roots []string) (all []*v1alpha1.LackingApp) {
	exported := map[catalog.App][]string{}
	_ = v.everyApp(ctx, func(some []*v1alpha1.AppState) error {
		for _, a := range some {
			app, err := wire.ParseApp(a.GetApp())
			if err == nil {
				exported[app] = a.GetExportedTo()
			}
		}
		return nil
	})
	var last *v1alpha1.LackingApp
	for _, one := range v.Stream.Sidecars(func(catalog.App) bool { return true }) {
		silent := len(one.Anchors) == 0 && one.Address.IsValid() && !one.PlainText
		if !silent && !identity.LacksARoot(one.Anchors, roots) {
			continue
		}
		if last == nil || last.GetApp().GetNamespace() != one.App.Namespace || last.GetApp().GetId() != one.App.ID {
			last = &v1alpha1.LackingApp{App: wire.App(one.App)}
			all = append(all, last)
		}
		if silent {
			last.Silent++
		} else {
			last.Sidecars++
		}
		last.Exported = check.Exported(exported[one.App], cluster)
		last.Meets = last.Meets || last.Exported || one.LeadsTo(cluster)
	}
	return all
}
