package topology

import (
	"context"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// accesses are who may call which app, of the apps that somebody follows.
type accesses struct {
	*nodes
	followed   map[catalog.App]*catalog.Access
	undeclared undeclared
	dirty      dirtyAccess
	notes      *fenceNotes // nil while nobody follows fences
}

// undeclared are the apps that run here without a selection, where those may call any.
type undeclared struct {
	all *catalog.AppSet
	in  map[string]*catalog.AppSet // by namespace, for its apps to share; never changed
}

// dirtyAccess is what a change has reached of the accesses that are followed.
type dirtyAccess struct {
	declared map[catalog.App]map[catalog.App]struct{} // by callee: callers whose selection has changed
	remote   map[catalog.App]struct{}                 // whose AppExport has changed
	clusters bool                                     // there is another cluster, or another trust domain
	put      []catalog.App                            // apps that are undeclared now
	removed  []catalog.App                            // those that were
}

func newAccesses(ns *nodes) *accesses {
	as := &accesses{nodes: ns, followed: map[catalog.App]*catalog.Access{}}
	as.dirty.reset()
	return as
}

func (d *dirtyAccess) reset() {
	*d = dirtyAccess{declared: map[catalog.App]map[catalog.App]struct{}{}, remote: map[catalog.App]struct{}{}}
}

// callerChanged notes that the selection of a caller holds an app now, or did.
func (as *accesses) callerChanged(callee catalog.App, caller *node) {
	as.notes.note(callee)
	if as.followed[callee] == nil {
		return
	}
	callers := as.dirty.declared[callee]
	if callers == nil {
		callers = map[catalog.App]struct{}{}
		as.dirty.declared[callee] = callers
	}
	callers[caller.app] = struct{}{}
}

func (as *accesses) exportChanged(app catalog.App) {
	as.dirty.remote[app] = struct{}{}
	as.notes.note(app)
}

// clusterChanged notes that a Cluster object is another, and what it was.
func (as *accesses) clusterChanged(old, next *catalog.Cluster) {
	if (old == nil) != (next == nil) || old != nil && (old.Trust.AppsDomain() != next.Trust.AppsDomain() || (old.Guest == nil) != (next.Guest == nil)) {
		as.dirty.clusters = true
	}
	as.notes.noteAll()
}

// admits tells whether the guard of an app lets a caller of this cluster in that has a selection.
func (as *accesses) admits(callee, caller catalog.App) bool {
	return as.consents(callee, caller) && as.selects(callee, caller)
}

// consents tells whether the callee's side takes calls of an app of this cluster: inside a namespace
// always, from another one by the callee's AppExport.
func (as *accesses) consents(callee, caller catalog.App) bool { return as.consenting(callee)(caller) }

// consenting is consents for one callee, as of now, also for other goroutines.
func (as *accesses) consenting(callee catalog.App) func(caller catalog.App) bool {
	consent, any := as.consentOf(callee), as.cfg.SelectionIsConsent
	return func(caller catalog.App) bool {
		return any || callee.Namespace == caller.Namespace || consent.has(caller)
	}
}

func (as *accesses) consentOf(callee catalog.App) allowed {
	if n := as.apps[callee]; n != nil {
		return n.consent
	}
	return nil
}

// selects tells whether the selection of a caller opens guards for a call of an app here.
func (as *accesses) selects(callee, caller catalog.App) bool {
	to, from := as.apps[callee], as.apps[caller]
	if to == nil || from == nil || from.selection == nil {
		return false
	}
	index, ok := to.callers[from]
	if !ok || index == selfIndex || !as.leadsHere(&from.selection.Endpoints[index]) {
		return false
	}
	return !from.selection.Endpoints[index].SelfDeclared || as.defaultHolds(caller, callee)
}

// defaultHolds tells whether the default that an app would follow, if it declared nothing, lets it
// call another here.
func (as *accesses) defaultHolds(caller, callee catalog.App) bool {
	d := as.defaults.follow(caller)
	if d == nil {
		return false
	}
	d = d.For(caller)
	return slices.ContainsFunc(d.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee && as.leadsHere(&e) })
}

func (ns *nodes) leadsHere(e *catalog.Endpoint) bool {
	for i := range e.Routes {
		if ns.isHere(e.Routes[i].Cluster) {
			return true
		}
	}
	return len(e.Routes) == 0
}

// whole is an app's access, from nothing.
func (as *accesses) whole(app catalog.App, revision uint64) *catalog.Access {
	var declared []catalog.App
	if n := as.apps[app]; n != nil {
		for caller := range n.callers {
			if as.admits(app, caller.app) {
				declared = append(declared, caller.app)
			}
		}
	}
	return &catalog.Access{
		Revision: revision, Mode: as.cfg.Guard, Declared: (*catalog.AppSet)(nil).With(declared, nil),
		Undeclared: as.undeclaredOf(app), Remote: as.remote(app),
	}
}

// sharesUndeclared is the set of apps without a selection that may call an app, where it shares one
// with others.
func (as *accesses) sharesUndeclared(app catalog.App) (shared *catalog.AppSet, ok bool) {
	consent := as.consentOf(app)
	if _, any := consent[catalog.App{}]; any || as.cfg.SelectionIsConsent {
		return as.undeclared.all, true
	}
	return as.undeclared.in[app.Namespace], len(consent) == 0
}

func (as *accesses) undeclaredOf(app catalog.App) *catalog.AppSet {
	set, shared := as.sharesUndeclared(app)
	if shared {
		return set
	}
	return set.With(as.consented(app, slices.Collect(as.undeclared.all.All())), nil)
}

// consented are those of some callers that an app consents to.
func (as *accesses) consented(app catalog.App, callers []catalog.App) []catalog.App {
	consents := as.consenting(app)
	return slices.DeleteFunc(slices.Clone(callers), func(caller catalog.App) bool { return !consents(caller) })
}

// remote is whom an app's AppExport lets in. An entry for any cluster is one for each Cluster
// object.
func (as *accesses) remote(app catalog.App) *catalog.RemoteCallers {
	n := as.apps[app]
	if n == nil {
		return nil
	}
	all := as.guestsLetIn(n)
	for _, c := range as.clusters {
		if n.export == nil || c.object == nil || c.guest() != nil {
			continue
		}
		for i := range n.export.Allow {
			if a := &n.export.Allow[i]; a.ForCluster(c.name) {
				all = append(all, catalog.RemoteCaller{
					Cluster: c.name, Domain: c.object.Trust.AppsDomain(), Namespace: orAny(a.Namespace), App: orAny(a.App),
				})
			}
		}
	}
	return catalog.NewRemoteCallers(all)
}

// orAny is a pattern of an AppExport with one spelling for any.
func orAny(pattern string) string {
	if pattern == "*" {
		return ""
	}
	return pattern
}

// flush brings the accesses up to date that a change has reached.
func (as *accesses) flush(all bool, presents map[*node]struct{}, u *Update) {
	put, removed := as.flushUndeclared(presents)
	if len(put)+len(removed) > 0 {
		as.notes.noteAll()
	}
	as.flushFences(all, presents)
	d := as.dirty
	as.dirty.reset()
	d.put, d.removed = put, removed
	if all || d.clusters || len(put)+len(removed) > 0 {
		for app, old := range as.followed {
			as.replace(app, old, &d, all, u)
		}
		return
	}
	for app := range d.declared {
		as.replace(app, as.followed[app], &d, false, u)
	}
	for app := range d.remote {
		if _, done := d.declared[app]; !done && as.followed[app] != nil {
			as.replace(app, as.followed[app], &d, false, u)
		}
	}
}

// replace computes what a change has reached of one access.
func (as *accesses) replace(app catalog.App, old *catalog.Access, d *dirtyAccess, all bool, u *Update) {
	if old == nil {
		return // it is not followed any more
	}
	next := *old
	if _, consent := d.remote[app]; consent || all {
		next = *as.whole(app, 0)
	} else if set, shared := as.sharesUndeclared(app); shared {
		next.Undeclared = set
	} else {
		next.Undeclared = next.Undeclared.With(as.consented(app, d.put), d.removed)
	}
	next.Revision = u.Revision
	var put, removed []catalog.App
	for caller := range d.declared[app] {
		if as.admits(app, caller) {
			put = append(put, caller)
		} else {
			removed = append(removed, caller)
		}
	}
	next.Declared = next.Declared.With(put, removed)
	if d.clusters {
		if remote := as.remote(app); !remote.Same(next.Remote) {
			next.Remote = remote
		}
	}
	if next.Same(old) && !all {
		return
	}
	as.remember(app, old)
	as.followed[app] = &next
	if u.Access == nil {
		u.Access = map[catalog.App]*catalog.Access{}
	}
	u.Access[app] = &next
}

// flushUndeclared brings the apps up to date that run here without a selection, and returns what has
// changed.
func (as *accesses) flushUndeclared(presents map[*node]struct{}) (put, removed []catalog.App) {
	if !as.cfg.Open {
		return nil, nil
	}
	for n := range presents {
		if now := as.apps[n.app]; now != nil && len(now.instances) > 0 && (now.selection == nil || now.selfDeclares() && as.defaults.follow(now.app) == nil) {
			put = append(put, n.app)
		} else {
			removed = append(removed, n.app)
		}
	}
	all := as.undeclared.all.With(put, removed)
	if put, removed = all.Diff(as.undeclared.all); len(put)+len(removed) == 0 {
		return nil, nil
	}
	of := map[string][2][]catalog.App{}
	for i, apps := range [...][]catalog.App{put, removed} {
		for _, app := range apps {
			edits := of[app.Namespace]
			edits[i] = append(edits[i], app)
			of[app.Namespace] = edits
		}
	}
	in := maps.Clone(as.undeclared.in)
	if in == nil {
		in = map[string]*catalog.AppSet{}
	}
	for namespace, edits := range of {
		if in[namespace] = in[namespace].With(edits[0], edits[1]); in[namespace].Len() == 0 {
			delete(in, namespace)
		}
	}
	as.undeclared = undeclared{all, in}
	return put, removed
}

// remember keeps an access that is about to be replaced while Try looks ahead.
func (as *accesses) remember(app catalog.App, old *catalog.Access) {
	if as.saved == nil {
		return
	}
	if _, ok := as.saved.accesses[app]; !ok {
		as.saved.accesses[app] = old
	}
}

// keep starts to keep who may call an app, and returns it.
func (as *accesses) keep(app catalog.App, revision uint64) *catalog.Access {
	if a := as.followed[app]; a != nil {
		return a
	}
	a := as.whole(app, revision)
	as.followed[app] = a
	return a
}

func (as *accesses) forget(app catalog.App) { delete(as.followed, app) }

// Access follows who may call an app until Close. The topology keeps that for as long as somebody
// follows it.
func (t *Topology) Access(ctx context.Context, app catalog.App) (*Followed[*catalog.Access], error) {
	return t.accesses.follow(ctx, t, app, func(g *Graph) *catalog.Access { return g.accesses.keep(app, g.revision) })
}
