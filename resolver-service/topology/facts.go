package topology

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Facts are what the topology knows of apps and clusters, to check objects against. They are
// valid only during the call that gets them.
type Facts struct{ g *Graph }

// Inspect calls f with what would be known after a change of objects, without making it. f runs
// in the topology's own goroutine, so it has to be quick. ErrNotSynced is its error before the
// store's full set has arrived.
func (t *Topology) Inspect(ctx context.Context, c ObjectChange, f func(Facts)) error {
	var err error
	if askErr := t.ask(ctx, func(g *Graph) { err = g.Inspect(c, f) }); askErr != nil {
		return askErr
	}
	return err
}

// Inspect is [Topology.Inspect] for the owner of the graph.
func (g *Graph) Inspect(c ObjectChange, f func(Facts)) error {
	return g.tryThen(c, func(*saved, *Update) { f(Facts{g}) })
}

// Cluster is the name of the topology's own cluster.
func (f Facts) Cluster() string { return f.g.cfg.Cluster }

// Objects are all objects, in no order.
func (f Facts) Objects() iter.Seq[catalog.Object] { return maps.Values(f.g.selections.objects) }

// Runs tells whether the app has instances in this cluster, ready or not.
func (f Facts) Runs(app catalog.App) bool {
	n := f.g.apps[app]
	return n != nil && len(n.instances) > 0
}

// Instances is how many instances of an app are known in a cluster, which may be this one. Of those
// here that are not ready it counts all, and of others those that drain.
func (f Facts) Instances(cluster string, app catalog.App) int {
	n := f.g.apps[app]
	switch {
	case n == nil:
		return 0
	case f.g.isHere(cluster):
		return len(n.instances)
	}
	if export := n.remote.of(cluster); export != nil {
		return int(export.Ready) + int(export.Draining)
	}
	return 0
}

// Versions are those of an app's instances that are ready in a cluster, which may be this one. They
// are known of instances here, and of apps that a cluster exports to this one.
func (f Facts) Versions(cluster string, app catalog.App) (running *catalog.Labels, known bool) {
	n := f.g.apps[app]
	switch {
	case n == nil:
		return nil, false
	case f.g.isHere(cluster):
		return n.versions, len(n.ready) > 0
	}
	export := n.remote.of(cluster)
	if export == nil {
		return nil, false
	}
	return export.Versions, export.Ready > 0
}

// ConsulAPI is the source of sidecars that register by Consul's API, as Dapr's own do.
const ConsulAPI = "consulapi"

// Stock tells whether the app seems to have Dapr's own sidecars: it runs here, and none of them has
// registered by a stream. Of what a platform runs nobody knows.
func (f Facts) Stock(app catalog.App) bool {
	n := f.g.apps[app]
	return n != nil && len(n.instances) > 0 && !slices.ContainsFunc(n.instances, func(i instance) bool {
		return i.rank != Written && i.rank != Listed && i.origin.Value().source != ConsulAPI
	})
}

// Refuses tells whether an endpoint leads a caller to an app that runs here and whose guard refuses
// it, since the app is of another namespace and does not consent.
func (f Facts) Refuses(e *catalog.Endpoint, caller catalog.App) bool {
	as := f.g.accesses
	return as.cfg.Guard != catalog.GuardOff && f.Runs(e.App) && !f.Stock(e.App) && as.leadsHere(e) && !as.consents(e.App, caller)
}

// Apps are those that run here, and those that other clusters export, in no order.
func (f Facts) Apps() iter.Seq[catalog.App] {
	return func(yield func(catalog.App) bool) {
		for app := range f.g.offeredApps("") {
			if !yield(app) {
				return
			}
		}
		for app, n := range f.g.apps {
			if (len(n.instances) > 0 || len(f.Exporters(app)) > 0) && !yield(app) {
				return
			}
		}
	}
}

// Clusters are the names of all Cluster objects, in no order.
func (f Facts) Clusters() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, c := range f.g.clusters {
			if c.object != nil && !yield(name) {
				return
			}
		}
	}
}

// HasCluster tells whether a Cluster object has the name.
func (f Facts) HasCluster(name string) bool {
	c := f.g.clusters[name]
	return c != nil && c.object != nil
}

// Heard tells whether a cluster has named its exports.
func (f Facts) Heard(cluster string) bool {
	c := f.g.clusters[cluster]
	return c != nil && c.heard
}

// Exports tells whether a cluster exports an app to this one, and whether to the caller.
func (f Facts) Exports(cluster string, app, caller catalog.App) (exported, allowed bool) {
	all := f.g.remotesOf(app)
	export := all.of(cluster)
	return export != nil, export != nil && export.allows(f.g.cfg.Cluster, caller)
}

// Guest tells whether a cluster is a guest, which no route leads to.
func (f Facts) Guest(cluster string) bool { return f.g.clusters[cluster].guest() != nil }

// MayCall tells whether the selection of an app, or its default, holds another one.
func (f Facts) MayCall(caller, callee catalog.App) bool {
	from, to := f.g.apps[caller], f.g.apps[callee]
	if from == nil || from.selection == nil {
		return f.g.cfg.Open && (from != nil || f.g.defaults.follow(caller) == nil)
	}
	if to == nil {
		return false
	}
	_, ok := to.callers[from]
	return ok
}

// TakenBefore is the guest that takes the same calls as another one, and comes first; empty for none.
func (f Facts) TakenBefore(guest string, take catalog.Take) string {
	if n := f.g.apps[take.App]; n != nil {
		for _, t := range n.takes {
			if t.Take == take {
				if t.name != guest {
					return t.name
				}
				return ""
			}
		}
	}
	return ""
}

// Exporters are the clusters that export an app to this one, without guests.
func (f Facts) Exporters(app catalog.App) []string {
	var names []string
	for _, remote := range f.g.remotesOf(app) {
		if !f.Guest(remote.cluster) {
			names = append(names, remote.cluster)
		}
	}
	return names
}
