package topology

import (
	"context"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Subscription follows the view of one app: that of its selection, or that of apps
// without one. It skips views that came and went while nobody looked.
type Subscription struct {
	all *viewPublisher
	app catalog.App
	own *published[*catalog.View]
}

// Subscribe follows an app's view until Close.
func (t *Topology) Subscribe(app catalog.App) *Subscription { return t.views.subscribe(app) }

func (p *viewPublisher) subscribe(app catalog.App) *Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.views[app]
	if own == nil {
		own = &published[*catalog.View]{}
		p.views[app] = own
	}
	if own.users++; own.users == 1 {
		p.followedChanged(app)
	}
	return &Subscription{p, app, own}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.own.users--; s.own.users > 0 {
		return
	}
	s.all.followedChanged(s.app)
	if !s.own.stands {
		delete(s.all.views, s.app)
	}
}

// followedChanged has the graph know whether somebody follows an app's view; mu is held.
func (p *viewPublisher) followedChanged(app catalog.App) {
	p.pending[app] = struct{}{}
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// followers returns what the graph does not know yet of who follows views.
func (p *viewPublisher) followers() map[catalog.App]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[catalog.App]bool, len(p.pending))
	for app := range p.pending {
		one := p.views[app]
		all[app] = one != nil && one.users > 0
	}
	clear(p.pending)
	return all
}

// hasDefault tells whether an app without a selection follows a default, so that the view of apps
// without a selection is not its view.
func (p *viewPublisher) hasDefault(app catalog.App) bool {
	all := p.defaults.Load()
	return all != nil && ((*all)[app.Namespace] || (*all)[catalog.DefaultName])
}

// View is the app's view as it stands; ok is false until the store's full set is in.
func (s *Subscription) View() (view *catalog.View, ok bool) {
	if own, _ := s.own.value.Load(); own != nil {
		return own, true
	}
	if s.all.hasDefault(s.app) {
		return nil, false // its own is about to come
	}
	view, ok = s.all.open.Load()
	if own, _ := s.own.value.Load(); own != nil {
		return own, true // it came first; see publish
	}
	return view, ok
}

// Follow is View with two channels, one of which is closed once there may be another view. The
// second is nil where only the first counts. view is nil where there is none.
func (s *Subscription) Follow() (view *catalog.View, changed, openChanged <-chan struct{}) {
	for {
		view, _, changed = s.own.value.Follow()
		if view != nil {
			return view, changed, nil
		}
		if s.all.hasDefault(s.app) {
			_, _, openChanged = s.all.open.Follow()
			return nil, changed, openChanged
		}
		view, _, openChanged = s.all.open.Follow()
		if own, _ := s.own.value.Load(); own == nil { // otherwise it came first; see publish
			return view, changed, openChanged
		}
	}
}

// FollowOwn is Follow for the view of the app's own selection; nil while the app has none.
func (s *Subscription) FollowOwn() (view *catalog.View, changed <-chan struct{}) {
	view, _, changed = s.own.value.Follow()
	return view, changed
}

// Owns tells whether the app has a view of its own, or is about to: by its selection, or by a
// default. The channel is closed once that may have changed.
func (s *Subscription) Owns() (owns bool, changed <-chan struct{}) {
	view, _, changed := s.own.value.Follow()
	return view != nil || s.all.hasDefault(s.app), changed
}

// FollowOpen follows the view of apps without a selection.
func (t *Topology) FollowOpen() (view *catalog.View, changed <-chan struct{}) {
	view, _, changed = t.views.open.Follow()
	return view, changed
}

// Next waits for a view other than seen, which may be nil, and returns it.
func (s *Subscription) Next(ctx context.Context, seen *catalog.View) (*catalog.View, error) {
	for {
		view, changed, openChanged := s.Follow()
		if view != nil && view != seen {
			return view, nil
		}
		select {
		case <-changed:
		case <-openChanged:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Answered waits until no other cluster is being asked for an app, and returns the view as of then.
// That is for seconds at most. ok is false where there is no view, or ctx has ended.
func (s *Subscription) Answered(ctx context.Context, app catalog.App) (view *catalog.View, ok bool) {
	return s.Until(ctx, func(v *catalog.View) bool {
		e, held := v.Entries.Get(app)
		return !held || !e.Awaited()
	})
}

// Until waits for a view that will do, and returns it. ok is false where there is no view, or ctx has
// ended.
func (s *Subscription) Until(ctx context.Context, does func(*catalog.View) bool) (view *catalog.View, ok bool) {
	for {
		view, changed, openChanged := s.Follow()
		if view == nil || does(view) {
			return view, view != nil
		}
		select {
		case <-changed:
		case <-openChanged:
		case <-ctx.Done():
			return view, false
		}
	}
}

// onDemand are values that the graph keeps for as long as somebody follows them.
type onDemand[K comparable, V any] struct {
	forget func(*Graph, K)

	mu     sync.Mutex // never held while publishing
	value  map[K]*published[V]
	unused []K // nobody followed them at some time since they were last looked at
}

func newOnDemand[K comparable, V any](forget func(*Graph, K)) *onDemand[K, V] {
	return &onDemand[K, V]{forget: forget, value: map[K]*published[V]{}}
}

// Followed is a value that somebody follows.
type Followed[V any] struct {
	own   *published[V]
	close func()
}

// follow has the graph keep a value until Close. keep starts to keep one, and returns it.
func (d *onDemand[K, V]) follow(ctx context.Context, t *Topology, key K, keep func(*Graph) V) (*Followed[V], error) {
	d.mu.Lock()
	p := d.value[key]
	if p == nil {
		p = &published[V]{}
		d.value[key] = p
	}
	p.users++
	d.mu.Unlock()
	f := &Followed[V]{p, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.users--; p.users == 0 {
			d.unused = append(d.unused, key)
		}
	}}
	err := t.ask(ctx, func(g *Graph) {
		d.forgetUnused(g)
		if _, started := p.value.Load(); !started && g.synced {
			p.value.Store(keep(g))
		} else if !started {
			keep(g) // published with the store's full set
		}
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// forgetUnused stops keeping values that nobody follows any more. It is done when another one
// comes, so that their number stays that of those followed.
func (d *onDemand[K, V]) forgetUnused(g *Graph) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range d.unused {
		if p := d.value[key]; p != nil && p.users == 0 {
			delete(d.value, key)
			d.forget(g, key)
		}
	}
	d.unused = nil
}

// publish stores a new value, unless nobody follows it any more: then the graph forgets it.
func (d *onDemand[K, V]) publish(g *Graph, key K, value V) {
	d.mu.Lock()
	p := d.value[key]
	if p != nil && p.users == 0 {
		delete(d.value, key)
		p = nil
	}
	d.mu.Unlock()
	if p == nil {
		d.forget(g, key)
		return
	}
	p.value.Store(value)
}

// Close ends the subscription.
func (f *Followed[V]) Close() { f.close() }

// View is the value as it stands; ok is false until the store's full set is in.
func (f *Followed[V]) View() (value V, ok bool) { return f.own.value.Load() }

// Follow is View with a channel that is closed once there is another value.
func (f *Followed[V]) Follow() (value V, ok bool, changed <-chan struct{}) {
	return f.own.value.Follow()
}

// Peer follows what a peer with an interest is told until Close. The topology keeps a view for as
// long as somebody follows it.
func (t *Topology) Peer(ctx context.Context, name string, by, before *Interest) (*Followed[*PeerView], error) {
	return t.peers.follow(ctx, t, by.Key(name), func(g *Graph) *PeerView { return g.peer(name, by, before) })
}

// Actors follows what the bridge of a namespace has to know, until Close.
func (t *Topology) Actors(ctx context.Context, namespace string) (*Followed[*catalog.ActorView], error) {
	return t.actors.follow(ctx, t, namespace, func(g *Graph) *catalog.ActorView { return g.actors.keepView(namespace, g.revision) })
}

// Need follows what this cluster needs of another one, until Close.
func (t *Topology) Need(ctx context.Context, cluster string) (*Followed[*Need], error) {
	f, err := t.interests.follow(ctx, t, cluster, func(g *Graph) *Need {
		g.interests.advance(time.Since(t.start))
		return g.interests.keep(cluster)
	})
	if err != nil {
		return nil, err
	}
	if _, err = t.Apply(ctx, Change{}); err != nil { // with what that alters
		f.Close()
		return nil, err
	}
	return f, nil
}
