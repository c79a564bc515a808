package forward

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// flight is one question under way to the upstreams, however many wait for it.
type flight struct {
	key    string
	begun  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	place  *list.Element
	done   chan struct{} // closed when answer is there
	answer *answer
}

// flights are those under way, oldest first.
type flights struct {
	mu     sync.Mutex
	most   int
	byKey  map[string]*flight
	order  *list.List // of *flight that may still be ended for another
	closed bool
	all    sync.WaitGroup
}

func newFlights(most int) *flights {
	return &flights{most: most, byKey: map[string]*flight{}, order: list.New()}
}

// grace is how long a flight can't be ended for the sake of another. Where upstreams are fast,
// a flood of questions that they answer slowly, or never, so leaves room for the others.
const grace = 200 * time.Millisecond

// join returns the flight for a key, and whether the caller has to fly it and to call land.
// It is nil when too many are under way and all of them are young, or all is over.
func (s *flights) join(key string, ctx context.Context, timeout time.Duration) (f *flight, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.byKey[key]; f != nil {
		return f, false
	}
	if s.closed || len(s.byKey) >= s.most && !s.endOldest() {
		return nil, false
	}
	f = &flight{key: key, begun: time.Now(), done: make(chan struct{})}
	f.ctx, f.cancel = context.WithTimeout(ctx, timeout)
	f.place = s.order.PushBack(f)
	s.byKey[key] = f
	s.all.Add(1)
	return f, true
}

// endOldest ends the oldest flight, if it had its time. It counts until it has landed, so
// a few more than the most may be under way for a moment.
func (s *flights) endOldest() bool {
	first := s.order.Front()
	if first == nil || len(s.byKey) >= 2*s.most {
		return false
	}
	f := first.Value.(*flight)
	if time.Since(f.begun) < grace {
		return false
	}
	s.order.Remove(first)
	f.cancel()
	return true
}

// land says that the answer is there.
func (s *flights) land(f *flight) {
	f.cancel()
	s.mu.Lock()
	delete(s.byKey, f.key)
	s.order.Remove(f.place)
	s.mu.Unlock()
	close(f.done)
	s.all.Done()
}

// count is how many are under way.
func (s *flights) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}

// close lets no flight begin any more, and waits for those under way.
func (s *flights) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.all.Wait()
}
