package peering

import (
	"sync"
	"time"
)

// How long a service that has just started waits for its peers' first exports. While one peer
// after the other arrives, it waits longer.
const (
	settleWithin = 5 * time.Second
	settlePause  = time.Second
	settleAtMost = 20 * time.Second
)

// firstWithin is what links that are of use have at most, in a service that has just started, before it
// connects to all the others.
const firstWithin = time.Second

// So many of these others connect at a time. The service has a processor for whoever asks it meanwhile.
// A turn ends once the peer has told all, or after turnWithin; of one that is not even reached, sooner.
const (
	togetherAtMost = 64
	reachWithin    = 100 * time.Millisecond
	turnWithin     = 500 * time.Millisecond
)

// starts has the links of a service that has just started connect in their order.
type starts struct {
	settling *settling
	first    *settling     // of links that are of use; others let them go first
	turns    chan struct{} // of the others, which many connect at a time
}

func newStarts() *starts {
	return &starts{newSettling(settleWithin, settlePause), newSettling(firstWithin, 0), make(chan struct{}, togetherAtMost)}
}

func (s *starts) begin(clusters map[string]bool) {
	s.settling.begin(clusters)
	s.first.begin(clusters)
}

// heard records that a cluster's exports have arrived.
func (s *starts) heard(cluster string) {
	s.settling.heard(cluster)
	s.first.heard(cluster)
}

func (s *starts) end() {
	s.settling.end()
	s.first.end()
}

// settling tells when a service that has just started has heard its peers.
type settling struct {
	done          chan struct{}
	within, pause time.Duration

	mu      sync.Mutex
	waiting map[string]bool // clusters without exports yet; nil before begin
	began   time.Time
	limit   *time.Timer
}

// newSettling waits for a while, and for pause after each cluster that was heard, if that is longer.
func newSettling(within, pause time.Duration) *settling {
	return &settling{done: make(chan struct{}), within: within, pause: pause}
}

// begin sets the clusters to wait for. Only the first call counts: no earlier view has a cluster
// that is added later.
func (s *settling) begin(clusters map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		return
	}
	s.waiting = make(map[string]bool, len(clusters))
	for name := range clusters {
		s.waiting[name] = true
	}
	s.began = time.Now()
	s.limit = time.AfterFunc(s.within, s.end)
	s.check()
}

// heard records that a cluster's exports have arrived.
func (s *settling) heard(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[cluster] {
		delete(s.waiting, cluster)
		if up := time.Since(s.began); up > s.within-s.pause {
			s.limit.Reset(min(s.pause, max(0, settleAtMost-up)))
		}
		s.check()
	}
}

// end gives up waiting.
func (s *settling) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = map[string]bool{}
	s.check()
}

func (s *settling) check() {
	if len(s.waiting) > 0 {
		return
	}
	if s.limit != nil {
		s.limit.Stop()
	}
	select {
	case <-s.done:
	default:
		close(s.done)
	}
}
