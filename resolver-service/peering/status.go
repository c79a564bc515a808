package peering

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
)

// The states of a link, as "isthmus status" prints them.
const (
	connecting = "connecting" // not heard at the moment; what was said before stands
	connected  = "connected"
	stale      = "stale"  // the lease has run out
	damped     = "damped" // the lease runs, but ran out too often lately: for callers without another way
)

// linkStatus is what operators are told of a link. Any goroutine may use it.
type linkStatus struct {
	heard live.Value[bool] // whether any stream is heard

	mu         sync.Mutex
	state      string
	since      time.Time
	streams    map[*clientStream]struct{} // streams that are heard
	gateways   *gateways
	count      int // of exports
	ready      int
	refused    []*v1alpha1.RefusedObject
	revision   uint64
	hears      string
	hearsKnown bool // hears was said
	object     *catalog.Cluster
	err        error     // of the stream of exports, by the object
	logged     []string  // errors that were told since the peer was heard last
	unanswered time.Time // when a word came last that answers nothing of late; zero since one that does
}

// refresh notes the state that the link is in.
func (s *linkStatus) refresh(lease leaseState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(lease)
}

// enter notes the state; with mu held.
func (s *linkStatus) update(lease leaseState) {
	state := connecting
	switch {
	case !lease.last.IsZero() && !lease.fresh:
		state = stale
	case !lease.damped.IsZero():
		state = damped
	case lease.fresh && len(s.streams) > 0:
		state = connected
	}
	if s.state != state {
		s.state, s.since = state, time.Now()
	}
}

// now is the state that the link is in.
func (s *linkStatus) current(lease leaseState) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(lease)
	return s.state
}

// speaks notes whether a stream is heard, and tells whether that is news of the link.
func (s *linkStatus) setHeard(t *clientStream, speaks bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.streams) > 0
	if speaks {
		if s.streams == nil {
			s.streams = map[*clientStream]struct{}{}
		}
		s.streams[t] = struct{}{}
	} else {
		delete(s.streams, t)
	}
	if now := len(s.streams) > 0; now != before {
		s.heard.Store(now)
		return true
	}
	return false
}

// answers notes that a word came, which answers a ping of late or does not, and returns
// which.
func (s *linkStatus) noteAnswer(does bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered = time.Time{}
	if !does {
		s.unanswered = time.Now()
	}
	return does
}

// through notes which gateways are used.
func (s *linkStatus) setGateways(g *gateways) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateways, s.err, s.logged = g, nil, nil
	g.setObject(s.object)
}

// about notes which Cluster object counts from now on. Errors speak of the one before, such
// as of roots that it lacked.
func (s *linkStatus) setObject(object *catalog.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object, s.err, s.logged = object, nil, nil
	if s.gateways != nil {
		s.gateways.setObject(object)
	}
}

// said notes what the peer says of itself; a revision of 0 says nothing.
func (s *linkStatus) setPeerInfo(revision uint64, hears string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != 0 {
		s.revision = revision
	}
	if len(hears) <= maxName {
		s.hears, s.hearsKnown = printable(hears), true
	}
}

// exports notes what is known of the peer.
func (s *linkStatus) setExports(k *exportMirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.ready = len(k.exports), k.ready
	if len(k.refused) == 0 && s.refused == nil {
		return
	}
	s.refused = nil
	for app, err := range k.refused {
		s.refused = append(s.refused, &v1alpha1.RefusedObject{Source: printable(app.String()), Error: err.Error()})
	}
	slices.SortFunc(s.refused, func(a, b *v1alpha1.RefusedObject) int { return cmp.Compare(a.Source, b.Source) })
}

// maxTold is how many errors are remembered, of those that come in turn.
const maxLogged = 8

// failed notes why there is no stream of exports, by a Cluster object, or that there is one.
// It tells whether that is news: an error that was told before is none until the peer was
// heard.
func (s *linkStatus) failed(by *catalog.Cluster, err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.err, s.logged = nil, nil
		return false
	case by != s.object:
		return false
	}
	if errors.Is(err, errHungUp) && errors.As(s.err, &tlsAlert{}) {
		return false // the alert was lost on the way this time, and says more
	}
	s.err = err
	text := err.Error()
	if slices.Contains(s.logged, text) {
		return false
	}
	if len(s.logged) == maxLogged {
		s.logged = s.logged[1:]
	}
	s.logged = append(s.logged, text)
	return true
}

// wire is the status as it is told.
func (s *linkStatus) wire(cluster string, lease leaseState) *v1alpha1.PeerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(lease)
	w := &v1alpha1.PeerStatus{
		Cluster: cluster, State: s.state, SinceUnixMs: wallClock(s.since), LastWordUnixMs: wallClock(lease.last),
		Exports: uint32(s.count), Ready: uint32(s.ready), Refused: s.refused, Revision: s.revision, Hears: s.hears,
		LeaseLeftMs: lease.left.Milliseconds(), StaleAfterMs: lease.after.Milliseconds(),
		Lapses: lease.lapses, DampedUntilUnixMs: wallClock(lease.damped),
	}
	if s.err != nil {
		w.Error = s.err.Error()
	}
	if s.gateways != nil {
		w.Gateways = s.gateways.wire()
	}
	return w
}

// wall is a moment as clocks on walls show it, in Unix milliseconds: so long ago as it is
// by the monotonic clock. It is 0 for the zero time.
func wallClock(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return time.Now().Add(-time.Since(t)).UnixMilli()
}
