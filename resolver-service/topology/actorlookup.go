package topology

import (
	"context"
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// ResolveActor tells where a caller's call of an actor goes, and why. A call within the owner
// cluster is Dapr's own.
func (t *Topology) ResolveActor(ctx context.Context, caller catalog.App, typ string) (d catalog.Decision, err error) {
	var bridge catalog.App
	var lookup bool
	err = t.ask(ctx, func(g *Graph) { d, bridge, lookup = g.actors.decide(caller, typ) })
	if err != nil || !lookup {
		return d, err
	}
	to := catalog.BridgeApp(caller.Namespace, d.Cluster)
	way := t.Resolve(bridge, to)
	d.Routes, d.Gateway, d.Address, d.Revision = way.Routes, way.Gateway, way.Address, way.Revision
	if way.Outcome != catalog.OK {
		d.Outcome, d.Reason = way.Outcome, fmt.Sprintf("cluster %s owns the actor type, and this cluster's bridge %s does not reach %s: %s", d.Cluster, bridge, to, way.Reason)
	}
	return d, nil
}

// decide is the decision as far as objects and leases go. lookup tells whether the bridge's own lookup
// decides the rest.
func (as *actors) decide(caller catalog.App, typ string) (d catalog.Decision, bridge catalog.App, lookup bool) {
	a, bridge := catalog.Actors{Namespace: caller.Namespace, Type: typ}, catalog.BridgeApp(caller.Namespace, as.cfg.Cluster)
	owner, problem := as.ownerOf(a)
	claims := as.claims(a)
	if len(claims) > 0 {
		d.Rule = claims[0].by
	}
	switch n := as.apps[bridge]; {
	case problem == "" && owner == as.cfg.Cluster:
		d.Cluster = owner
		d.Reason = fmt.Sprintf("cluster %s owns the actor type %s; Dapr's placement finds the actor here, without a bridge", owner, typ)
		return d, bridge, false
	case problem == "" && owner == "":
		d.Outcome = catalog.NotFound
		d.Reason = fmt.Sprintf("no object names an owner of the actor type %s; if an app of namespace %s hosts it, Dapr's placement finds the actor here", typ, caller.Namespace)
		return d, bridge, false
	default:
		v := &catalog.ActorView{Namespace: caller.Namespace, Cluster: as.cfg.Cluster}
		if n := as.apps[caller]; n != nil && n.selection != nil && n.selection.Actor(typ) != nil {
			v.Imports = []catalog.ActorImport{as.imported(a, []*node{n})}
			d.Rule += ", " + n.selection.Rule()
		}
		cluster, refusal := v.Lead(true, catalog.Principal{App: caller}, typ)
		switch {
		case problem != "":
			d.Outcome, d.Reason = catalog.Unavailable, problem
		case refusal != nil:
			d.Outcome, d.Reason = refusal.Outcome, refusal.Reason
		case n == nil || len(n.ready) == 0:
			d.Outcome = catalog.Unavailable
			d.Reason = fmt.Sprintf("cluster %s owns the actor type %s, and no bridge runs here: start isthmus actors for namespace %s", cluster, typ, caller.Namespace)
		default:
			d.Cluster = cluster
			d.Reason = fmt.Sprintf("cluster %s owns the actor type %s; the bridge %s passes the call on to %s", cluster, typ, bridge, catalog.BridgeApp(caller.Namespace, cluster))
			return d, bridge, true
		}
		return d, bridge, false
	}
}
