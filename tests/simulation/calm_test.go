package simulation

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// How long each view may take to become right, once all faults are repaired.
const (
	calmWithin = 15 * time.Second
	dampedMost = 2*time.Minute + 5*time.Second // if a peer was damped
	rampMost   = 11 * time.Second              // for all traffic to be back
)

// heal repairs every path.
func (w *world) heal() {
	w.net.Release()
	w.each(func(r *replica) {
		for _, c := range w.clusters {
			for _, g := range c.gateways {
				if c == r.cluster {
					continue
				}
				w.path(r.host, g.host, peeringtest.Path{})
				w.path(g.host, r.host, peeringtest.Path{})
			}
		}
	})
}

// calm repairs everything, waits until each view is right, and checks that this was in time. No
// earlier state may ever be seen again.
func (w *world) calm() {
	w.look()
	w.heal()
	w.restore(nil)
	w.converge(nil)
	if w.failed() != nil {
		return
	}
	w.each(func(r *replica) {
		for of, versions := range w.exports {
			w.floors[subject{r.host, of}] = len(versions) - 1
		}
	})
	for w.open.Load() > 0 && w.failed() == nil { // a call that lasts weighs on its instance
		w.pass(time.Second)
	}
	w.pass(shareWithin)
	for _, d := range w.sidecars() {
		w.answered(d)
	}
	w.pass(idleAfter)
	for _, d := range w.sidecars() {
		w.idle(d)
		d.late = false
	}
}

// almost repairs everything except one of a cluster's two replicas, which has to be enough.
func (m maker) almost() (string, func(*world)) {
	i := m.IntN(2)
	how := one(m, []string{"does not run", "has no gateway", "has a gateway that is silent", "has a gateway that hangs up", "has just started and can't reach its store"})
	text, export := m.exportedBy("east")
	return fmt.Sprintf("well, but replica %d of east %s; then export %s", i, how, text), func(w *world) {
		east := w.cluster("east")
		but, g := east.replicas[i], east.gateways[i]
		w.look()
		w.heal()
		w.nameBoth()
		switch w.restore(but); how {
		case "does not run":
			but.stop(true)
		case "has no gateway":
			g.up = false
			g.close()
		case "has a gateway that is silent":
			w.each(func(r *replica) {
				w.path(r.host, g.host, peeringtest.Path{Down: true})
				w.path(g.host, r.host, peeringtest.Path{Down: true})
			})
		case "has a gateway that hangs up":
			g.close()
			g.hangUp()
		default:
			but.stop(true)
			but.store.set(true, 0)
			but.start(false)
		}
		w.pass(3 * time.Second)
		export(w)
		w.converge(but)
	}
}

// nameBoth puts both of east's gateways into every Cluster object for it. A cluster that knows
// only one depends on it.
func (w *world) nameBoth() {
	for _, c := range w.clusters {
		_, all, _ := c.objects.newest()
		if o, ok := all[catalog.Key{Kind: catalog.KindCluster, Name: "east"}].(*catalog.Cluster); ok && len(o.Gateways) < 2 {
			w.know(c.name, object("east", o.StaleAfter, []int{0, 1}, o.RampUp, o.Network))
		}
	}
}

// restore starts everything and gives it access to its store and source. It leaves out the
// replica but, which may be nil.
func (w *world) restore(but *replica) {
	for _, c := range w.clusters {
		for i, g := range c.gateways {
			if t := c.replicas[i]; g.target != t || g.hollow {
				g.close()
				g.target = t
			}
			g.up = !(w.mutation.losesGateways && c.name == "north")
		}
		for _, r := range c.replicas {
			if r == but && r.service != nil {
				continue
			}
			r.store.set(false, 0)
			w.lag(r, 0)
			r.source.set(false, 0)
			if r.service == nil {
				r.start(true)
			}
		}
		for _, g := range c.gateways {
			if g.up {
				g.listen()
			} else {
				g.close()
			}
		}
	}
}

// converge waits until all views are right, in all replicas but one.
func (w *world) converge(but *replica) {
	start := time.Now()
	for wrong := w.wrong(false, but); wrong != ""; wrong = w.wrong(false, but) {
		took, most := time.Since(start), calmWithin
		if w.damped() {
			most = dampedMost + calmWithin
			if took > calmWithin {
				w.served(but)
			}
		}
		if took > most {
			w.fail("calm: %s after all was well again: %s", took, wrong)
		}
		if w.failed() != nil {
			return
		}
		w.pass(200 * time.Millisecond)
	}
	start = time.Now()
	for wrong := w.wrong(true, but); wrong != ""; wrong = w.wrong(true, but) {
		if time.Since(start) > rampMost {
			w.fail("calm: ramps are not over: %s", wrong)
		}
		if w.failed() != nil {
			return
		}
		w.pass(time.Second)
	}
}

// damped tells whether any peer was damped lately.
func (w *world) damped() (damped bool) {
	w.each(func(r *replica) {
		if r.service == nil {
			return
		}
		r.clock.do(func() {
			for _, p := range r.service.links.Status() {
				damped = damped || p.Lapses > 2
			}
		})
	})
	return damped
}

// served checks that damping leaves each caller a route to everything that is ready.
func (w *world) served(but *replica) {
	w.each(func(r *replica) {
		if r == but || r.service == nil {
			return
		}
		_, objects, _ := r.cluster.objects.newest()
		for _, d := range r.cluster.sidecars {
			selection, _ := objects[(&catalog.AppEndpoints{App: d.app}).Key()].(*catalog.AppEndpoints)
			view, ok := look(r.service, d.app)
			if selection == nil || !ok {
				continue
			}
			for i := range selection.Endpoints {
				e := &selection.Endpoints[i]
				entry, _ := view.Entries.Get(e.App)
				ready := slices.ContainsFunc(w.routes(r.cluster, objects, d.app, e), func(r catalog.Route) bool { return r.Usable() })
				if ready && entry.Outcome() != catalog.OK {
					w.fail("calm: %s, %s: is refused %s: %s", r.host, d.app, e.App, entry.Refusal())
				}
			}
		}
	})
}

// wrong describes a difference between a view and the truth; empty if there is none.
func (w *world) wrong(ramps bool, but *replica) (what string) {
	synctest.Wait()
	w.each(func(r *replica) {
		if what != "" || r == but {
			return
		}
		if len(r.service.objects()) == 0 && func() bool { _, all, _ := r.cluster.objects.newest(); return len(all) > 0 }() {
			what = r.host + " has no objects yet"
			return
		}
		if what = w.wrongOwner(r.service); what != "" {
			what = r.host + ": " + what
			return
		}
		fresh := w.fresh(r.cluster)
		for _, d := range r.cluster.sidecars {
			view, ok := look(r.service, d.app)
			if !ok {
				what = r.host + " has no views yet"
				return
			}
			if what = w.differs(r.cluster, d.app, view, ramps); what == "" {
				what = fresh.differs(d.app, view, ramps)
			}
			if what == "" && d.at == r {
				if held := d.held(); held == nil {
					what = "its sidecar has no view"
				} else if wrong := sameView(held, view); wrong != "" {
					what = "the view of its sidecar differs: " + wrong
				}
			}
			if what != "" {
				what = fmt.Sprintf("%s, %s: %s", r.host, d.app, what)
				return
			}
		}
	})
	return what
}

// differs compares a caller's view with the rules of DESIGN and the truth.
func (w *world) differs(c *cluster, caller catalog.App, view *catalog.View, ramps bool) string {
	_, objects, _ := c.objects.newest()
	selection, _ := objects[(&catalog.AppEndpoints{App: caller}).Key()].(*catalog.AppEndpoints)
	if selection == nil {
		if view.Open {
			return ""
		}
		return "it has no selection, and its view is not that of those without one"
	}
	if got, want := view.Entries.Len(), len(selection.Endpoints)+1; got != want {
		return fmt.Sprintf("its view has %d apps, not %d", got, want)
	}
	for i := range selection.Endpoints {
		e := &selection.Endpoints[i]
		entry, ok := view.Entries.Get(e.App)
		if !ok {
			return fmt.Sprint("its view lacks ", e.App)
		}
		want := w.routes(c, objects, caller, e)
		if len(entry.Routes) != len(want) {
			return fmt.Sprintf("%d routes to %s: %+v; want %+v", len(entry.Routes), e.App, entry.Routes, want)
		}
		for i := range want {
			got := entry.Routes[i]
			switch {
			case got.Cluster != want[i].Cluster, got.Priority != want[i].Priority, got.Weight != want[i].Weight,
				got.State != want[i].State, !slices.Equal(slices.Sorted(slices.Values(got.Addresses)), want[i].Addresses), ramps && got.Ramp != 0:
				return fmt.Sprintf("its route to %s is %+v; want %+v", e.App, got, want[i])
			}
		}
		takes := slices.ContainsFunc(want, func(r catalog.Route) bool { return r.Weight > 0 && r.State == catalog.Ready })
		if outcome := entry.Outcome(); takes != (outcome == catalog.OK) {
			return fmt.Sprintf("a lookup of %s ends with %q; a route takes calls: %v", e.App, outcome, takes)
		}
	}
	return ""
}

// routes are an endpoint's routes by rule 4: with their state and their addresses, sorted.
func (w *world) routes(c *cluster, objects map[catalog.Key]catalog.Object, caller catalog.App, e *catalog.Endpoint) (all []catalog.Route) {
	specs := e.Routes
	if len(specs) == 0 {
		specs = []catalog.RouteSpec{{Cluster: c.name, Weight: 1}}
		for _, other := range clusterNames {
			known := objects[catalog.Key{Kind: catalog.KindCluster, Name: other}] != nil
			if known && other != c.name && w.exportedNow(other, e.App).lets(c.name, caller) {
				specs = append(specs, catalog.RouteSpec{Cluster: other, Priority: 1, Weight: 1})
			}
		}
	}
	for _, spec := range specs {
		r := catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: spec.Cluster, Priority: spec.Priority, Weight: spec.Weight}}
		if spec.Cluster == catalog.LocalCluster {
			r.Cluster = c.name
		}
		r.State, r.Addresses = w.route(c, objects, caller, e.App, w.cluster(r.Cluster))
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b catalog.Route) int { return int(a.Priority) - int(b.Priority) })
	return all
}

func (w *world) exportedNow(by string, a catalog.App) allowed {
	versions := w.exports[export{by, a}]
	return versions[len(versions)-1]
}

// route is what there is of an app in a cluster for a caller in cluster c.
func (w *world) route(c *cluster, objects map[catalog.Key]catalog.Object, caller, callee catalog.App, in *cluster) (catalog.RouteState, []string) {
	_, running, _ := in.instances.newest()
	addresses := ready(running, callee)
	object, known := objects[catalog.Key{Kind: catalog.KindCluster, Name: in.name}].(*catalog.Cluster)
	switch {
	case in == c && len(addresses) == 0:
		return catalog.Empty, nil
	case in == c:
		return catalog.Ready, addresses
	case !known:
		return catalog.UnknownCluster, nil
	case !w.exportedNow(in.name, callee).lets(c.name, caller):
		return catalog.NotExported, nil
	case len(addresses) == 0:
		return catalog.Empty, nil
	case w.reachesPods(c, object, in):
		return catalog.Ready, addresses
	}
	host := fmt.Sprintf("%s.%s.%s.%s:%s", callee.ID, callee.Namespace, in.name, catalog.DefaultDomain, gatewayPort)
	if len(addresses) == 1 {
		return catalog.Ready, []string{host}
	}
	var shards []string
	for n := range addresses {
		shards = append(shards, fmt.Sprintf("%d.%s", n, host))
	}
	return catalog.Ready, shards
}

// reachesPods tells whether both clusters put each other on one network.
func (w *world) reachesPods(c *cluster, object *catalog.Cluster, in *cluster) bool {
	_, theirs, _ := in.objects.newest()
	back, _ := theirs[catalog.Key{Kind: catalog.KindCluster, Name: c.name}].(*catalog.Cluster)
	return back != nil && object.Network == c.network && back.Network == in.network && c.network == in.network
}

// onNetwork tells whether a cluster's objects put another on its network.
func onNetwork(objects map[catalog.Key]catalog.Object, c, other *cluster) bool {
	object, ok := objects[catalog.Key{Kind: catalog.KindCluster, Name: other.name}].(*catalog.Cluster)
	return ok && c.network != "" && object.Network == c.network
}

// fresh is what a graph serves that was made from the truth at once.
type fresh struct {
	views map[catalog.App]*catalog.View
	open  *catalog.View
}

func (w *world) fresh(c *cluster) fresh {
	g := topology.NewGraph(topology.Config{Cluster: c.name, Network: c.network, Domain: catalog.DefaultDomain, Open: true})
	_, objects, _ := c.objects.newest()
	_, running, _ := c.instances.newest()
	change := topology.Change{Objects: &topology.ObjectChange{Full: true}}
	for _, o := range objects {
		change.Objects.Put = append(change.Objects.Put, o)
	}
	local := topology.InstanceChange{Source: "shared", Full: true}
	for _, i := range running {
		local.Put = append(local.Put, i)
	}
	change.Instances = []topology.InstanceChange{local}
	for _, other := range w.clusters {
		if object, ok := objects[catalog.Key{Kind: catalog.KindCluster, Name: other.name}].(*catalog.Cluster); ok {
			change.Peers = append(change.Peers, w.says(other, c, object))
		}
	}
	f := fresh{views: map[catalog.App]*catalog.View{}}
	for _, u := range g.Apply(change) {
		for _, v := range u.Views {
			f.views[v.App] = v.View
		}
		if u.Open != nil {
			f.open = u.Open
		}
	}
	return f
}

// says is what one cluster has to say to another.
func (w *world) says(by, to *cluster, object *catalog.Cluster) topology.PeerChange {
	change := topology.PeerChange{Cluster: by.name, Full: true, Lease: topology.Fresh}
	_, running, _ := by.instances.newest()
	for _, a := range apps {
		e := topology.PeerExport{App: a}
		for _, allow := range w.exportedNow(by.name, a) {
			if allow.Cluster == "" || allow.Cluster == "*" || allow.Cluster == to.name {
				e.Allow = append(e.Allow, catalog.Allow{Cluster: to.name, Namespace: allow.Namespace, App: allow.App})
			}
		}
		if len(e.Allow) == 0 {
			continue
		}
		addresses := ready(running, a)
		e.Ready, e.Instances = uint32(len(addresses)), catalog.InstanceTokens(addresses)
		if len(addresses) > 1 {
			e.Shards = e.Ready
		}
		for _, i := range running {
			if i.App == a && i.Draining {
				e.Draining++
			}
		}
		if w.reachesPods(to, object, by) {
			e.Addresses = addresses
		}
		if _, theirs, _ := by.objects.newest(); !onNetwork(theirs, by, to) {
			e.Instances = catalog.InstanceTokens(addresses)
		}
		change.Put = append(change.Put, e)
	}
	return change
}

// differs compares a caller's view with the one that was made afresh.
func (f fresh) differs(caller catalog.App, view *catalog.View, ramps bool) string {
	want := f.views[caller]
	if want == nil {
		want = f.open
	}
	for edit := range view.Entries.Diff(&want.Entries, func(a, b *catalog.Entry) bool { return same(a, b, ramps) }) {
		made, _ := want.Entries.Get(edit.App)
		return fmt.Sprintf("its entry for %s is %s; made afresh it is %s", edit.App, told(edit.Value), told(made))
	}
	if !view.Gateways.Equal(want.Gateways) {
		return fmt.Sprintf("its gateways are %v; made afresh they are %v", view.Gateways.Addresses, want.Gateways.Addresses)
	}
	return ""
}

func told(e *catalog.Entry) string {
	if e == nil {
		return "none"
	}
	return fmt.Sprintf("%+v by %s", e.Routes, e.Rule)
}

// same compares what entries lead to, and what their rule reads like: an object that was
// stored again as it is stays the one that it was.
func same(a, b *catalog.Entry, ramps bool) bool {
	plain := func(e *catalog.Entry) *catalog.Entry {
		routes := slices.Clone(e.Routes)
		for i := range routes {
			if !ramps {
				routes[i].Ramp = 0
			}
		}
		return catalog.NewEntry(e.App, catalog.TextRule(e.Rule.String()), routes)
	}
	return plain(a).Same(plain(b))
}
