package resolverservice

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Calls tells who may call the apps of this cluster, and who has.
func (v *inventory) Calls(req *v1alpha1.CallsRequest, to grpc.ServerStreamingServer[v1alpha1.CallsResponse]) error {
	callees, err := v.callees(to.Context(), req.GetSeen(), wants(req.GetCallee().GetNamespace(), req.GetCallee().GetId()))
	if err != nil {
		return err
	}
	one := req.GetCallee().GetNamespace() != "" && req.GetCallee().GetId() != ""
	for some := range slices.Chunk(callees, calleesAtOnce) {
		known, domains, err := v.topology.Callees(to.Context(), some)
		if err != nil {
			return err
		}
		m := &v1alpha1.CallsResponse{}
		for i := range known {
			c := v.callee(&known[i], domains, req.GetCaller())
			if req.GetSeen() {
				c.Callers = slices.DeleteFunc(c.Callers, func(s *v1alpha1.CallerState) bool { return s.GetCalls() == nil })
			}
			if app := (catalog.App{Namespace: req.GetCaller().GetNamespace(), ID: req.GetCaller().GetId()}); one && app.Namespace != "" && app.ID != "" {
				addLocal(c, &known[i], app)
			}
			if one || len(c.Callers) > 0 {
				m.Callees = append(m.Callees, c)
			}
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// calleesAtOnce is how many apps the topology is asked about at a time: changes wait meanwhile.
const calleesAtOnce = 50

// callees are the apps that a filter wants, of all that are known here or were called; sorted.
func (v *inventory) callees(ctx context.Context, seen bool, filter func(catalog.App) bool) ([]catalog.App, error) {
	all := v.stream.Called()
	if !seen {
		known, err := v.topology.Apps(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, known...)
	}
	slices.SortFunc(all, catalog.App.Compare)
	return slices.DeleteFunc(slices.Compact(all), func(app catalog.App) bool { return !filter(app) }), nil
}

// callee puts together who may call an app and who has.
func (v *inventory) callee(c *topology.Callee, domains map[string]string, from *v1alpha1.App) *v1alpha1.Callee {
	wants := wants(from.GetNamespace(), from.GetId())
	m := &v1alpha1.Callee{App: wire.App(c.App), Guard: c.Access.Mode.String(), Undeclared: uint32(c.Access.Undeclared.Len()), Running: c.Running}
	seen := v.stream.Calls(c.App)
	for _, r := range seen {
		r.Cluster = cmp.Or(r.Cluster, domains[r.Caller.Domain])
	}
	for _, rule := range c.Callers {
		if !wants(catalog.App{Namespace: cmp.Or(rule.Namespace, from.GetNamespace()), ID: cmp.Or(rule.App, from.GetId())}) {
			continue // any namespace and any app are those that are asked for, too
		}
		state := &v1alpha1.CallerState{
			Namespace: rule.Namespace, App: rule.App, Cluster: rule.Cluster, Domain: rule.Domain, Rule: rule.Rule, Declared: true,
		}
		if rule.Namespace != "" && rule.App != "" { // otherwise those that it lets in are listed each by itself
			seen = slices.DeleteFunc(seen, func(r *stream.CallRecord) bool {
				same := r.Caller.App == catalog.App{Namespace: rule.Namespace, ID: rule.App} &&
					(rule.Cluster == r.Cluster || r.Cluster == "" && (rule.Domain == "" || rule.Domain == r.Caller.Domain))
				if same {
					addCalls(state, r)
				}
				return same
			})
		}
		m.Callers = append(m.Callers, state)
	}
	for _, r := range seen {
		if !wants(r.Caller.App) {
			continue
		}
		state := &v1alpha1.CallerState{Namespace: r.Caller.App.Namespace, App: r.Caller.App.ID, Cluster: r.Cluster, Domain: r.Caller.Domain}
		state.Rule = undeclaredRule(c, r)
		addCalls(state, r)
		m.Callers = append(m.Callers, state)
	}
	slices.SortFunc(m.Callers, func(a, b *v1alpha1.CallerState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Domain, b.Domain))
	})
	return m
}

// addLocal adds a caller of this cluster that was asked for and is not there yet.
func addLocal(m *v1alpha1.Callee, c *topology.Callee, app catalog.App) {
	for _, s := range m.GetCallers() {
		if s.GetCluster() == catalog.LocalCluster {
			return
		}
	}
	m.Callers = append(m.Callers, &v1alpha1.CallerState{
		Namespace: app.Namespace, App: app.ID, Cluster: catalog.LocalCluster,
		Rule: undeclaredRule(c, &stream.CallRecord{Caller: catalog.Principal{App: app}, Cluster: catalog.LocalCluster}),
	})
}

// undeclaredRule is what lets a caller in that no object names; empty if nothing does.
func undeclaredRule(c *topology.Callee, r *stream.CallRecord) string {
	local := r.Cluster == catalog.LocalCluster
	switch {
	case r.Caller.App == (catalog.App{}):
		return ""
	case local && r.Caller.App == c.App:
		return catalog.SelfRule
	case local && c.Access.Undeclared.Has(r.Caller.App):
		return catalog.DefaultRule
	}
	if c.Access.Remote.Admits(r.Caller) {
		for _, rule := range c.Callers {
			if rule.Cluster != catalog.LocalCluster && (r.Cluster == "" || r.Cluster == rule.Cluster) &&
				(rule.Namespace == "" || rule.Namespace == r.Caller.App.Namespace) && (rule.App == "" || rule.App == r.Caller.App.ID) {
				return rule.Rule
			}
		}
	}
	return ""
}

func addCalls(state *v1alpha1.CallerState, r *stream.CallRecord) {
	if state.Calls == nil {
		state.Calls = &v1alpha1.CallCount{}
	}
	state.Calls.LetIn += r.Count.LetIn
	state.Calls.Observed += r.Count.Observed
	state.Calls.Refused += r.Count.Refused
	state.Calls.NotReady += r.Count.NotReady
	state.Calls.TookMs += r.Count.TookMs
	state.LastUnixMs = max(state.LastUnixMs, r.Last.UnixMilli())
}
