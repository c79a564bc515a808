package topology

import (
	"context"
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// ResolveFrom tells how a caller in another cluster is served here: whether this cluster exports
// the app to it, and whether the gateway leads to an instance. What the caller's own cluster does
// with that, only that cluster can tell. The error is that ctx or the topology has ended.
func (t *Topology) ResolveFrom(ctx context.Context, cluster string, caller, app catalog.App) (d catalog.Decision, err error) {
	err = t.ask(ctx, func(g *Graph) { d = g.resolveFrom(cluster, caller, app) })
	return d, err
}

func (g *Graph) resolveFrom(cluster string, caller, app catalog.App) catalog.Decision {
	d := catalog.Decision{Outcome: catalog.Denied, Revision: g.revision}
	n := g.apps[app]
	switch {
	case !g.synced:
		d.Outcome, d.Reason = catalog.NotReady, "the config store's full set has not arrived yet"
		return d
	case cluster == g.cfg.Cluster:
		d.Reason = fmt.Sprintf("%s is this cluster; ask without it", cluster)
		return d
	case n != nil && g.clusters[cluster].guest() != nil:
		d.Rule = catalog.Key{Kind: catalog.KindCluster, Name: cluster}.String() + ", spec.guest"
		if !catalog.Allowed(g.guestCallers(n, g.clusters[cluster]), cluster, caller) {
			d.Reason = fmt.Sprintf("%s is a guest, and %s is no app of it whose selection here leads to %s in this cluster", cluster, caller, app)
			return d
		}
	case n == nil || n.export == nil || !g.exported(n):
		d.Reason = fmt.Sprintf("no AppExport %s: this cluster exports the app to nobody", app)
		return d
	}
	if d.Rule == "" {
		d.Rule = n.export.Source.Of(n.export.Key())
		if !catalog.Allowed(n.export.Allow, cluster, caller) {
			d.Reason = fmt.Sprintf("the AppExport does not allow %s of %s; add {cluster: %s, namespace: %s, app: %s} to its spec.allow", caller, cluster, cluster, caller.Namespace, caller.ID)
			return d
		}
	}
	ready := g.exports.exportable(n)
	d.Routes = []catalog.RouteDecision{{RouteSpec: catalog.RouteSpec{Cluster: g.cfg.Cluster, Weight: catalog.DefaultWeight}, Ready: len(ready), Draining: int(n.draining)}}
	d.Cluster, d.Gateway = g.cfg.Cluster, g.cfg.Domain.Host(app, g.cfg.Cluster)
	route := &d.Routes[0]
	if len(ready) == 0 {
		d.Outcome = catalog.Unavailable
		d.Reason = fmt.Sprintf("exported to the caller, but no instance of %s here may be called through the gateway", app)
		route.Reason = "no instance"
		if kept := g.exports.keptOf(app); kept.Count > 0 {
			route.Reason = "not exported: " + kept.String()
		}
		return d
	}
	d.Outcome, d.Address, route.Taken, route.Share = catalog.OK, ready[0], true, 100
	route.Reason = fmt.Sprintf("%d ready", len(ready))
	d.Reason = fmt.Sprintf("exported to the caller; the gateway leads %s to %d ready", d.Gateway, len(ready))
	if c := g.clusters[cluster]; c == nil || c.object == nil {
		d.Notes = append(d.Notes, fmt.Sprintf("no Cluster object %s here: unless identity is insecure, its resolver service is refused and learns of no export", cluster))
	}
	return d
}
