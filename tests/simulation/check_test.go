package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// slack is how much longer than staleAfter a cluster may be called after the last moment when a
// round trip to it was possible.
const slack = time.Second

// check compares all views of a service with what it can know now.
func (w *world) check(s *service) {
	have := s.objects()
	if have == nil {
		return
	}
	whose := owners{}
	for _, d := range s.replica.cluster.sidecars {
		view, ok := look(s, d.app)
		if !ok {
			continue
		}
		if wrong := whose.see(view); wrong != "" {
			w.fail("owner: %s: %s", s.replica.host, wrong)
		}
		selection, _ := have[(&catalog.AppEndpoints{App: d.app}).Key()].(*catalog.AppEndpoints)
		w.checkView(s, d.app, selection, view)
	}
	w.checkExports(s, have)
	w.checkActors(s, have)
	if !w.mutation.revivesExports { // which the exporter's own gateway shows before its peers' views do
		w.checkGateway(s, have)
	}
}

// owners are the apps that views lead to, by the addresses of their instances in each cluster.
type owners map[instanceOf]catalog.App

// instanceOf is an address in one cluster. Several clusters may use the same address.
type instanceOf struct{ cluster, address string }

// see adds a view. It returns an error text if an address belongs to two apps of a cluster.
func (os owners) see(view *catalog.View) (wrong string) {
	for callee, entry := range view.Entries.All() {
		for i := range entry.Routes {
			if entry.Routes[i].Gateway {
				continue
			}
			for _, address := range entry.Routes[i].Addresses {
				at := instanceOf{entry.Routes[i].Cluster, address}
				if other, seen := os[at]; seen && other != callee {
					wrong = fmt.Sprintf("%s in %s is that of %s and of %s", address, at.cluster, other, callee)
				}
				os[at] = callee
			}
		}
	}
	return wrong
}

// checkGateway checks that the gateway leads to what this cluster exports, and to nothing else.
func (w *world) checkGateway(s *service, have map[catalog.Key]catalog.Object) {
	table, ok := s.topology.Gateway().Load()
	if !ok {
		w.fail("%s: its gateway has no table", s.replica.host)
		return
	}
	running := map[topology.InstanceKey]catalog.Instance{}
	if version := s.running.Load(); version >= 0 {
		running = s.replica.cluster.instances.at(int(version))
	}
	for _, a := range apps {
		e, _ := have[(&catalog.AppExport{App: a}).Key()].(*catalog.AppExport)
		exports := e != nil && slices.ContainsFunc(e.Allow, func(a catalog.Allow) bool { return a.Outward(s.replica.cluster.name) })
		b, there := table.Backends.Get(a)
		if there != exports {
			w.fail("gateway: %s: that of %s leads to it: %v; it is exported: %v", s.replica.host, a, there, exports)
			return
		}
		if there && !slices.Equal(b.Instances, ready(running, a)) {
			w.fail("gateway: %s: that of %s leads to %v; ready are %v", s.replica.host, a, b.Instances, ready(running, a))
		}
		// A sidecar may use names from an old view: none may lead to another instance.
		if there && !slices.Equal(b.Tokens, catalog.InstanceTokens(b.Instances)) {
			w.fail("gateway: %s: the instances %v of %s are called %x", s.replica.host, b.Instances, a, b.Tokens)
		}
		if there {
			w.checkNames(s, b)
		}
	}
}

// checkNames checks that the name of an instance leads to that one or nowhere, whether it is still
// there or not.
func (w *world) checkNames(s *service, b *catalog.Backend) {
	for at := range s.replica.cluster.ever {
		if i, leads := b.Instance(catalog.InstanceToken(at.address)); leads && (i >= len(b.Instances) || b.Instances[i] != at.address) {
			w.fail("gateway: %s: the name of %s leads to instance %d of %v of %s", s.replica.host, at.address, i, b.Instances, b.App)
		}
	}
}

func look(s *service, caller catalog.App) (*catalog.View, bool) {
	sub := s.topology.Subscribe(caller)
	defer sub.Close()
	return sub.View()
}

// checkView compares a view with the caller's selection, with the instances of its cluster, and
// with the time since other clusters were last reachable.
func (w *world) checkView(s *service, caller catalog.App, selection *catalog.AppEndpoints, view *catalog.View) {
	if view.Open != (selection == nil) {
		w.fail("%s: the view of %s is open: %v; its selection is %v", s.replica.host, caller, view.Open, selection)
		return
	}
	for callee, entry := range view.Entries.All() {
		selected := endpoint(selection, callee)
		if selection != nil && selected == nil && callee != caller {
			w.fail("%s: the view of %s holds %s, which its selection does not", s.replica.host, caller, callee)
		}
		for i := range entry.Routes {
			r := &entry.Routes[i]
			if r.Local {
				w.checkLocal(s, callee, r)
				continue
			}
			if selected == nil {
				w.fail("%s: the view of %s leads to %s in %s without a selection", s.replica.host, caller, callee, r.Cluster)
				return
			}
			w.checkRemote(s, caller, selected, r)
		}
	}
	if selection != nil {
		for i := range selection.Endpoints {
			if _, ok := view.Entries.Get(selection.Endpoints[i].App); !ok {
				w.fail("%s: the view of %s lacks %s", s.replica.host, caller, selection.Endpoints[i].App)
			}
		}
	}
}

func endpoint(s *catalog.AppEndpoints, callee catalog.App) *catalog.Endpoint {
	if s == nil {
		return nil
	}
	for i := range s.Endpoints {
		if s.Endpoints[i].App == callee {
			return &s.Endpoints[i]
		}
	}
	return nil
}

// checkLocal compares a route in the caller's own cluster with the instances that the service
// knows.
func (w *world) checkLocal(s *service, callee catalog.App, r *catalog.Route) {
	var want []string
	if version := s.running.Load(); version >= 0 {
		want = ready(s.replica.cluster.instances.at(int(version)), callee)
	}
	if !slices.Equal(slices.Sorted(slices.Values(r.Addresses)), want) {
		w.fail("%s: local instances of %s are %v; the service was told of %v", s.replica.host, callee, r.Addresses, want)
	}
}

// ready are the addresses of an app's ready instances, sorted.
func ready(all map[topology.InstanceKey]catalog.Instance, a catalog.App) (addresses []string) {
	for _, i := range all {
		if i.App == a && !i.Draining {
			addresses = append(addresses, i.Address.String())
		}
	}
	slices.Sort(addresses)
	return addresses
}

// checkRemote checks a route to another cluster.
func (w *world) checkRemote(s *service, caller catalog.App, selected *catalog.Endpoint, r *catalog.Route) {
	if len(r.Addresses) == 0 {
		return
	}
	wrong := func(kind, what string, args ...any) {
		w.fail("%s: %s: the route of %s to %s in %s %s", kind, s.replica.host, caller, selected.App, r.Cluster, fmt.Sprintf(what, args...))
	}
	if !slices.Contains([]catalog.RouteState{catalog.Ready, catalog.Lapsed, catalog.Damped, catalog.LastResort}, r.State) {
		wrong("address", "has some in state %d", r.State)
	}
	if r.State == catalog.Lapsed && selected.WhenStale == catalog.Withdraw {
		wrong("stale", "is served though its lease has run out and whenStale is withdraw")
	}
	for _, address := range r.Addresses {
		host, port, _ := strings.Cut(address, ":")
		a, cluster, ok := catalog.Domain(catalog.DefaultDomain).ParseHost(host)
		if shard, rest, found := strings.Cut(host, "."); !ok && found && shard <= "9" {
			a, cluster, ok = catalog.Domain(catalog.DefaultDomain).ParseHost(rest)
		}
		named := ok && a == selected.App && cluster == r.Cluster && port == gatewayPort
		direct := w.cluster(r.Cluster).ever[placed{selected.App, address}] && w.cluster(r.Cluster).network == s.replica.cluster.network
		if r.Gateway && !named || !r.Gateway && !direct {
			wrong("address", "has %s", address)
		}
	}
	for _, token := range r.Instances {
		if !r.Gateway || !w.cluster(r.Cluster).had(selected.App, token) {
			wrong("address", "has the instance %x, which was never there", token)
		}
	}
	if selected.WhenStale == catalog.Withdraw {
		stale := w.cluster(r.Cluster).staleAfter
		if since := time.Since(w.reached[way{s.replica.host, r.Cluster}]); since > stale+slack {
			wrong("stale", "is usable, and no round trip was possible for %s; staleAfter is %s", since, stale)
		}
		if most := w.cluster(r.Cluster).behindMost(); !w.cluster(r.Cluster).exportedWithin(most, selected.App, caller, s.replica.cluster.name) {
			wrong("stale", "is usable, and its cluster has not exported that for %s", most)
		}
	}
}

// behindMost is how long callers may go by an export that its cluster has withdrawn. Renewals of a lease
// count for a while though the exports are behind, and then the lease ends.
func (c *cluster) behindMost() time.Duration {
	return max(10*time.Second, c.staleAfter) + 2*c.staleAfter + 5*time.Second
}

// exportedWithin tells whether a service of a cluster exported an app to a caller lately, or no service
// was there to say otherwise.
func (c *cluster) exportedWithin(lately time.Duration, a, caller catalog.App, in string) bool {
	any := false
	for version, at := range c.told {
		if time.Since(at) > lately {
			continue
		}
		any = true
		e, _ := c.objects.at(version)[(&catalog.AppExport{App: a}).Key()].(*catalog.AppExport)
		if e != nil && allowed(e.Allow).lets(in, caller) {
			return true
		}
	}
	return !any
}

// had tells whether the cluster ever had an instance of an app with a token.
func (c *cluster) had(a catalog.App, token uint32) bool {
	for at := range c.ever {
		if at.app == a && catalog.InstanceToken(at.address) == token {
			return true
		}
	}
	return false
}

// exportedStates are the states of a route to an app that is exported to the caller.
var exportedStates = []catalog.RouteState{catalog.Ready, catalog.Lapsed, catalog.Empty, catalog.LeaseExpired, catalog.Damped, catalog.LastResort}

// checkExports checks that the callers of a replica see an export as one of its versions allows,
// and never as a version before one that was known already.
func (w *world) checkExports(s *service, have map[catalog.Key]catalog.Object) {
	for of, versions := range w.exports {
		if of.cluster == s.replica.cluster.name {
			continue
		}
		seen, any := w.seenOf(s, have, of)
		if !any {
			continue
		}
		about := subject{s.replica.host, of}
		if w.cluster(of.cluster).wentBack() {
			w.floors[about] = 0
		}
		explains := func(v int) bool {
			for caller, sees := range seen {
				if sees != versions[v].lets(s.replica.cluster.name, caller) {
					return false
				}
			}
			return true
		}
		v := w.floors[about]
		for v < len(versions) && !explains(v) {
			v++
		}
		if v == len(versions) {
			w.fail("export: %s: callers see %s in %s: %v; no version that it can know allows that, from %d on of %v",
				s.replica.host, of.app, of.cluster, seen, w.floors[about], versions)
			return
		}
		if len(w.cluster(of.cluster).replicas) == 1 {
			w.floors[about] = v // one replica never goes back to an older version
		}
	}
}

// seenOf returns which callers see an export, out of those that could.
func (w *world) seenOf(s *service, have map[catalog.Key]catalog.Object, of export) (seen map[catalog.App]bool, any bool) {
	seen = map[catalog.App]bool{}
	for _, d := range s.replica.cluster.sidecars {
		selection, _ := have[(&catalog.AppEndpoints{App: d.app}).Key()].(*catalog.AppEndpoints)
		e := endpoint(selection, of.app)
		view, ok := look(s, d.app)
		if e == nil || !ok {
			continue
		}
		entry, _ := view.Entries.Get(of.app)
		sees, could := false, len(e.Routes) == 0
		for i := range entry.Routes {
			if r := &entry.Routes[i]; r.Cluster == of.cluster {
				could, sees = true, slices.Contains(exportedStates, r.State)
			}
		}
		if could {
			seen[d.app] = sees
		}
		any = any || sees
	}
	return seen, any
}
