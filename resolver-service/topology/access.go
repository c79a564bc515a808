package topology

import (
	"context"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// accesses are who may call which app, of the apps that somebody follows.
type accesses struct {
	*nodes
	followed   map[catalog.App]*catalog.Access
	undeclared *catalog.AppSet // apps that run here without a selection, for all to share
	dirty      dirtyAccess
	notes      *fenceNotes // nil while nobody follows fences
}

// dirtyAccess is what a change has reached of the accesses that are followed.
type dirtyAccess struct {
	declared map[catalog.App]map[catalog.App]struct{} // by callee: callers whose selection has changed
	remote   map[catalog.App]struct{}                 // whose AppExport has changed
	clusters bool                                     // there is another cluster, or another trust domain
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
	if (old == nil) != (next == nil) || old != nil && old.Trust.AppsDomain() != next.Trust.AppsDomain() {
		as.dirty.clusters = true
	}
	as.notes.noteAll()
}

// admits tells whether the selection of a caller lets it call an app of this cluster here.
func (as *accesses) admits(callee, caller catalog.App) bool {
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
	d := as.defaultOf(caller)
	if d == nil {
		return false
	}
	d = d.For(caller)
	return slices.ContainsFunc(d.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee && as.leadsHere(&e) })
}

func (as *accesses) leadsHere(e *catalog.Endpoint) bool {
	for i := range e.Routes {
		if as.isHere(e.Routes[i].Cluster) {
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
		Undeclared: as.undeclared, Remote: as.remote(app),
	}
}

// remote is whom an app's AppExport lets in. An entry for any cluster is one for each Cluster
// object.
func (as *accesses) remote(app catalog.App) *catalog.RemoteCallers {
	n := as.apps[app]
	if n == nil || n.export == nil {
		return nil
	}
	var all []catalog.RemoteCaller
	for _, c := range as.clusters {
		if c.object == nil {
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
	undeclared := as.undeclared
	as.flushUndeclared(presents)
	if as.undeclared != undeclared {
		as.notes.noteAll()
	}
	as.flushFences(all, presents)
	d := as.dirty
	as.dirty.reset()
	if all || d.clusters || as.undeclared != undeclared {
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
	if all {
		next = *as.whole(app, 0)
	}
	next.Revision, next.Undeclared = u.Revision, as.undeclared
	var put, removed []catalog.App
	for caller := range d.declared[app] {
		if as.admits(app, caller) {
			put = append(put, caller)
		} else {
			removed = append(removed, caller)
		}
	}
	next.Declared = next.Declared.With(put, removed)
	if _, changed := d.remote[app]; changed || d.clusters {
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

// flushUndeclared brings the apps up to date that run here without a selection.
func (as *accesses) flushUndeclared(presents map[*node]struct{}) {
	if !as.cfg.Open {
		return
	}
	var put, removed []catalog.App
	for n := range presents {
		if now := as.apps[n.app]; now != nil && len(now.instances) > 0 && (now.selection == nil || now.selfDeclares() && as.defaultOf(now.app) == nil) {
			put = append(put, n.app)
		} else {
			removed = append(removed, n.app)
		}
	}
	as.undeclared = as.undeclared.With(put, removed)
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
	return t.accesses.follow(ctx, t, app)
}
