package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// event is what a watch says of one object.
type event struct {
	item    item
	deleted bool
}

// news is what the streams of one Watch have noted and its reader not yet: of each object
// the newest, so that there is never more of it than there are objects.
type news struct{ *live.Inbox[noted] }

// noted is what a news holds.
type noted struct {
	pending map[catalog.Key]event
	at      []string // resourceVersion that each resource has been noted up to
	moved   bool     // at has changed by more than an event
	open    []bool   // which of the streams has begun
	last    time.Time
	documentNews
}

func newNews(at []string) *news {
	return &news{live.NewInbox(noted{pending: map[catalog.Key]event{}, at: slices.Clone(at), open: make([]bool, len(at)), documentNews: newDocumentNews()})}
}

// note makes a change of what streams of objects have noted.
func (n *news) note(change func(*noted)) {
	n.Note(func(h *noted) {
		change(h)
		h.last = time.Now()
	})
}

// tell takes news of documents.
func (n *news) tell(change func(*documentNews)) {
	n.Note(func(h *noted) { change(&h.documentNews) })
}

// take returns what there is and begins anew.
func (n *news) take() (all noted) {
	n.Look(func(h *noted) {
		all = *h
		all.at = slices.Clone(h.at)
		h.pending, h.moved, h.documentNews = map[catalog.Key]event{}, false, newDocumentNews()
	})
	return all
}

// stream follows one resource from where its news is, until the context ends or the
// server can't be watched.
type stream struct {
	api   *apiserver.Server
	r     resource
	index int // in news
	from  string
	news  *news
}

func (s *stream) run(ctx context.Context) error {
	err := s.api.Follow(ctx, s.r.collection(), s.from, apiserver.Follower{
		Opened: func() { s.news.note(func(h *noted) { h.open[s.index] = true }) },
		Mark:   func(version string) { s.news.note(func(h *noted) { h.at[s.index], h.moved = version, true }) },
		Take: func(object json.RawMessage, deleted bool) (string, error) {
			i, err := s.r.parse(object)
			if err != nil || i.meta.ResourceVersion == "" {
				return "", err
			}
			s.news.note(func(h *noted) { h.pending[i.key], h.at[s.index] = event{i, deleted}, i.meta.ResourceVersion })
			return i.meta.ResourceVersion, nil
		},
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s %w", s.r, advise(err, "watch", s.r))
}
