package answers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Calls tells who may call the apps of this cluster, and their past callers.
func (v *Inventory) Calls(req *v1alpha1.CallsRequest, to grpc.ServerStreamingServer[v1alpha1.CallsResponse]) error {
	first := &v1alpha1.CallsResponse{}
	var others map[catalog.App][]*v1alpha1.Callee
	if req.GetForReplica() == "" {
		others, first.Missing = v.othersCalls(to.Context(), req)
	} else {
		first.Run = v.Replicas.name()
	}
	if len(first.GetMissing()) > 0 || first.GetRun() != "" {
		if err := to.Send(first); err != nil || first.GetRun() == req.GetForReplica() {
			return err
		}
	}
	callees, err := v.callees(to.Context(), req.GetSeen(), others, wants(req.GetCallee().GetNamespace(), req.GetCallee().GetId()))
	if err != nil {
		return err
	}
	one := req.GetCallee().GetNamespace() != "" && req.GetCallee().GetId() != ""
	observers := v.Stream.Observers()
	return sendParts(to, callees, calleesAtOnce, func(some []catalog.App) (*v1alpha1.CallsResponse, error) {
		known, domains, err := v.Topology.Inventory().Callees(to.Context(), some)
		m := &v1alpha1.CallsResponse{}
		for i := range known {
			c := v.callee(&known[i], domains, req.GetCaller())
			if c.Running {
				at := observers[known[i].App]
				if c.Elsewhere = at == (stream.Observers{}) && known[i].Elsewhere(stream.Source); !c.Elsewhere {
					c.NotObserved = at.Blind()
				}
			}
			for _, other := range others[known[i].App] {
				addCallee(c, other)
			}
			if req.GetSeen() {
				c.Callers = slices.DeleteFunc(c.Callers, func(s *v1alpha1.CallerState) bool { return s.GetCalls() == nil })
			}
			if app := (catalog.App{Namespace: req.GetCaller().GetNamespace(), ID: req.GetCaller().GetId()}); one && app.Namespace != "" && app.ID != "" {
				v.addAsked(c, &known[i], domains, req.GetCluster(), app)
			}
			if one || len(c.Callers) > 0 || (c.Elsewhere || c.NotObserved != "") && !req.GetSeen() {
				m.Callees = append(m.Callees, c)
			}
		}
		return m, err
	})
}

// calleesAtOnce is how many apps the topology is asked about at a time: changes wait meanwhile.
const calleesAtOnce = 50

// callees are the apps that a filter wants, of all that are known here or were called; sorted.
func (v *Inventory) callees(ctx context.Context, seen bool, others map[catalog.App][]*v1alpha1.Callee, filter func(catalog.App) bool) ([]catalog.App, error) {
	all := slices.AppendSeq(v.Stream.Called(), maps.Keys(others))
	if !seen {
		known, err := v.Topology.Inventory().Apps(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, known...)
	}
	slices.SortFunc(all, catalog.App.Compare)
	return slices.DeleteFunc(slices.Compact(all), func(app catalog.App) bool { return !filter(app) }), nil
}

// attribution tells who callers are and what lets them in, by what the guard of one app goes by.
type attribution struct {
	*topology.Callee
	domains topology.Domains
}

// caller is what is said of a caller. own says that its trust domain is that of this
// cluster's apps.
func (a *attribution) caller(own bool, p catalog.Principal) *v1alpha1.CallerState {
	m := &v1alpha1.CallerState{Namespace: p.App.Namespace, App: p.App.ID, Domain: p.Domain}
	if p.App == (catalog.App{}) {
		m.Lacks = "no certificate names it; turn on mTLS in both sidecars"
		return m
	}
	cluster, in := a.Access.Judge(own, p)
	if m.Cluster = cluster; !in && cluster == "" {
		m.Cluster = a.domains.Cluster(p.Domain)
	}
	switch {
	case own && p.App == a.App:
		m.Cluster, m.Rule = catalog.LocalCluster, catalog.SelfRule
	case in && cluster == catalog.LocalCluster && !a.Access.Declared.Has(p.App):
		m.Rule = catalog.DefaultRule
	case in:
		m.Rule = a.rule(cluster, p)
	case own:
		m.Lacks = a.Lacks(p.App)
	default:
		m.Lacks = fmt.Sprintf("no AppExport %s here allows it, or no Cluster object here says that apps of its cluster have the trust domain %s", a.App, p.Domain)
	}
	return m
}

// rule is the object that lets a caller in; cluster is empty where the certificate does not tell.
func (a *attribution) rule(cluster string, p catalog.Principal) string {
	for i := range a.Callers {
		r := &a.Callers[i]
		if (cluster == "" || cluster == r.Cluster) && !r.Refused && (r.Domain == "" || r.Domain == p.Domain) &&
			(r.Namespace == "" || r.Namespace == p.App.Namespace) && (r.App == "" || r.App == p.App.ID) {
			return r.Rule
		}
	}
	return ""
}

// callee puts together who may call an app and who has.
func (v *Inventory) callee(c *topology.Callee, domains topology.Domains, from *v1alpha1.App) *v1alpha1.Callee {
	wants := wants(from.GetNamespace(), from.GetId())
	m := &v1alpha1.Callee{App: wire.App(c.App), Guard: c.Access.Mode.String(), Undeclared: uint32(c.Access.Undeclared.Len()), Running: c.Running}
	who := attribution{c, domains}
	type name struct {
		cluster, namespace, app string
	}
	declared := map[name]*v1alpha1.CallerState{}
	for _, rule := range c.Callers {
		if !wants(catalog.App{Namespace: cmp.Or(rule.Namespace, from.GetNamespace()), ID: cmp.Or(rule.App, from.GetId())}) {
			continue // any namespace and any app are those that are asked for, too
		}
		state := &v1alpha1.CallerState{
			Namespace: rule.Namespace, App: rule.App, Cluster: rule.Cluster, Domain: rule.Domain, Rule: rule.Rule, Declared: true,
		}
		if rule.Refused {
			state.Rule, state.Lacks = "", c.Lacks(catalog.App{Namespace: rule.Namespace, ID: rule.App})
		}
		declared[name{rule.Cluster, rule.Namespace, rule.App}] = state
		m.Callers = append(m.Callers, state)
	}
	for _, r := range v.Stream.Calls(c.App) {
		if !wants(r.Caller.App) {
			continue
		}
		state := who.caller(r.Own, r.Caller)
		// Those that a pattern lets in are listed each by itself.
		if at := declared[name{state.Cluster, state.Namespace, state.App}]; at != nil && at.Rule == state.Rule {
			state = at
		} else {
			m.Callers = append(m.Callers, state)
		}
		addCalls(state, &r.Count, r.Last.UnixMilli())
	}
	sortCallers(m)
	return m
}

func sortCallers(m *v1alpha1.Callee) {
	slices.SortFunc(m.Callers, func(a, b *v1alpha1.CallerState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Domain, b.Domain))
	})
}

// addAsked adds a caller that was asked for and is not there yet. Where its cluster's trust domain is
// not known, it counts as this one's: all clusters have one by default.
func (v *Inventory) addAsked(m *v1alpha1.Callee, c *topology.Callee, domains topology.Domains, cluster string, app catalog.App) {
	cluster = cmp.Or(cluster, catalog.LocalCluster)
	if slices.ContainsFunc(m.GetCallers(), func(s *v1alpha1.CallerState) bool {
		return s.GetCluster() == cluster && s.GetNamespace() == app.Namespace && s.GetApp() == app.ID
	}) {
		return
	}
	own := v.Writer().Domain
	p := catalog.Principal{Domain: cmp.Or(domains[cluster], own), App: app}
	who := attribution{c, domains}
	state := who.caller(p.Domain == own, p)
	if cluster != catalog.LocalCluster {
		if state.Domain = domains[cluster]; state.Rule == "" {
			state.Lacks = fmt.Sprintf("no AppExport %s here allows it", c.App)
		}
		if _, known := domains[cluster]; !known {
			state.Rule, state.Lacks = "", fmt.Sprintf("no Cluster object %s is here", cluster)
		}
	} else {
		state.Domain = ""
	}
	state.Cluster = cluster
	m.Callers = append(m.Callers, state)
}

func addCalls(state *v1alpha1.CallerState, n *v1alpha1.CallCount, last int64) {
	if state.Calls == nil {
		state.Calls = &v1alpha1.CallCount{}
	}
	state.Calls.LetIn += n.GetLetIn()
	state.Calls.Observed += n.GetObserved()
	state.Calls.Refused += n.GetRefused()
	state.Calls.NotReady += n.GetNotReady()
	state.Calls.TookMs += n.GetTookMs()
	state.LastUnixMs = max(state.LastUnixMs, last)
}
