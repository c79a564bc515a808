package analysis

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// appNames finds the app that is meant by a name that nobody has. A cluster may have many apps, and
// objects many wrong names, so it sorts the apps once and remembers its answers.
type appNames struct {
	apps  []catalog.App
	byID  map[string][]catalog.App    // sorted
	ids   map[string][]string         // by namespace, sorted; under "" those of all
	found map[catalog.App]catalog.App // answers
}

// nearest is an app with the same app-id in another namespace, or one with a similar app-id in the
// same; empty for none, and for the name of an app. An app without a namespace may be in any.
func (n *appNames) nearest(app catalog.App) catalog.App {
	if n.found == nil {
		n.sort()
	}
	near, known := n.found[app]
	if !known {
		near = n.search(app)
		n.found[app] = near
	}
	return near
}

func (n *appNames) sort() {
	n.byID, n.ids, n.found = map[string][]catalog.App{}, map[string][]string{}, map[catalog.App]catalog.App{}
	slices.SortFunc(n.apps, catalog.App.Compare)
	for _, app := range n.apps {
		n.byID[app.ID] = append(n.byID[app.ID], app)
		n.ids[app.Namespace] = append(n.ids[app.Namespace], app.ID)
		n.ids[""] = append(n.ids[""], app.ID)
	}
	slices.Sort(n.ids[""])
	n.ids[""] = slices.Compact(n.ids[""])
}

func (n *appNames) search(app catalog.App) catalog.App {
	if same := n.byID[app.ID]; len(same) > 0 {
		if slices.Contains(same, app) {
			return catalog.App{} // it is no mistake: another cluster has it
		}
		return same[len(same)-1]
	}
	id := strict.Nearest(app.ID, n.ids[app.Namespace])
	switch {
	case id == "":
		return catalog.App{}
	case app.Namespace == "":
		return n.byID[id][0]
	}
	return catalog.App{Namespace: app.Namespace, ID: id}
}
