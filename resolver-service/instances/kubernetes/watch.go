package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances"
)

// watch is one reading of everything and what follows it.
type watch struct {
	source  *Source
	emit    func(instances.Change) error
	index   *index
	unheard error     // of emit
	told    time.Time // when the full set was
}

func (w *watch) run(ctx context.Context) error {
	all := w.source.config.collections()
	n := &news{pending: map[name]object{}, at: make([]string, len(all)), wake: make(chan struct{}, 1)}
	objects, err := w.list(ctx, all, n.at)
	if err != nil {
		return err
	}
	change, _ := w.index.apply(objects)
	change.Full = true
	if err := w.say(change); err != nil {
		return err
	}
	w.told = time.Now()
	return w.follow(ctx, all, n)
}

// lists is how many lists are asked for at once.
const lists = 8

// list reads every collection. One that can't be read fails them all.
func (w *watch) list(ctx context.Context, all []collection, at []string) ([]object, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lists)
	each := make([][]object, len(all))
	for i, c := range all {
		group.Go(func() error {
			raw, version, err := w.source.api.List(ctx, c.Collection)
			if err != nil {
				return fmt.Errorf("list %s %w", c.resource, advise(err, "list", c))
			}
			at[i] = version
			for _, text := range raw {
				o, err := parse(text, c.pods)
				if err != nil {
					return fmt.Errorf("list %s at %s: %w", c.resource, w.source.api.Host(), err)
				}
				each[i] = append(each[i], o)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var objects []object
	for _, some := range each {
		objects = append(objects, some...)
	}
	return objects, nil
}

// follow starts the streams and says what they bring.
func (w *watch) follow(ctx context.Context, all []collection, n *news) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel(nil)
	for i, c := range all {
		s := &stream{api: w.source.api, collection: c, index: i, news: n}
		streams.Go(func() { cancel(s.run(ctx)) })
	}
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if change, news := w.index.apply(n.take()); news {
			if err := w.say(change); err != nil {
				return err
			}
		}
	}
}

func (w *watch) say(c instances.Change) error {
	w.unheard = w.emit(c)
	return w.unheard
}

// news is what the streams have heard and is not said yet: of each object the newest, so
// that there is never more of it than there are objects.
type news struct {
	mu      sync.Mutex
	pending map[name]object
	at      []string      // resourceVersion that each collection has been heard up to
	wake    chan struct{} // has something in it when there is news
}

func (n *news) take() (objects []object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.pending {
		objects = append(objects, o)
	}
	n.pending = map[name]object{}
	return objects
}

// shortest is how long a watch that ends is taken to have lasted at least: where something
// between us and the API server ends each at once, there is one a second.
const shortest = time.Second

// stream follows one collection from where its news is, until the context ends or the
// server can't be watched.
type stream struct {
	api        *apiserver.Server
	collection collection
	index      int // in news
	news       *news
}

func (s *stream) run(ctx context.Context) error {
	for {
		began := time.Now()
		if err := s.api.Watch(ctx, s.collection.Collection, s.from(), func() {}, s.take); err != nil {
			return fmt.Errorf("watch %s %w", s.collection.resource, advise(err, "watch", s.collection))
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

func (s *stream) from() string {
	s.news.mu.Lock()
	defer s.news.mu.Unlock()
	return s.news.at[s.index]
}

// take takes an event. A bookmark tells how far the server is, with no object.
func (s *stream) take(kind string, text json.RawMessage) error {
	if kind == apiserver.Bookmark {
		var mark struct {
			Metadata meta `json:"metadata"`
		}
		if err := json.Unmarshal(text, &mark); err != nil {
			return err
		}
		return s.note(mark.Metadata.ResourceVersion, nil)
	}
	o, err := parse(text, s.collection.pods)
	if err != nil {
		return err
	}
	o.deleted = kind == apiserver.Deleted
	return s.note(o.version, &o)
}

func (s *stream) note(version string, o *object) error {
	if version == "" {
		return apiserver.ErrNoVersion
	}
	s.news.mu.Lock()
	s.news.at[s.index] = version
	if o != nil {
		s.news.pending[o.name] = *o
	}
	s.news.mu.Unlock()
	if o != nil {
		select {
		case s.news.wake <- struct{}{}:
		default:
		}
	}
	return nil
}
