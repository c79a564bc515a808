package peering

import (
	"context"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// toldInterest is what the peer of one stream knows of this cluster's interest in its exports. Where
// there are few links it is told of none, so it tells all of every app.
type toldInterest struct {
	from *topology.Followed[*topology.Need]
	all  bool
	told *catalog.AppSet
}

func (l *link) tellInterest() *toldInterest {
	return &toldInterest{from: l.need, all: !l.crowd.crowded()}
}

// maxInterest bounds the apps in one message. Others are in the next ones.
const maxInterest = 4000

// first is the interest for a stream's first request; nil: in every app.
func (t *toldInterest) first() *v1alpha1.Interest {
	if t.all {
		return nil
	}
	if news := t.news(); news != nil {
		return news
	}
	return &v1alpha1.Interest{}
}

// news is what the peer does not know yet; nil for nothing.
func (t *toldInterest) news() *v1alpha1.Interest {
	now := needs(t.from)
	if t.all || now == t.told {
		return nil
	}
	put, removed := now.Diff(t.told)
	if len(put)+len(removed) <= maxInterest {
		t.told = now
	} else {
		put = put[:min(len(put), maxInterest)]
		removed = removed[:min(len(removed), maxInterest-len(put))]
		t.told = t.told.With(put, removed)
	}
	m := &v1alpha1.Interest{}
	for _, app := range put {
		m.Put = append(m.Put, wire.App(app))
	}
	for _, app := range removed {
		m.Removed = append(m.Removed, wire.App(app))
	}
	return m
}

// outdated returns a channel that is closed once there may be news.
func (t *toldInterest) outdated() <-chan struct{} {
	if t.all {
		return nil
	}
	need, _, changed := t.from.Follow()
	if need != nil && need.Apps != t.told {
		return closed
	}
	return changed
}

// needs is the interest of this cluster in a peer's exports.
func needs(of *topology.Followed[*topology.Need]) *catalog.AppSet {
	if need, _ := of.View(); need != nil {
		return need.Apps
	}
	return nil
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// interest is of which exports the peer of one stream wants to know all: of every one, unless it has
// said otherwise.
type interest struct {
	live.Value[*topology.Interest]
	tooLarge bool // of the goroutine that takes it
}

// largestInterest bounds the apps that are kept for one stream. Who wants to know all of more is told
// all of every app.
const largestInterest = 10_000

// take takes in what a request says.
func (i *interest) take(m *v1alpha1.Interest) {
	if m == nil || i.tooLarge {
		return
	}
	var before *catalog.AppSet
	if now, _ := i.Load(); now != nil {
		before = now.Apps
	}
	if before.Len()+len(m.GetPut()) > largestInterest {
		i.tooLarge = true
		i.Store(nil)
		return
	}
	i.Store(&topology.Interest{Apps: before.With(apps(m.GetPut()), apps(m.GetRemoved()))})
}

// apps are those with a name that an export can have.
func apps(all []*v1alpha1.App) (apps []catalog.App) {
	for _, a := range all {
		if app := wire.AppOf(a); shortName(app) == app {
			apps = append(apps, app)
		}
	}
	return apps
}

// interestChange is what a change of the interest costs beside its apps, in exports.
const interestChange = 100

// follow follows the view by the peer's interest as it is now, and returns a channel that is closed
// once it is another one.
func (s *serverStream) follow(ctx context.Context) (changed <-chan struct{}, err error) {
	by, _, changed := s.interest.Follow()
	if s.sub != nil && by == s.by {
		return changed, nil
	}
	if s.sub != nil && by != nil && s.by != nil { // all other changes wait while the difference is looked at
		put, removed := by.Apps.Diff(s.by.Apps)
		if wait := s.subscriber.quota.charge(len(put) + len(removed) + interestChange); wait > 0 && !live.Sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
	sub, err := s.topology.Peer(ctx, s.cluster, by, s.by)
	if err != nil {
		return nil, err
	}
	digest := s.subscribers.digest(s.subscriber, by.Key(s.cluster), s.digest)
	s.unfollow()
	s.sub, s.by, s.digest = sub, by, digest
	return changed, nil
}

func (s *serverStream) unfollow() {
	if s.sub != nil {
		s.sub.Close()
		s.subscribers.releaseDigest(s.subscriber, s.by.Key(s.cluster))
	}
}
