package topology

import (
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// interests are the exports of other clusters of which this one wants to know all, by cluster, of those
// followed. Of others the name is enough: see [PeerExport.Named].
type interests struct {
	*nodes
	actors *actors
	kept   map[string]*Need
	now    time.Duration
	asked  map[asked]time.Duration // until when it is about to be answered, as Change.Now
	next   time.Duration           // the first of these times
}

func newInterests(ns *nodes, as *actors) *interests {
	return &interests{nodes: ns, actors: as, kept: map[string]*Need{}, asked: map[asked]time.Duration{}, next: never}
}

// Need is what this cluster needs of another one. It is immutable.
type Need struct {
	Apps *catalog.AppSet // all that the cluster says of these; of other apps the name
	// Used tells whether anything here may lead there: one of these apps, a route that names the
	// cluster, or actors.
	Used bool
	// Offers is the revision as of which the names of what this cluster exports to the other one are as
	// they are, or who may call them; 0: as of the start.
	Offers uint64
}

// interest marks an app that may be wanted of a cluster from now on, or no more.
func (d *dirty) interest(c *cluster, n *node) {
	d.need(c)
	d.interests[c.name][n] = struct{}{}
}

// need marks a cluster that may be used from now on, or no more.
func (d *dirty) need(c *cluster) {
	if d.interests[c.name] == nil {
		d.interests[c.name] = map[*node]struct{}{}
	}
}

// interestChanged marks an app whose callers have changed.
func (ns *nodes) interestChanged(n *node) {
	for i := range n.remote {
		if c := ns.clusters[n.remote[i].cluster]; c != nil {
			ns.dirty.interest(c, n)
		}
	}
}

// has tells whether somebody here may be led to an app that the cluster exports: by a selection,
// or by a default that an app may follow at any moment. Of guests everything is wanted.
func (in *interests) has(c *cluster, n *node) bool {
	switch _, exported := c.exports[n]; {
	case !exported:
		return false
	case c.guest() != nil || in.defaults.hold(n.app):
		return true
	}
	for caller, index := range n.callers {
		if index == selfIndex {
			continue
		}
		routes := caller.selection.Endpoints[index].Routes
		if len(routes) == 0 || slices.ContainsFunc(routes, func(r catalog.RouteSpec) bool { return r.Cluster == c.name }) {
			return true
		}
	}
	return false
}

// foretold tells whether a trial is what first leads to an app of a cluster. It then has what will be
// once the cluster has told all of the app.
func (ns *nodes) foretold(c *cluster, n *node) bool {
	if ns.saved == nil {
		return false
	}
	before := ns.saved.interests[c.name]
	return before != nil && !before.Apps.Has(n.app)
}

// asked is what a cluster was asked a moment ago: to tell all of an app or, with the zero app, to be
// heard at all.
type asked struct {
	cluster string
	app     catalog.App
}

// answerWithin is how long a cluster that is asked has to answer: as long as lookups wait by default.
const answerWithin = 2 * time.Second

func (in *interests) ask(what asked) {
	in.asked[what] = in.now + answerWithin
	in.next = min(in.next, in.asked[what])
}

// advance ends the time of clusters that should have answered.
func (in *interests) advance(now time.Duration) {
	in.now = max(in.now, now)
	if in.now < in.next {
		return
	}
	in.next = never
	for what, until := range in.asked {
		if in.now < until {
			in.next = min(in.next, until)
			continue
		}
		delete(in.asked, what)
		c, n := in.clusters[what.cluster], in.apps[what.app]
		if c != nil && what.app == (catalog.App{}) && c.unheard() {
			in.dirtyCluster(c)
		} else if n != nil {
			for caller := range n.callers {
				in.dirty.entry(caller, n)
			}
		}
	}
}

// untold is the state of a route to an app of which its cluster has not told all: that of one which was
// asked a moment ago, or is to be asked with this change.
func (in *interests) untold(c *cluster, n *node, serve bool) catalog.RouteState {
	need, what := in.kept[c.name], asked{c.name, n.app}
	if c.unheard() {
		what.app = catalog.App{}
	}
	gone := c.lapsed && !c.damped
	switch {
	case gone && !serve:
		return catalog.LeaseExpired
	case gone || c.silent || need == nil:
		return catalog.Unheard
	case in.now < in.asked[what], c.unheard() && !need.Used, !c.unheard() && !need.Apps.Has(n.app):
		return catalog.Asked
	}
	return catalog.Unheard
}

// unheard tells whether nothing of the cluster is relied on.
func (c *cluster) unheard() bool { return !c.heard || c.resting }

// keep starts to keep what is wanted of a cluster, and returns it.
func (in *interests) keep(cluster string) *Need {
	var apps []catalog.App
	c := in.clusters[cluster]
	if c != nil {
		for n := range c.exports {
			if in.has(c, n) {
				apps = append(apps, n.app)
			}
		}
	}
	var none *catalog.AppSet
	before := in.kept[cluster]
	now := in.need(c, none.With(apps, nil), before)
	in.told(cluster, before, now)
	in.kept[cluster] = now
	if c != nil && before == nil && c.unheard() {
		in.dirtyCluster(c) // it is asked from now on, so lookups wait for it
	}
	return now
}

func (in *interests) need(c *cluster, apps *catalog.AppSet, before *Need) *Need {
	now := &Need{Apps: apps, Used: apps.Len() > 0 || c != nil && (c.guest() != nil || len(c.named) > 0) || in.actors.used()}
	if before != nil {
		now.Offers = before.Offers
	}
	return now
}

// offer marks the clusters that an export allows something else from now on.
func (d *dirty) offer(old, next *catalog.AppExport) {
	var was, is []catalog.Allow
	if old != nil {
		was = old.Allow
	}
	if next != nil {
		is = next.Allow
	}
	for _, a := range slices.Concat(was, is) {
		if slices.Contains(was, a) != slices.Contains(is, a) && a.Cluster != catalog.LocalCluster {
			if a.Cluster == "*" {
				a.Cluster = ""
			}
			d.offers[a.Cluster] = struct{}{}
		}
	}
}

// told notes what a cluster is asked for by a need, in place of another one or of none.
func (in *interests) told(cluster string, before, now *Need) {
	if in.saved != nil {
		return
	}
	if before == nil {
		before = &Need{}
	}
	if now.Used && !before.Used {
		in.ask(asked{cluster: cluster})
	}
	more, _ := now.Apps.Diff(before.Apps)
	for _, app := range more {
		in.ask(asked{cluster, app})
	}
}

func (in *interests) flush(d *dirty, u *Update) {
	tell := func(cluster string, now *Need) {
		if u.Interests == nil {
			u.Interests = map[string]*Need{}
		}
		in.kept[cluster], u.Interests[cluster] = now, now
	}
	if d.all {
		for cluster := range in.kept {
			tell(cluster, in.keep(cluster))
		}
		return
	}
	if len(d.actorTypes)+len(d.actors) > 0 {
		for _, c := range in.clusters {
			d.need(c)
		}
	}
	for cluster, touched := range d.interests {
		kept, followed := in.kept[cluster]
		if !followed {
			continue
		}
		var put, removed []catalog.App
		c := in.clusters[cluster]
		for n := range touched {
			now := in.apps[n.app]
			if c != nil && now != nil && in.has(c, now) {
				put = append(put, n.app)
			} else {
				removed = append(removed, n.app)
			}
		}
		if now := in.need(c, kept.Apps.With(put, removed), kept); *now != *kept {
			in.told(cluster, kept, now)
			tell(cluster, now)
		}
	}
	_, all := d.offers[""]
	for cluster, kept := range in.kept {
		if _, one := d.offers[cluster]; all || one {
			now := *kept
			now.Offers = u.Revision
			tell(cluster, &now)
		}
	}
}
