package answers

import (
	"cmp"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// mostSteps is how far from the app in focus calls may be asked for: farther, it is soon everything.
const mostSteps = 2

// Graph tells the apps, the clusters and the calls that objects declare.
func (v *Inventory) Graph(req *v1alpha1.GraphRequest, to grpc.ServerStreamingServer[v1alpha1.GraphResponse]) error {
	filter := topology.MapFilter{Steps: int(req.GetSteps()), Namespace: req.GetNamespace(), Via: req.GetVia()}
	if req.GetFocus() != nil {
		var err error
		if filter.Focus, err = wire.ParseApp(req.GetFocus()); err != nil {
			return status.Errorf(codes.InvalidArgument, "focus: %v", err)
		}
	}
	if steps := req.GetSteps(); steps > mostSteps || steps > 0 && req.GetFocus() == nil {
		return status.Errorf(codes.InvalidArgument, "steps: %d; want at most %d, and a focus", steps, mostSteps)
	}
	m, err := v.Topology.Inventory().Map(to.Context(), filter)
	if err != nil {
		return err
	}
	if via := req.GetVia(); via == m.Cluster || via == catalog.LocalCluster {
		return status.Errorf(codes.InvalidArgument, "via: %s is this cluster; name another one", via)
	}
	first := &v1alpha1.GraphResponse{Cluster: m.Cluster, Revision: m.Revision}
	for _, c := range m.Clusters {
		first.Clusters = append(first.Clusters, &v1alpha1.GraphCluster{Name: c.Name, Object: c.Object, State: c.State})
	}
	if err := to.Send(first); err != nil {
		return err
	}
	err = sendParts(to, m.Apps, perMessage, func(some []topology.MapApp) (*v1alpha1.GraphResponse, error) {
		next := &v1alpha1.GraphResponse{}
		for i := range some {
			a := &some[i]
			next.Apps = append(next.Apps, &v1alpha1.GraphApp{App: wire.App(a.App), Here: a.Here, Ready: a.Ready, Selection: a.Selection, ExportedTo: a.ExportedTo, Versions: a.Versions})
		}
		return next, nil
	})
	for i := 0; i < len(m.Views) && err == nil; i++ {
		err = sendParts(to, graphCalls(&m.Views[i]), perMessage, func(some []*v1alpha1.GraphCall) (*v1alpha1.GraphResponse, error) {
			return &v1alpha1.GraphResponse{Calls: some}, nil
		})
	}
	return err
}

// graphCalls are the entries of a view, by callee, without the app itself.
func graphCalls(v *topology.ViewUpdate) (calls []*v1alpha1.GraphCall) {
	for _, e := range v.View.Entries.All() {
		if e.App == v.App {
			continue
		}
		call := &v1alpha1.GraphCall{Caller: wire.App(v.App), Callee: wire.App(e.App), Rule: e.Rule.String()}
		taken := false // by guests, before all routes
		for i := range e.Takes() {
			t := &e.Takes()[i]
			taken = taken || t.Usable() && t.Header == (catalog.HeaderValue{})
			call.Routes = append(call.Routes, &v1alpha1.GraphRoute{Cluster: t.Cluster, Weight: t.Weight, State: t.State.String(), Ready: t.Ready, Usable: t.Usable(), Taken: taken})
		}
		takes := len(call.Routes)
		for i := range e.Routes {
			r := &e.Routes[i]
			call.Routes = append(call.Routes, &v1alpha1.GraphRoute{
				Cluster: r.Cluster, Priority: r.Priority, Weight: r.Weight, State: r.State.String(), Ready: r.Ready, Usable: r.Usable(), Versions: cmp.Or(string(r.Versions), r.Running.String()),
			})
		}
		for _, share := range e.Shares() {
			for i := range e.Routes {
				if share.Route == &e.Routes[i] {
					call.Routes[takes+i].Taken = share.Part > 0 && !taken
				}
			}
		}
		calls = append(calls, call)
	}
	slices.SortFunc(calls, func(a, b *v1alpha1.GraphCall) int { return wire.AppOf(a.Callee).Compare(wire.AppOf(b.Callee)) })
	return calls
}
