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
	documentNews
	wake chan struct{} // has something in it when there is news
}

func newNews(at []string) *news {
	return &news{pending: map[catalog.Key]event{}, at: at, open: make([]bool, len(at)), wake: make(chan struct{}, 1), documentNews: newDocumentNews()}
}

// note makes a change under the lock, and says so.
func (n *news) note(change func()) {
	n.mu.Lock()
	change()
	n.heard = time.Now()
	n.mu.Unlock()
	n.wakeUp()
}

func (n *news) wakeUp() {
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

// tell takes news of documents.
func (n *news) tell(change func(*documentNews)) {
	n.mu.Lock()
	change(&n.documentNews)
	n.mu.Unlock()
	n.wakeUp()
}

// takeDocuments is take of documents.
func (n *news) takeDocuments() documentNews {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.documentNews
	n.documentNews = newDocumentNews()
	return all
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
	n := s.news
	n.mu.Lock()
	from := n.at[s.index]
	n.mu.Unlock()
	err := s.api.Follow(ctx, s.r.collection(), from, apiserver.Follower{
		Opened: func() { n.note(func() { n.open[s.index] = true }) },
		Mark:   func(version string) { n.note(func() { n.at[s.index], n.moved = version, true }) },
		Take: func(object json.RawMessage, deleted bool) (string, error) {
			i, err := s.r.parse(object)
			if err != nil || i.meta.ResourceVersion == "" {
				return "", err
			}
			n.note(func() { n.pending[i.key], n.at[s.index] = event{i, deleted}, i.meta.ResourceVersion })
			return i.meta.ResourceVersion, nil
		},
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s %w", s.r, advise(err, "watch", s.r))
}
