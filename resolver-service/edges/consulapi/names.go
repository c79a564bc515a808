package consulapi

import (
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// appOf is the app that a service's name means to the caller: its app-id in the caller's
// own namespace, or app-id.namespace, exactly as they are written.
func (c *caller) appOf(name string) catalog.App {
	id, namespace, ok := strings.Cut(name, ".")
	if !ok {
		namespace = c.app.Namespace
	}
	return catalog.App{Namespace: namespace, ID: id}
}

// nameOf is the service's name for an app.
func (c *caller) nameOf(app catalog.App) string {
	if app.Namespace == c.app.Namespace {
		return app.ID
	}
	return app.ID + "." + app.Namespace
}

// apps are the apps that the caller may see, sorted by the services' names.
func (s *scope) apps() (apps []catalog.App) {
	here := func(app catalog.App) bool { return len(s.server.registry.rosterOf(app).services) > 0 }
	for app, e := range s.view.Entries.All() {
		if e.Name() != e.App {
			continue
		}
		if e.Outcome() == catalog.OK || hasLocal(e) && here(app) {
			apps = append(apps, app)
		}
	}
	if here(s.caller.app) {
		apps = append(apps, s.caller.app)
	}
	slices.SortFunc(apps, func(a, b catalog.App) int { return strings.Compare(s.caller.nameOf(a), s.caller.nameOf(b)) })
	return slices.Compact(apps)
}

func hasLocal(e *catalog.Entry) bool {
	return slices.ContainsFunc(e.Routes, func(r catalog.Route) bool { return r.Local && r.Weight > 0 })
}

// rosterOf is what an app has registered here. Of an app that has registered nothing it is
// always the same, so that answers are known to stand.
func (r *registry) rosterOf(app catalog.App) *roster {
	o := r.known(app)
	if o == nil {
		return noRoster
	}
	all, _ := o.roster.Load()
	return all
}

var noRoster = &roster{}
