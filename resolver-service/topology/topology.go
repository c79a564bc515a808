package topology

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// Topology owns a graph in one goroutine and publishes its results. Its other methods may be called
// from any goroutine.
type Topology struct {
	often    *throttle.Log // for lines that others can cause
	requests chan func(*Graph)
	done     chan struct{} // closed when Run has ended

	head
	settled atomic.Bool
	origins origins

	graph *Graph    // of the owner goroutine
	start time.Time // from when Change.Now counts

	peers     *onDemand[PeerKey, *PeerView]
	accesses  *onDemand[catalog.App, *catalog.Access]
	actors    *onDemand[string, *catalog.ActorView]
	interests *onDemand[string, *Need]

	views viewPublisher
}

// viewPublisher has the views of apps, and who follows them.
type viewPublisher struct {
	open     live.Value[*catalog.View]       // of apps without a selection
	defaults atomic.Pointer[map[string]bool] // namespaces with a default
	kick     chan struct{}                   // has room for one: pending is not empty

	mu      sync.Mutex // guards the two maps, never held while publishing
	views   map[catalog.App]*published[*catalog.View]
	pending map[catalog.App]struct{} // the graph does not know yet whether somebody follows them
}

// published is a value that somebody follows, or that stands for those to come.
type published[T any] struct {
	value  live.Value[T]
	users  int
	stands bool // a view is published here, or is about to be: it stays without users
}

// New makes a topology without anything in it. Run makes it work.
func New(cfg Config, log *slog.Logger) *Topology {
	t := &Topology{
		often:    throttle.New(log, throttle.Interval),
		requests: make(chan func(*Graph)),
		done:     make(chan struct{}),
		graph:    NewGraph(cfg),
		start:    time.Now(),
		views: viewPublisher{
			kick: make(chan struct{}, 1), views: map[catalog.App]*published[*catalog.View]{}, pending: map[catalog.App]struct{}{},
		},
		peers:     newOnDemand[PeerKey, *PeerView](func(g *Graph, key PeerKey) { delete(g.exports.peers, key) }),
		accesses:  newOnDemand[catalog.App, *catalog.Access](func(g *Graph, app catalog.App) { g.accesses.forget(app) }),
		actors:    newOnDemand[string, *catalog.ActorView](func(g *Graph, namespace string) { delete(g.actors.views, namespace) }),
		interests: newOnDemand[string, *Need](func(g *Graph, cluster string) { delete(g.interests.kept, cluster) }),
	}
	t.stats.Store(&Stats{})
	return t
}

// Run owns the graph until ctx ends.
func (t *Topology) Run(ctx context.Context) error {
	defer close(t.done)
	step := newStepTimer()
	defer step.Stop()
	for {
		step.set(t)
		select {
		case request := <-t.requests:
			request(t.graph)
		case <-t.views.kick:
			t.publish(t.graph, t.apply(Change{Followed: t.views.followers()}))
		case <-step.C:
			step.at = never
			t.publish(t.graph, t.apply(Change{}))
		case <-ctx.Done():
			return nil
		}
	}
}

// apply stamps a change with the time and applies it, in the owner's goroutine.
func (t *Topology) apply(c Change) []Update {
	c.Now = time.Since(t.start)
	if t.settled.Load() {
		t.graph.Settle()
	}
	return t.graph.Apply(c)
}

// Settle says that sources of instances and other clusters have had the time to report. From then
// on, traffic comes back in steps to instances that are ready again.
func (t *Topology) Settle() { t.settled.Store(true) }

// ask has the owner run f and waits until it did.
func (t *Topology) ask(ctx context.Context, f func(*Graph)) error {
	answered := make(chan struct{})
	request := func(g *Graph) {
		defer close(answered)
		f(g)
	}
	select {
	case t.requests <- request:
		<-answered
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.done:
		return context.Canceled
	}
}

// Apply takes a change in and returns once its effects are published. Revision is that of the
// topology with the change in it.
func (t *Topology) Apply(ctx context.Context, c Change) (revision uint64, err error) {
	came := time.Now()
	err = t.ask(ctx, func(g *Graph) {
		updates := t.apply(c)
		t.origins.note(&c, updates, came)
		t.publish(g, updates)
		revision = g.Revision()
	})
	return revision, err
}

// Try tells what a change of objects would alter, without making it. inspect gets what would be
// known then, as in [Topology.Inspect].
func (t *Topology) Try(ctx context.Context, c ObjectChange, inspect func(Facts)) (effects Effects, err error) {
	if askErr := t.ask(ctx, func(g *Graph) { effects, err = g.Try(c, inspect) }); askErr != nil {
		return Effects{}, askErr
	}
	return effects, err
}

// AtLeast numbers an app's view from above a revision that one of its sidecars holds
// from another life of the service, or from another replica, so that no sidecar sees
// a revision go backwards.
func (t *Topology) AtLeast(ctx context.Context, app catalog.App, revision uint64) error {
	if revision <= t.viewRevision(app) {
		return nil
	}
	return t.ask(ctx, func(g *Graph) { t.publish(g, []Update{g.Raise(app, revision)}) })
}

func (t *Topology) viewRevision(app catalog.App) uint64 {
	s := t.Subscribe(app)
	defer s.Close()
	if v, ok := s.View(); ok {
		return v.Revision
	}
	return 0
}

// publish makes updates visible, one after the other, and what they count to before: who has
// seen one may ask.
func (t *Topology) publish(g *Graph, updates []Update) {
	stats := g.Stats()
	t.stats.Store(&stats)
	if len(g.defaults.of) > 0 || t.views.defaults.Load() != nil {
		now := make(map[string]bool, len(g.defaults.of))
		for namespace := range g.defaults.of {
			now[namespace] = true
		}
		t.views.keepDefaults(now)          // before views go that came from a default
		defer t.views.defaults.Store(&now) // after views have come that come from one
	}
	for i := range updates {
		t.publishOne(g, &updates[i])
	}
	if _, ready := t.ready.Load(); g.synced && !ready {
		t.ready.Store(true)
	}
}

// keepDefaults takes out the namespaces that have no default any more.
func (p *viewPublisher) keepDefaults(now map[string]bool) {
	old := p.defaults.Load()
	if old == nil {
		return
	}
	kept := maps.Clone(*old)
	maps.DeleteFunc(kept, func(namespace string, _ bool) bool { return !now[namespace] })
	if len(kept) == len(*old) {
		return
	}
	p.defaults.Store(&kept)
	if open, ok := p.open.Load(); ok {
		p.open.Store(open) // for those who wait for a view by the default, and never got one
	}
}

// publishOne makes an update visible, in the owner's goroutine: the values first, then
// the notice to each follower, then the revision that others are told of.
//
// The view of apps without a selection comes after the views of apps that have one by
// now, and before an app's own view goes: so whoever finds no view of its own finds
// that one as new as the own would be. Who has which address comes after the views, so
// that nobody who comes with a selection is taken for one without.
func (t *Topology) publishOne(g *Graph, u *Update) {
	for app, access := range u.Access { // first, so that a callee knows its callers before they come
		t.accesses.publish(g, app, access)
	}
	t.views.publishViews(u.Views, func(v ViewUpdate) bool { return v.View != nil })
	if u.Open != nil {
		t.views.open.Store(u.Open)
	}
	t.views.publishViews(u.Views, func(v ViewUpdate) bool { return v.View == nil })
	if u.Gateway != nil {
		t.gateway.Store(u.Gateway)
	}
	for key, view := range u.Peers {
		t.peers.publish(g, key, view)
	}
	for namespace, view := range u.Actors {
		t.actors.publish(g, namespace, view)
	}
	for cluster, apps := range u.Interests {
		t.interests.publish(g, cluster, apps)
	}
	if u.Callers != nil {
		t.callers.Store(u.Callers)
	}
	if u.Clusters != nil {
		t.clusters.Store(u.Clusters)
	}
	for _, o := range g.owners.takeovers {
		t.often.Warn("takeover "+o.to.String(), "address reassigned from one app to another", "address", o.address.String(),
			"app", o.to.String(), "source", o.source, "formerApp", o.from.String())
	}
	g.owners.takeovers = nil
	for _, r := range g.selections.remarks {
		t.often.Warn(r.text+r.app.String(), r.text, "app", r.app.String())
	}
	g.selections.remarks = nil
	g.tellOutages()
	for _, w := range g.exports.warnings {
		t.often.Warn("kept of "+w.app.String(), "other clusters do not reach instances of an exported app; calls of this cluster do", "app", w.app.String(), "instances", w.kept.Count, "err", w.kept.String())
	}
	g.exports.warnings = nil
	t.publishRevision(u.Revision)
}

func (p *viewPublisher) publishViews(views []ViewUpdate, which func(ViewUpdate) bool) {
	for _, v := range views {
		if !which(v) {
			continue
		}
		if one := p.viewOf(v); one != nil {
			one.value.Store(v.View)
		}
	}
}

// viewOf is where an app's view is published; nil when there is nobody to tell and
// nothing to keep.
func (p *viewPublisher) viewOf(v ViewUpdate) *published[*catalog.View] {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.views[v.App]
	switch {
	case one == nil && v.View != nil:
		one = &published[*catalog.View]{}
		p.views[v.App] = one
	case one != nil && v.View == nil && one.users == 0:
		delete(p.views, v.App)
	}
	if one != nil {
		one.stands = v.View != nil
	}
	return one
}

// Resolve makes one lookup for a caller and says why it ended as it did.
func (t *Topology) Resolve(caller, app catalog.App) catalog.Decision {
	return t.ResolveCall(caller, app, nil)
}

// ResolveCall is [Topology.Resolve] for a call with these headers, which guests may take.
func (t *Topology) ResolveCall(caller, app catalog.App, headers []catalog.HeaderValue) catalog.Decision {
	s := t.Subscribe(caller)
	defer s.Close()
	v, ok := s.View()
	if _, ready := t.ready.Load(); !ok && ready {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		v, _ = s.Next(ctx, nil) // that of a default, which is made for those who ask
		ok = v != nil
	}
	if !ok {
		return catalog.Decision{Outcome: catalog.NotReady, Reason: "the config store's full set has not arrived yet"}
	}
	if _, holds := v.Entries.Get(app); !holds && caller == app {
		return resolveSelf(t, app, v.Revision)
	}
	return v.ExplainCall(app, headers)
}

// resolveSelf is rule 1 for an app without a selection of its own.
func resolveSelf(t *Topology, app catalog.App, revision uint64) catalog.Decision {
	e, err := t.Self(context.Background(), app)
	if err != nil {
		return catalog.Decision{Outcome: catalog.NotReady, Reason: "the service is stopping"}
	}
	d := e.Explain()
	d.Revision = revision
	return d
}

// Self is what an app sees of itself (rule 1), where its view does not hold that: all its
// instances here. The error is that ctx or the topology has ended.
func (t *Topology) Self(ctx context.Context, app catalog.App) (e *catalog.Entry, err error) {
	err = t.ask(ctx, func(g *Graph) { e = g.views.self(app) })
	return e, err
}
