package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// addOperatorDetails adds details for operators to a decision: the links to the clusters behind
// it, why a cluster is no route since it does not export the app, addresses that belong to another
// app, and a guard that refuses the caller. An app that asks for itself gets none of this.
func (s *Server) addOperatorDetails(ctx context.Context, caller, app catalog.App, d *catalog.Decision) error {
	if d.Outcome == catalog.NotReady {
		return nil
	}
	report, err := s.topology.Inventory().Report(ctx, caller, app)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(d.Routes, func(r catalog.RouteDecision) bool { return r.Cluster == report.Own }); i >= 0 {
		d.Routes[i].Reason += takenText(report.Taken) + keptText("not exported", &report.Kept)
		if caller != app && d.Outcome == catalog.OK && d.Routes[i].Share > 0 {
			d.Notes = append(d.Notes, guardNotes(caller, &report.Callee)...)
		}
	}
	for _, cluster := range report.Clusters {
		i := slices.IndexFunc(d.Routes, func(r catalog.RouteDecision) bool { return r.Cluster == cluster.Cluster })
		if i < 0 {
			if !report.Everywhere || cluster.Guest {
				continue
			}
			i = len(d.Routes)
			d.Routes = append(d.Routes, catalog.RouteDecision{
				RouteSpec: catalog.RouteSpec{Cluster: cluster.Cluster, Priority: 1, Weight: catalog.DefaultWeight}, Reason: "no route: nothing heard from its resolver service yet",
			})
		}
		if cluster.Heard && !cluster.Allowed && !cluster.Guest {
			d.Routes[i].Reason = notExported(cluster, caller, app)
		}
		d.Routes[i].Reason += keptText("not called without a gateway", &cluster.Refused)
		if s.cfg.Peer != nil {
			d.Routes[i].Peer = s.cfg.Peer(cluster.Cluster)
		}
		if cluster.Allowed && !cluster.Direct && !cluster.Guest {
			d.Routes[i].Unnamed = unnamed(cluster, report.Unnamed)
		}
	}
	for i := range d.Routes {
		if r := &d.Routes[i]; r.Taken || r.Share > 0 {
			r.Fault = s.fault(caller, app, r.Cluster, r.Cluster == report.Own)
			if slices.ContainsFunc(report.Clusters, func(c topology.ClusterReport) bool { return c.Cluster == r.Cluster && c.Shut }) {
				r.Fault = "no address is known at which callers here reach this cluster's own gateway, which leads there; write gateway.internal into isthmus.yaml"
			}
		}
	}
	return nil
}

// guardNotes tell of a callee's guard that refuses a caller of this cluster.
func guardNotes(caller catalog.App, callee *topology.Callee) []string {
	lacks, does := callee.Lacks(caller), "refuses the call"
	switch mode := callee.Access.Mode; {
	case lacks == "" || mode == catalog.GuardOff:
		return nil
	case mode == catalog.GuardObserve:
		does = "lets the call in while it observes, and would refuse it"
	}
	return []string{fmt.Sprintf("the guard of %s %s: %s", callee.App, does, lacks)}
}

// unnamed says how callers without a server name reach the app, such as those of Dapr's resolver
// kubernetes. If no names are answered for those callers, it does so only if the app has a
// gateway of its own.
func unnamed(cluster topology.ClusterReport, answered bool) string {
	switch {
	case len(cluster.Gateways) > 0:
		return "by " + strings.Join(cluster.Gateways, ", ") + sharedGatewayText(cluster.Shared)
	case answered:
		return "refused: the Cluster object lists no gateway for this app alone"
	default:
		return ""
	}
}

func sharedGatewayText(all []topology.SharedGateway) (text string) {
	for i, d := range all {
		if i == maxListed {
			return text + fmt.Sprintf("; %d more", len(all)-i)
		}
		whose := "all apps"
		if d.App != (catalog.App{}) {
			whose = d.App.String()
		}
		text += fmt.Sprintf("; the Cluster object %s has %s for %s, and it leads to one app of one cluster: correct spec.gateways of one of the two", d.Cluster, d.Address, whose)
	}
	return text
}

func notExported(cluster topology.ClusterReport, caller, app catalog.App) string {
	if cluster.Exported {
		return "exports " + app.String() + " to this cluster, but not to " + caller.String()
	}
	return "exports no " + app.String() + " to this cluster"
}

// maxListed is how many addresses a text lists.
const maxListed = 3

// keptText says which addresses the rules exclude from something, and why.
func keptText(what string, kept *topology.Kept) string {
	if kept.Count == 0 {
		return ""
	}
	return "; " + what + ": " + kept.String()
}

// takenText says which instances don't count, since their address belongs to another app.
func takenText(taken []topology.Taken) string {
	var b strings.Builder
	for i, t := range taken {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more like that", len(taken)-i)
			break
		}
		fmt.Fprintf(&b, "; %s, where %s has an instance, is that of %s by now, says %s", t.Address, t.Source, t.By, t.From)
	}
	return b.String()
}
