package pages

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// explanation is the page that explains a lookup.
type explanation struct {
	From, To string
	Names    []string // that a person may mean
	Decision *v1alpha1.Decision
	Wrong    string // what is wrong with the two names
	Asked    string // who asks for whom, in words
	Object   *object
	Inbound  []*v1alpha1.Call // what lets the caller in at the callee, where that runs here
	Callee   string
	Picture  *picture
	Probe    bool
	Problems []problem // that may be behind it
}

// mostNames is how many names a field suggests.
const mostNames = 300

func explainPage(r *request) (*content, error) {
	v := &explanation{From: strings.TrimSpace(r.FormValue("from")), To: strings.TrimSpace(r.FormValue("to")), Probe: r.FormValue("probe") == "1"}
	shown := &content{Page: v, Title: "Explain", Command: "isthmus explain --from NAMESPACE/APP APP"}
	all, err := r.apps(&v1alpha1.AppsRequest{Most: mostNames, WithoutNamed: true})
	if err != nil {
		return nil, err
	}
	for _, a := range all.apps {
		v.Names = append(v.Names, show.Name(a.GetApp()))
	}
	if v.From == "" && v.To == "" {
		return shown, nil
	}
	to := v.To
	if app, err := catalog.ParseApp(to); err == nil {
		to = dotted(app)
	}
	l, err := show.ParseLookup(v.From, to)
	if err != nil {
		v.Wrong, shown.Status = strings.TrimPrefix(err.Error(), "--"), http.StatusBadRequest
		return shown, nil
	}
	shown.Title = v.From + " asks for " + l.App.String()
	shown.Command = "isthmus explain --from " + v.From + " " + dotted(l.App)
	shown.Live = !v.Probe
	return shown, r.explain(v, l)
}

// inbound is what lets a call in where the callee runs.
func inbound(c *v1alpha1.Call) string {
	by := c.GetRule()
	if by == "" {
		by = "nothing: " + c.GetLacks()
	}
	return plain("let in by " + by + ", guard: " + c.GetGuard())
}

// dotted is an app as daprd's callers name it.
func dotted(a catalog.App) string { return a.ID + "." + a.Namespace }

// explain makes the lookup and finds what stands behind its answer.
func (r *request) explain(v *explanation, l show.Lookup) error {
	d, err := v1alpha1.NewResolverClient(r.Conn).Resolve(r.ctx, &v1alpha1.ResolveRequest{Caller: wire.App(l.Caller), App: wire.App(l.App), Cluster: l.Cluster})
	if err != nil {
		return err
	}
	v.Decision, v.Callee, v.Asked = d, l.App.String(), v.From+" asks for "+l.App.String()
	if v.Probe && l.Cluster == "" {
		probed, err := v1alpha1.NewInventoryClient(r.Conn).Probe(r.ctx, &v1alpha1.ProbeRequest{Caller: wire.App(l.Caller), App: wire.App(l.App)})
		if err != nil {
			return err
		}
		show.AddProbes(d, probed)
	}
	if key, path, ok := ruleKey(d.GetRule()); ok {
		if v.Object, err = r.optional(key); err != nil {
			return err
		}
		v.Object.mark(path)
	}
	if v.Inbound, _, err = r.calls(&v1alpha1.CallsRequest{Callee: wire.App(l.App), Caller: wire.App(l.Caller), Cluster: l.Cluster}); err != nil {
		return err
	}
	cluster := l.Cluster
	if cluster == "" {
		cluster = catalog.LocalCluster
	}
	v.Inbound = slices.DeleteFunc(v.Inbound, func(c *v1alpha1.Call) bool { return c.GetCluster() != cluster || show.Caller(c) != l.Caller })
	own, _ := r.watch.newest()
	v.Picture = draw(decided(own, []decision{{v.From, v.Callee, d}}), nil, appPath, "")
	now, err := r.status()
	if err != nil {
		return err
	}
	v.Problems, err = r.problems(now, func(names []string) bool {
		return slices.ContainsFunc(d.GetRoutes(), func(route *v1alpha1.RouteDecision) bool { return slices.Contains(names, route.GetCluster()) })
	})
	return err
}

// decision is how a caller's lookup ends.
type decision struct {
	caller, callee string
	of             *v1alpha1.Decision
}

// decided is the graph of decisions.
func decided(own string, all []decision) *v1alpha1.GraphResponse {
	g := &v1alpha1.GraphResponse{Cluster: own}
	for _, d := range all {
		caller, in := d.caller, own
		if cluster, app, found := strings.Cut(d.caller, ":"); found {
			caller, in = app, cluster
		}
		call := &v1alpha1.GraphCall{Caller: appNamed(caller), In: in, Callee: appNamed(d.callee), Declared: true, State: "ready", Rule: d.of.GetRule()}
		for _, route := range d.of.GetRoutes() {
			state := "ready"
			if !route.GetTaken() {
				state = route.GetReason()
			}
			call.Routes = append(call.Routes, &v1alpha1.GraphRoute{
				Cluster: route.GetCluster(), Priority: route.GetPriority(), Weight: route.GetWeight(), State: state, Ready: route.GetReady(),
				Usable: route.GetTaken() || route.GetReady() > 0, Taken: route.GetTaken(),
			})
		}
		if len(call.Routes) == 0 {
			call.State = "denied"
			call.Routes = []*v1alpha1.GraphRoute{{Cluster: own, State: d.of.GetOutcome()}}
		}
		g.Calls = append(g.Calls, call)
	}
	return g
}

// appNamed is the app that is shown under a name.
func appNamed(name string) *v1alpha1.App {
	namespace, id, found := strings.Cut(name, "/")
	if !found {
		namespace, id = "", name
	}
	return &v1alpha1.App{Namespace: namespace, Id: id}
}

// rulePattern is a rule that names an object, as catalog.Rule writes it.
var rulePattern = regexp.MustCompile(`^(\w+) (?:([^/ ,]+)/)?([^/ ,]+)(?:, (spec[^ ]*))?`)

// ruleKey is the object that a rule names, and the path within it.
func ruleKey(rule string) (key catalog.Key, path string, ok bool) {
	m := rulePattern.FindStringSubmatch(rule)
	if m == nil {
		return catalog.Key{}, "", false
	}
	key, err := checkedKey(catalog.Key{Kind: catalog.Kind(m[1]), Namespace: m[2], Name: m[3]})
	return key, m[4], err == nil
}
