package topology

import (
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// views are what callers see: a view for each app with a selection, and one for all others.
type views struct {
	*nodes
	ramps     *ramps
	interests *interests
	open      *catalog.View                // of every app without a selection
	taken     map[*node]struct{}           // apps without a selection whose calls guests take all
	shared    map[string]*catalog.Gateways // by the clusters they name
}

func newViews(ns *nodes, rs *ramps, in *interests) *views {
	vs := &views{nodes: ns, ramps: rs, interests: in, taken: map[*node]struct{}{}, shared: map[string]*catalog.Gateways{}}
	vs.open = &catalog.View{Open: ns.cfg.Open, Gateways: vs.gateways(nil), Rule: catalog.ClosedRule}
	if ns.cfg.Open {
		vs.open.Rule = catalog.DefaultRule
	}
	return vs
}

// renumberOpen gives the view of apps without a selection the update's revision when
// an app has just lost its own, so that this app sees no revision go backwards.
func (vs *views) renumberOpen(u *Update) {
	lost := slices.ContainsFunc(u.Views, func(v ViewUpdate) bool { return v.View == nil })
	if lost && u.Open == nil {
		vs.open = vs.open.Renumbered(u.Revision)
		u.Open = vs.open
	}
}

// rebuild computes an app's whole view; entries that come out as they were are kept.
func (vs *views) rebuild(n *node, revision uint64) ViewUpdate {
	if n.selection == nil {
		return ViewUpdate{App: n.app}
	}
	vs.remember(n)
	n.uses = nil
	entries := make([]catalog.Edit[*catalog.Entry], 0, len(n.selection.Endpoints)+1)
	keep := func(callee *node, index int32) {
		e := vs.entry(n, callee, index)
		if hides(n, callee, e) {
			return
		}
		if n.view != nil {
			if old, ok := n.view.Entries.Get(e.Name()); ok && old.Same(e) {
				e = old
			}
		}
		n.count(e, 1)
		entries = append(entries, catalog.Edit[*catalog.Entry]{App: e.Name(), Value: e})
	}
	keep(n, selfIndex)
	for i := range n.selection.Endpoints {
		if callee := vs.apps[n.selection.Endpoints[i].App]; callee.callers[n] == int32(i) {
			keep(callee, int32(i))
		}
	}
	n.view = &catalog.View{Revision: revision, Entries: catalog.NewTable(entries), Gateways: vs.gatewaysFor(n), Rule: n.selection.Rule()}
	return ViewUpdate{n.app, n.view}
}

// refresh computes single entries of an app's view.
func (vs *views) refresh(n *node, callees map[*node]struct{}, u *Update) {
	edits := make([]catalog.Edit[*catalog.Entry], 0, len(callees))
	for callee := range callees {
		index, ok := callee.callers[n]
		if !ok {
			continue
		}
		next := vs.entry(n, callee, index)
		if hides(n, callee, next) {
			continue
		}
		old, had := n.view.Entries.Get(next.Name())
		if had && old.Same(next) {
			continue
		}
		if had {
			n.count(old, -1)
		}
		n.count(next, 1)
		edits = append(edits, catalog.Edit[*catalog.Entry]{App: next.Name(), Value: next})
	}
	gateways := vs.gatewaysFor(n)
	if len(edits) == 0 && gateways.Equal(n.view.Gateways) {
		return
	}
	vs.remember(n)
	n.view = &catalog.View{Revision: u.Revision, Entries: n.view.Entries.With(edits...), Gateways: gateways, Rule: n.view.Rule}
	u.Views = append(u.Views, ViewUpdate{n.app, n.view})
}

// hides tells whether an entry would take the name of the caller itself, as one of a default may.
func hides(n, callee *node, e *catalog.Entry) bool { return e.Name() == n.app && callee != n }

// count notes which clusters' gateways an entry leads to.
func (n *node) count(e *catalog.Entry, by int) {
	for i := range e.Routes {
		n.countRoute(&e.Routes[i], by)
	}
	for i := range e.Takes() {
		n.countRoute(&e.Takes()[i].Route, by)
	}
}

func (n *node) countRoute(r *catalog.Route, by int) {
	if !r.Gateway {
		return
	}
	if n.uses == nil {
		n.uses = map[string]int{}
	}
	if n.uses[r.Cluster] += by; n.uses[r.Cluster] == 0 {
		delete(n.uses, r.Cluster)
	}
}

func (vs *views) gatewaysFor(n *node) *catalog.Gateways {
	return vs.gateways(slices.Sorted(maps.Keys(n.uses)))
}

// flushOpen brings the view of apps without a selection up to date.
func (vs *views) flushOpen(d *dirty, u *Update) {
	if !vs.cfg.Open {
		if d.all {
			vs.open = vs.open.Renumbered(u.Revision)
			u.Open = vs.open
		}
		return
	}
	edits, gateways := vs.openEdits(d.presents), vs.guestGateways()
	if len(edits) > 0 || d.all || !gateways.Equal(vs.open.Gateways) {
		vs.open = &catalog.View{Revision: u.Revision, Open: true, Entries: vs.open.Entries.With(edits...), Gateways: gateways, Rule: vs.open.Rule}
		u.Open = vs.open
	}
	vs.flushTaken(u)
}

func (vs *views) openEdits(touched map[*node]struct{}) []catalog.Edit[*catalog.Entry] {
	var edits []catalog.Edit[*catalog.Entry]
	for n := range touched {
		old, had := vs.open.Entries.Get(n.app)
		if !n.present() {
			if had && !vs.stillPresent(n) {
				edits = append(edits, catalog.Edit[*catalog.Entry]{App: n.app, Remove: true})
			}
			continue
		}
		next := vs.localEntry(n, catalog.Rule{})
		next.Own = withTakes(nil, vs.takes(nil, n))
		if !had || !old.Same(next) {
			edits = append(edits, catalog.Edit[*catalog.Entry]{App: n.app, Value: next})
		}
	}
	return edits
}

// stillPresent tells whether an app that was released has come back as another node.
func (vs *views) stillPresent(n *node) bool {
	now := vs.apps[n.app]
	return now != nil && now.present()
}

// fewGateways are kept for sharing, beside two for each view, whether or not a view has them.
const fewGateways = 64

// gateways is the one value for a set of clusters, sorted, so that views which lead
// to the same clusters share it.
func (vs *views) gateways(names []string) *catalog.Gateways {
	key := strings.Join(names, ",")
	if have := vs.shared[key]; have != nil {
		return have
	}
	if len(vs.shared) >= fewGateways+2*vs.counts.Views {
		clear(vs.shared) // half of them at least are those of no view any more
	}
	made := &catalog.Gateways{Domain: vs.cfg.Domain, Addresses: make(map[string][]string, len(names))}
	for _, name := range names {
		if c := vs.clusters[name]; c != nil && c.object != nil {
			made.Addresses[name] = c.object.Gateways
		}
	}
	vs.shared[key] = made
	return made
}
