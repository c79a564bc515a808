package topology

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// guestTake is a take of a guest, kept at the app that is called.
type guestTake struct {
	*cluster
	catalog.Take
}

// guest is what the cluster may do as one that joins for a while; nil for an ordinary cluster.
func (c *cluster) guest() *catalog.Guest {
	if c == nil || c.object == nil {
		return nil
	}
	return c.object.Guest
}

// refuses tells whether an export of the cluster does not count: a guest has its own apps alone, and
// no actor types.
func (c *cluster) refuses(app catalog.App) bool {
	g := c.guest()
	return g != nil && !slices.Contains(g.Apps, app)
}

// isKnown tells whether the app is here, or with another cluster whose export counts.
func (ns *nodes) isKnown(n *node) bool {
	return n.present() || slices.ContainsFunc(n.remote, func(i imported) bool { return !ns.clusters[i.cluster].refuses(n.app) })
}

// setGuest replaces what a cluster may do as a guest; either may be nil. Its object is the new one.
func (ss *selections) setGuest(c *cluster, old, next *catalog.Guest) {
	if reflect.DeepEqual(old, next) {
		return
	}
	var none catalog.Guest
	was, is := cmp.Or(old, &none), cmp.Or(next, &none)
	apps := slices.Concat(was.Apps, is.Apps)
	for _, app := range apps {
		ss.reachGuests(ss.node(app))
		delete(ss.node(app).guests, c)
	}
	if delete(ss.guests, c); next != nil {
		ss.guests[c] = struct{}{}
	}
	for _, app := range is.Apps {
		n := ss.node(app)
		if n.guests == nil {
			n.guests = map[*cluster]struct{}{}
		}
		n.guests[c] = struct{}{}
	}
	for _, t := range was.Takes {
		n := ss.node(t.App)
		n.takes = slices.DeleteFunc(n.takes, func(t guestTake) bool { return t.cluster == c })
	}
	for _, t := range is.Takes {
		n := ss.node(t.App)
		n.takes = append(n.takes, guestTake{c, t})
		slices.SortStableFunc(n.takes, guestTake.compare)
	}
	ss.dirty.tunnel(c, slices.Collect(maps.Keys(c.exports))...)
	for _, app := range apps {
		n := ss.node(app)
		ss.reselect(n)
		ss.reachGuests(n)
		ss.takesChanged(n)
		ss.release(n)
	}
	ss.dirty.peer(c.name)
	ss.dirty.guests = true
}

// compare puts takes by header first, which are more exact, and then the clusters in order.
func (t guestTake) compare(o guestTake) int {
	all := func(t guestTake) int {
		if t.Header == (catalog.HeaderValue{}) {
			return 1
		}
		return 0
	}
	return cmp.Or(all(t)-all(o), cmp.Compare(t.name, o.name))
}

// takesChanged reaches the callers of an app whose calls guests take, or took.
func (ns *nodes) takesChanged(n *node) {
	for caller := range n.callers {
		ns.dirty.entry(caller, n)
	}
	ns.dirty.present(n)
}

// guestChanged reaches the callers whose calls a guest takes, if the cluster is one.
func (ns *nodes) guestChanged(c *cluster) {
	if g := c.guest(); g != nil {
		for _, t := range g.Takes {
			ns.takesChanged(ns.node(t.App))
		}
	}
}

// takenBy tells whether a guest takes calls to an app.
func (n *node) takenBy(c *cluster) bool {
	return slices.ContainsFunc(n.takes, func(t guestTake) bool { return t.cluster == c })
}

// takes are the routes to guests that take calls of a caller to an app; a nil caller is any without a
// selection.
func (vs *views) takes(caller, callee *node) (all []catalog.TakenRoute) {
	for _, t := range callee.takes {
		if t.Caller != (catalog.App{}) && (caller == nil || caller.app != t.Caller) {
			continue
		}
		w := &callerReachability{vs, caller, callee, false, false}
		all = append(all, catalog.TakenRoute{Header: t.Header, Until: t.object.Guest.Until, Route: w.taken(t.cluster)})
	}
	return all
}

// taken is the route to a guest. It leads nowhere once the guest's word does not hold.
func (w *callerReachability) taken(c *cluster) catalog.Route {
	r := w.from(c)
	if r.State == catalog.Damped { // its word holds, and no other caller depends on it
		r.State = catalog.Ready
	}
	if r.State == catalog.Lapsed {
		r = catalog.Route{State: catalog.LeaseExpired}
	}
	r.RouteSpec, r.Ramp = catalog.RouteSpec{Cluster: c.name, Weight: catalog.DefaultWeight}, 0
	return r
}

// own is what an endpoint's entry has of its own for a caller, with the routes to guests.
func (vs *views) own(caller, callee *node, e *catalog.Endpoint) *catalog.Own {
	return withTakes(e.For(caller.app), vs.takes(caller, callee))
}

func withTakes(own *catalog.Own, takes []catalog.TakenRoute) *catalog.Own {
	if len(takes) == 0 {
		return own
	}
	if own == nil {
		own = &catalog.Own{}
	}
	own.Takes = takes
	return own
}

// reachGuests marks the apps that a guest's app may call, or might: they are exported to the guest.
func (ns *nodes) reachGuests(n *node) {
	if n.selection == nil {
		for _, other := range ns.apps {
			if other.present() {
				ns.dirty.exported(other)
			}
		}
		return
	}
	for i := range n.selection.Endpoints {
		if callee := ns.apps[n.selection.Endpoints[i].App]; callee != nil {
			ns.dirty.exported(callee)
		}
	}
}

// guestCallers are the apps of a guest that may call an app here: what each may call as an app of this
// cluster. No AppExport says more or less.
func (ns *nodes) guestCallers(n *node, guest *cluster) (allow []catalog.Allow) {
	for _, app := range guest.guest().Apps {
		if caller := ns.apps[app]; caller != nil && caller != n && ns.mayCall(caller, n) {
			allow = append(allow, catalog.Allow{Cluster: guest.name, Namespace: app.Namespace, App: app.ID})
		}
	}
	return allow
}

// mayCall tells whether an app may call another one here.
func (ns *nodes) mayCall(caller, callee *node) bool {
	if caller.selection == nil {
		return ns.cfg.Open && callee.present() && catalog.CheckHostAppID(callee.app.ID) == nil
	}
	index, ok := callee.callers[caller]
	return ok && index != selfIndex && ns.leadsHere(&caller.selection.Endpoints[index])
}

// guestsLetIn are the apps of guests that the guard of an app lets in: where it lets in the apps of this
// cluster that they are. Each guest has certificates of a trust domain of its own.
func (as *accesses) guestsLetIn(n *node) (all []catalog.RemoteCaller) {
	for c := range as.guests {
		for _, a := range as.guestCallers(n, c) {
			caller := catalog.App{Namespace: a.Namespace, ID: a.App}
			opens := as.apps[caller].selection == nil || as.selects(n.app, caller)
			if domain := c.object.Trust.AppsDomain(); domain != "" && opens && as.consents(n.app, caller) {
				all = append(all, catalog.RemoteCaller{Cluster: c.name, Domain: domain, Namespace: a.Namespace, App: a.App})
			}
		}
	}
	return all
}

// remoteRule names the object that lets a caller of another cluster in.
func (ns *nodes) remoteRule(n *node, cluster string) (catalog.Key, string) {
	if c := ns.clusters[cluster]; c.guest() != nil {
		return c.object.Key(), c.object.Source.Of(c.object.Key())
	}
	return n.export.Key(), n.export.Source.Of(n.export.Key())
}

// allowedFrom are the callers of a peer that may call an app here.
func (ns *nodes) allowedFrom(n *node, peer string) []catalog.Allow {
	if c := ns.clusters[peer]; c.guest() != nil {
		return ns.guestCallers(n, c)
	}
	if n.export == nil {
		return nil
	}
	return allowTo(n.export.Allow, peer)
}

// exportedToGuest tells whether some guest may call an app.
func (ns *nodes) exportedToGuest(n *node) bool {
	for c := range ns.guests {
		if len(ns.guestCallers(n, c)) > 0 {
			return true
		}
	}
	return false
}

// flushTaken brings the views up to date of apps without a selection whose calls guests take all: the
// view of all such apps, but for these calls.
func (vs *views) flushTaken(u *Update) {
	edits := map[*node][]catalog.Edit[*catalog.Entry]{}
	for c := range vs.guests {
		for _, t := range c.guest().Takes {
			caller, callee := vs.apps[t.Caller], vs.apps[t.App]
			if vs.cfg.Open && caller != nil && (caller.present() || caller.followed) && caller.selection == nil && callee.present() {
				e := vs.localEntry(callee, catalog.Rule{})
				e.Own = withTakes(nil, vs.takes(caller, callee))
				edits[caller] = append(edits[caller], catalog.Edit[*catalog.Entry]{App: t.App, Value: e})
			}
		}
	}
	for n := range vs.taken {
		if edits[n] == nil && n.selection == nil {
			vs.remember(n)
			n.view = nil
			u.Views = append(u.Views, ViewUpdate{App: n.app})
		}
	}
	clear(vs.taken)
	for n, edits := range edits {
		vs.taken[n] = struct{}{}
		u.Views = slices.DeleteFunc(u.Views, func(v ViewUpdate) bool { return v.App == n.app }) // it has just lost its selection
		next := &catalog.View{
			Revision: u.Revision, Open: true, Entries: vs.open.Entries.With(edits...), Gateways: vs.guestGateways(), Rule: vs.open.Rule,
		}
		if n.view == nil || !n.view.Gateways.Equal(next.Gateways) || differ(&next.Entries, &n.view.Entries) {
			vs.remember(n)
			n.view = next
			u.Views = append(u.Views, ViewUpdate{n.app, next})
		}
	}
}

func differ(a, b *catalog.Table[*catalog.Entry]) bool {
	for range a.Diff(b, (*catalog.Entry).Same) {
		return true
	}
	return false
}

// guestGateways are the gateways that the views of apps without a selection lead to.
func (vs *views) guestGateways() *catalog.Gateways {
	names := make([]string, 0, len(vs.guests))
	for c := range vs.guests {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return vs.gateways(names)
}
