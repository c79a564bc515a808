package topology

import (
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// ErrNotSynced says that the store's full set is not in yet, so that nothing can be
// told of a change.
var ErrNotSynced = errors.New("not ready: the config store's full set has not arrived yet")

// Try tells what a change of objects would alter, and leaves the graph as it was. The change
// must not be Full. inspect gets what would be known then, as in [Graph.Inspect].
func (g *Graph) Try(c ObjectChange, inspect func(Facts)) (effects Effects, err error) {
	allowed := g.allowedTo(&c)
	err = g.tryThen(c, func(before *saved, u *Update) {
		effects.Lookups = before.effects(g.views.open, u)
		effects.Exports = exportEffects(allowed, g.allowedTo(&c))
		inspect(Facts{g})
	})
	return effects, err
}

// tryThen calls f while a change of objects is made, and takes the change back.
func (g *Graph) tryThen(c ObjectChange, f func(before *saved, u *Update)) error {
	if !g.synced {
		return ErrNotSynced
	}
	before := save(g)
	undo := c.inverse(g.selections.objects)
	g.selections.takeObjects(&c)
	g.settleTried()
	update := g.flush()
	f(before, &update)
	g.selections.takeObjects(&undo)
	g.settleTried()
	g.flush()
	before.restore(g)
	return nil
}

// settleTried settles without the two parts that a change is published in.
func (g *Graph) settleTried() {
	clear(g.owners.served)
	g.settle()
	g.imports.settleDirect()
}

// saved is what has been served, to be served again after a Try.
type saved struct {
	revision    uint64
	open        *catalog.View
	gateway     *catalog.GatewayTable
	allGateways *catalog.Gateways
	peers       map[PeerKey]*PeerView
	views       map[catalog.App]*catalog.View
	accesses    map[catalog.App]*catalog.Access
	undeclared  undeclared
	actors      map[string]*catalog.ActorView
	interests   map[string]*Need
}

// save keeps what a graph serves.
func save(g *Graph) *saved {
	s := &saved{
		revision: g.revision, open: g.views.open, gateway: g.exports.gateway, allGateways: g.imports.gateways,
		peers: maps.Clone(g.exports.peers), views: map[catalog.App]*catalog.View{},
		accesses: map[catalog.App]*catalog.Access{}, undeclared: g.accesses.undeclared, actors: maps.Clone(g.actors.views), interests: maps.Clone(g.interests.kept),
	}
	g.saved = s
	return s
}

// remember keeps the view of an app that is about to get another one.
func (vs *views) remember(n *node) {
	if vs.saved == nil {
		return
	}
	if _, ok := vs.saved.views[n.app]; !ok {
		vs.saved.views[n.app] = n.view
	}
}

func (s *saved) restore(g *Graph) {
	g.revision, g.views.open, g.exports.gateway, g.imports.gateways, g.exports.peers, g.saved = s.revision, s.open, s.gateway, s.allGateways, s.peers, nil
	g.accesses.undeclared, g.actors.views, g.interests.kept = s.undeclared, s.actors, s.interests
	maps.Copy(g.accesses.followed, s.accesses)
	for app, view := range s.views {
		if n := g.apps[app]; n != nil && n.view != nil && view != nil {
			n.view = view
		}
	}
}

// inverse is the change that takes c back, where these objects stood before it.
func (c *ObjectChange) inverse(objects map[catalog.Key]catalog.Object) ObjectChange {
	var undo ObjectChange
	for key := range c.keys() {
		if old := objects[key]; old != nil {
			undo.Put = append(undo.Put, old)
		} else {
			undo.Delete = append(undo.Delete, key)
		}
	}
	return undo
}

// keys are those of all objects that the change names.
func (c *ObjectChange) keys() iter.Seq[catalog.Key] {
	return func(yield func(catalog.Key) bool) {
		for _, object := range c.Put {
			if !yield(object.Key()) {
				return
			}
		}
		for _, key := range c.Delete {
			if !yield(key) {
				return
			}
		}
	}
}

// effects compares what stood before with an update, after which open is the view of apps without a
// selection.
func (before *saved) effects(open *catalog.View, u *Update) []Effect {
	var effects []Effect
	for _, v := range u.Views {
		was, is := before.views[v.App], v.View
		if was == nil {
			was = before.open
		}
		if is == nil {
			is = open
		}
		effects = appendEffects(effects, v.App, was, is)
	}
	if u.Open != nil {
		effects = appendEffects(effects, catalog.App{}, before.open, u.Open)
	}
	slices.SortFunc(effects, func(a, b Effect) int {
		if c := a.Caller.Compare(b.Caller); c != 0 {
			return c
		}
		return a.App.Compare(b.App)
	})
	return effects
}

func appendEffects(effects []Effect, caller catalog.App, was, is *catalog.View) []Effect {
	for edit := range is.Entries.Diff(&was.Entries, (*catalog.Entry).SameRoutes) {
		effects = append(effects, Effect{Caller: caller, App: edit.App, Before: was.Explain(edit.App), After: is.Explain(edit.App)})
	}
	return effects
}
