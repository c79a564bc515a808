package topology

import (
	"context"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Subscription follows the view of one app: that of its selection, or that of apps
// without one. It skips views that came and went while nobody looked.
type Subscription struct {
	t   *Topology
	app catalog.App
	own *published[*catalog.View]
}

// Subscribe follows an app's view until Close.
func (t *Topology) Subscribe(app catalog.App) *Subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.views[app]
	if p == nil {
		p = &published[*catalog.View]{}
		t.views[app] = p
	}
	p.users++
	return &Subscription{t, app, p}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.own.users--
	if s.own.users == 0 && !s.own.stands {
		delete(s.t.views, s.app)
	}
}

// View is the app's view as it stands; ok is false until the store's full set is in.
func (s *Subscription) View() (view *catalog.View, ok bool) {
	if own, _ := s.own.value.Load(); own != nil {
		return own, true
	}
	view, ok = s.t.open.Load()
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
		view, _, openChanged = s.t.open.Follow()
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

// FollowOpen follows the view of apps without a selection.
func (t *Topology) FollowOpen() (view *catalog.View, changed <-chan struct{}) {
	view, _, changed = t.open.Follow()
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

// PeerSubscription follows what one peer may know.
type PeerSubscription struct {
	t   *Topology
	own *published[*PeerView]
}

// Peer follows what a peer may know until Close. The topology keeps a peer's view for
// as long as somebody follows it.
func (t *Topology) Peer(ctx context.Context, name string) (*PeerSubscription, error) {
	t.mu.Lock()
	p := t.peers[name]
	if p == nil {
		p = &published[*PeerView]{}
		t.peers[name] = p
	}
	p.users++
	t.mu.Unlock()
	s := &PeerSubscription{t, p}
	err := t.ask(ctx, func(g *Graph) {
		t.forgetPeers(g)
		if _, started := p.value.Load(); !started && g.synced {
			p.value.Store(g.Peer(name))
		} else if !started {
			g.Peer(name) // published with the store's full set
		}
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// forgetPeers stops keeping the views of peers that nobody follows any more. It is done
// when another comes, so that their number stays that of the peers there are.
func (t *Topology) forgetPeers(g *Graph) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, p := range t.peers {
		if p.users == 0 {
			delete(t.peers, name)
			g.ForgetPeer(name)
		}
	}
}

// Close ends the subscription.
func (s *PeerSubscription) Close() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.own.users--
}

// View is what the peer may know as it stands; ok is false until the store's full set
// is in.
func (s *PeerSubscription) View() (view *PeerView, ok bool) { return s.own.value.Load() }

// Follow is View with a channel that is closed once there is another view. view is nil
// where there is none.
func (s *PeerSubscription) Follow() (view *PeerView, ok bool, changed <-chan struct{}) {
	return s.own.value.Follow()
}

// peerOf is where a peer's view is published; nil once nobody follows it.
func (t *Topology) peerOf(name string) *published[*PeerView] {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[name]
	if p != nil && p.users == 0 {
		delete(t.peers, name)
		return nil
	}
	return p
}
