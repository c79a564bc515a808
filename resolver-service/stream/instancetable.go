package stream

import (
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// instanceTable has the instances of each app, sorted by ID. It is immutable, so that it can be
// written to disk while the next one is made.
type instanceTable = catalog.Table[[]catalog.Instance]

// withChange returns a table with a change applied.
func withChange(before instanceTable, change *topology.InstanceChange) instanceTable {
	fresh := map[catalog.App][]catalog.Instance{}
	of := func(app catalog.App) []catalog.Instance {
		if list, ok := fresh[app]; ok {
			return list
		}
		list, _ := before.Get(app)
		return slices.Clone(list)
	}
	for _, key := range change.Delete {
		list := of(key.App)
		if at, found := find(list, key.ID); found {
			list = slices.Delete(list, at, at+1)
		}
		fresh[key.App] = list
	}
	for _, i := range change.Put {
		list := of(i.App)
		if at, found := find(list, i.ID); found {
			list[at] = i
		} else {
			list = slices.Insert(list, at, i)
		}
		fresh[i.App] = list
	}
	edits := make([]catalog.Edit[[]catalog.Instance], 0, len(fresh))
	for app, list := range fresh {
		// Cloned to free spare capacity: there are many of these lists.
		edits = append(edits, catalog.Edit[[]catalog.Instance]{App: app, Value: slices.Clone(list), Remove: len(list) == 0})
	}
	return before.With(edits...)
}

func find(list []catalog.Instance, id string) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(i catalog.Instance, id string) int { return strings.Compare(i.ID, id) })
}
