package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// shortest is how long a watch that ends is taken to have lasted at least: where something
// between us and the API server ends each at once, there is one a second.
const shortest = time.Second

// event is what a watch says of one object.
type event struct {
	item    item
	deleted bool
}

// news is what the streams of one Watch have heard and its reader not yet: of each object
// the newest, so that there is never more of it than there are objects.
type news struct {
	mu      sync.Mutex
	pending map[catalog.Key]event
	at      []string // resourceVersion that each resource has been heard up to
	moved   bool     // at has changed by more than an event
	open    []bool   // which of the streams has begun
	heard   time.Time
	wake    chan struct{} // has something in it when there is news
}

func newNews(at []string) *news {
	return &news{pending: map[catalog.Key]event{}, at: at, open: make([]bool, len(at)), wake: make(chan struct{}, 1)}
}

// note makes a change under the lock, and says so.
func (n *news) note(change func()) {
	n.mu.Lock()
	change()
	n.heard = time.Now()
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns what there is and begins anew.
func (n *news) take() (events []event, at []string, moved bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.pending {
		events = append(events, e)
	}
	clear(n.pending)
	moved, n.moved = n.moved, false
	return events, append([]string(nil), n.at...), moved
}

// stream follows one resource from where its news is, until the context ends or the
// server can't be watched.
type stream struct {
	api   *apiServer
	r     resource
	index int // in news
	news  *news
}

func (s *stream) run(ctx context.Context) error {
	for {
		began := time.Now()
		if err := s.once(ctx); err != nil {
			return fmt.Errorf("watch %s %w", s.r, advise(err, "watch", s.r))
		}
		timer := time.NewTimer(shortest - time.Since(began))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// once makes one request, which lasts until the server ends it. It returns nil when that
// is in good order, as servers do once in a while.
func (s *stream) once(ctx context.Context) error {
	s.news.mu.Lock()
	from := s.news.at[s.index]
	s.news.mu.Unlock()
	opened := func() { s.news.note(func() { s.news.open[s.index] = true }) }
	return s.api.Watch(ctx, s.r.collection(), from, opened, s.take)
}

// take takes an event. A BOOKMARK tells how far the server is, with no object.
func (s *stream) take(kind string, object json.RawMessage) error {
	if kind == apiserver.Bookmark {
		var mark struct {
			Metadata meta `json:"metadata"`
		}
		if err := json.Unmarshal(object, &mark); err != nil {
			return err
		}
		if mark.Metadata.ResourceVersion == "" {
			return apiserver.ErrNoVersion
		}
		s.news.note(func() { s.news.at[s.index], s.news.moved = mark.Metadata.ResourceVersion, true })
		return nil
	}
	i, err := s.r.parse(object)
	if err != nil {
		return err
	}
	if i.meta.ResourceVersion == "" {
		return apiserver.ErrNoVersion
	}
	s.news.note(func() {
		s.news.pending[i.key] = event{item: i, deleted: kind == apiserver.Deleted}
		s.news.at[s.index] = i.meta.ResourceVersion
	})
	return nil
}
