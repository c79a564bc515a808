package stream

import (
	"context"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// addPeers adds to a decision, for an operator, how the clusters behind it are heard and
// what they say of the app: also those that are no route since they do not export it.
// An app that asks for itself is told of none of this.
func (s *Server) addPeers(ctx context.Context, caller, app catalog.App, d *catalog.Decision) error {
	if d.Outcome == catalog.NotReady {
		return nil
	}
	all, everywhere, err := s.topology.Say(ctx, caller, app)
	if err != nil {
		return err
	}
	for _, says := range all {
		i := slices.IndexFunc(d.Routes, func(r catalog.RouteDecision) bool { return r.Cluster == says.Cluster })
		if i < 0 {
			if !everywhere {
				continue
			}
			i = len(d.Routes)
			d.Routes = append(d.Routes, catalog.RouteDecision{
				Cluster: says.Cluster, Priority: 1, Weight: catalog.DefaultWeight, Reason: "no route: nothing heard from its resolver service yet",
			})
		}
		if says.Heard && !says.Allowed {
			d.Routes[i].Reason = notExported(says, caller, app)
		}
		if s.cfg.Peer != nil {
			d.Routes[i].Peer = s.cfg.Peer(says.Cluster)
		}
	}
	return nil
}

func notExported(says topology.Says, caller, app catalog.App) string {
	if says.Exported {
		return "exports " + app.String() + " to this cluster, but not to " + caller.String()
	}
	return "exports no " + app.String() + " to this cluster"
}
