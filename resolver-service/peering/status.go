package peering

import (
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// The states of a link, as "isthmus status" prints them.
const (
	connecting = "connecting" // not connected; what was said before stands
	connected  = "connected"
	stale      = "stale" // the lease has run out
)

// linkStatus is what operators are told of a link. Any goroutine may use it.
type linkStatus struct {
	mu       sync.Mutex
	state    string
	since    time.Time
	lastWord time.Time
	exports  int
	err      error
}

func (s *linkStatus) enter(state string) {
	if s.state != state {
		s.state, s.since = state, time.Now()
	}
}

func (s *linkStatus) heard(exports int, refused error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(connected)
	s.lastWord, s.exports, s.err = time.Now(), exports, refused
}

// failed notes why there is no connection, and tells whether that is news.
func (s *linkStatus) failed(err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.err == nil || err == nil || s.err.Error() != err.Error()
	if s.state == connected {
		s.enter(connecting)
	}
	s.err = err
	return news
}

func (s *linkStatus) lapsed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(stale)
}

func (s *linkStatus) wire(cluster string) *v1alpha1.PeerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &v1alpha1.PeerStatus{
		Cluster: cluster, State: s.state, SinceUnixMs: s.since.UnixMilli(), Exports: uint32(s.exports),
	}
	if !s.lastWord.IsZero() {
		w.LastWordUnixMs = s.lastWord.UnixMilli()
	}
	if s.err != nil {
		w.Error = s.err.Error()
	}
	return w
}
