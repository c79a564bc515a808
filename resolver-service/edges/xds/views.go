package xds

import (
	"iter"
	"maps"
	"net"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
)

// state is everything that a client may follow, as it was at one moment. It is immutable.
type state interface {
	// resource is nil for one that is not there.
	resource(k kind, n resourceName) *resource
	// names are all resources of a type that a client gets without asking for names.
	names(k kind) iter.Seq[resourceName]
	// changed are the names of those that may differ from an older state.
	changed(k kind, old state) iter.Seq[resourceName]
	// same tells whether an older state of the same client is this one.
	same(old state) bool
	revision() uint64
}

// appState is what an app may follow: its view.
type appState struct {
	*maker
	view *catalog.View
	// nameless are the gateways, for a client that sends no server name. It gets the addresses
	// that lead to one app each. nil for a client that does.
	nameless *catalog.Gateways
	hosts    known
}

// known are the addresses of gateways' host names, as of a version: the channel that is closed
// once there is a newer one.
type known struct {
	hosts.Addresses
	version <-chan struct{}
}

func (s *appState) same(old state) bool {
	o, ok := old.(*appState)
	return ok && s.view == o.view && s.nameless == o.nameless && s.hosts.version == o.hosts.version
}

// Memo of a plan: its resources, for the clients of views with these gateways.
type planResources struct {
	gateways *catalog.Gateways
	hosts    <-chan struct{} // see known
	made     [kinds]*resource
	in       map[string][kinds]*resource // by cluster, of names that have one
}

func (s *appState) revision() uint64 { return s.view.Revision }

func (s *appState) resource(k kind, n resourceName) *resource {
	e, ok := s.view.Entries.Get(n.app)
	if !ok || n.other != "" {
		return nil
	}
	if k == endpoints && e.AwaitedIn(n.cluster) {
		return unanswered
	}
	switch {
	case n.cluster != "" && !leadsTo(e.Plan, n.cluster):
		return nil
	case s.nameless != nil && k == endpoints, n.app != e.App: // which no other client shares
		return s.maker.resource(k, n, e.Plan, s.gateways)
	default:
		return s.of(k, n, e.Plan)
	}
}

// gateways are the addresses of the gateways that a route to an app leads through. A host name has
// those that it resolves to. Without a server name, an app's gateway leads to any version.
func (s *appState) gateways(r *catalog.Route, app catalog.App) (all []string) {
	listed := s.view.Gateways.Addresses[r.Cluster]
	if s.nameless != nil {
		listed = nil
		for _, g := range s.nameless.Apps[r.Cluster] {
			if g.App == app && !r.Narrowed() {
				listed = append(listed, g.Address)
			}
		}
	}
	for _, address := range listed {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue
		}
		for _, ip := range s.hosts.Of(host) {
			all = append(all, net.JoinHostPort(ip.String(), port))
		}
	}
	return all
}

// of makes the resource of a plan, or takes the one that was made for another client.
func (s *appState) of(k kind, n resourceName, plan *catalog.Plan) *resource {
	known, _ := plan.Memo(catalog.MemoXDS).(*planResources)
	current := known != nil && known.gateways == s.view.Gateways && known.hosts == s.hosts.version
	if current {
		if r := known.of(k, n); r != nil {
			return r
		}
	}
	next := &planResources{gateways: s.view.Gateways, hosts: s.hosts.version}
	if known != nil {
		next.made, next.in = known.made, maps.Clone(known.in)
		if !current {
			next.made[endpoints], next.in = nil, nil
		}
	}
	r := s.maker.resource(k, n, plan, s.gateways)
	if n.cluster == "" {
		next.made[k] = r
	} else {
		if next.in == nil {
			next.in = map[string][kinds]*resource{}
		}
		of := next.in[n.cluster]
		of[k] = r
		next.in[n.cluster] = of
	}
	plan.Keep(catalog.MemoXDS, next)
	return r
}

func (p *planResources) of(k kind, n resourceName) *resource {
	if n.cluster == "" {
		return p.made[k]
	}
	return p.in[n.cluster][k]
}

// unanswered stands for the endpoints of an app that another cluster is being asked for. Clients wait for
// them, as they do after they have asked.
var unanswered = &resource{version: "asked"}

// leadsTo tells whether a cluster may have the app for this caller.
func leadsTo(plan *catalog.Plan, cluster string) bool {
	for i := range plan.Routes {
		if r := &plan.Routes[i]; r.Cluster == cluster {
			return r.State != catalog.NotExported && r.State != catalog.UnknownCluster
		}
	}
	return false
}

func (s *appState) names(kind) iter.Seq[resourceName] {
	return func(yield func(resourceName) bool) {
		for app := range s.view.Entries.All() {
			if app.CheckHost() == nil && !yield(resourceName{app: app}) {
				return
			}
		}
	}
}

func (s *appState) changed(k kind, old state) iter.Seq[resourceName] {
	o, ok := old.(*appState)
	if !ok {
		return s.names(k)
	}
	return func(yield func(resourceName) bool) {
		each := func(app catalog.App) bool {
			n := resourceName{app: app}
			if !yield(n) {
				return false
			}
			for _, cluster := range clustersOf(&s.view.Entries, &o.view.Entries, app) {
				if n.cluster = cluster; !yield(n) {
					return false
				}
			}
			return true
		}
		same := (*catalog.Entry).SameRoutes
		if k == endpoints && (!s.view.Gateways.Equal(o.view.Gateways) || !s.nameless.Equal(o.nameless) || s.hosts.version != o.hosts.version) {
			for app := range s.view.Entries.All() { // also those whose routes are the same
				if !each(app) {
					return
				}
			}
			same = func(_, _ *catalog.Entry) bool { return true }
		}
		for edit := range s.view.Entries.Diff(&o.view.Entries, same) {
			if !each(edit.App) {
				return
			}
		}
	}
}

// clustersOf are the clusters that an app's routes lead to, in either of two tables.
func clustersOf(a, b *catalog.Table[*catalog.Entry], app catalog.App) (names []string) {
	for _, t := range []*catalog.Table[*catalog.Entry]{a, b} {
		e, ok := t.Get(app)
		if !ok {
			continue
		}
		for i := range e.Routes {
			if name := e.Routes[i].Cluster; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
