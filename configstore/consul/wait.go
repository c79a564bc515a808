package consul

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// A Watch asks every heartbeat who leads, and wants to know within patience: a question
// that waits for a change is silent for minutes also when nobody is there any more, and
// the keepalive of TCP reaches no further than the next proxy.
const (
	heartbeat = 5 * time.Second
	patience  = 4 * time.Second
)

// place is something that is waited for: one key, or a prefix.
type place struct {
	key   string
	tree  bool
	index uint64 // of the last answer; 0 to be answered at once
}

// places is what the scope is made of.
func (s *Store) places() []place {
	if s.scope.All() {
		return []place{{key: s.base(), tree: true}}
	}
	return []place{{key: s.selection()}, {key: s.clusters(), tree: true}}
}

// wait waits until one of the places has another index than it had, or for about so
// long. It keeps the new index, which may be lower: Consul was put back from a snapshot, or
// has forgotten a deletion that was the last change. The first time, with indexes of 0, it
// waits for the answers of all.
func (w *watch) wait(ctx context.Context, most time.Duration) (index uint64, moved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	type answer struct {
		place int
		index uint64
		err   error
	}
	answers := make(chan answer, len(w.places))
	for i, p := range w.places {
		asking.Go(func() {
			index, err := w.store.ask(ctx, p, most)
			answers <- answer{i, index, err}
		})
	}
	for range w.places {
		a := <-answers
		if a.err != nil {
			return 0, false, a.err
		}
		first := w.places[a.place].index == 0
		moved = moved || w.places[a.place].index != a.index
		w.places[a.place].index, index = a.index, a.index
		if !first {
			break
		}
	}
	return index, moved, nil
}

// ask waits for a place to be at another index, at most about so long, and returns the
// one that it is at. Of a prefix it asks for the names of the first level only: Consul
// watches all that is below, and answers with a few bytes.
func (s *Store) ask(ctx context.Context, p place, most time.Duration) (uint64, error) {
	options := (&api.QueryOptions{WaitIndex: p.index, WaitTime: most}).WithContext(ctx)
	var meta *api.QueryMeta
	var err error
	if p.tree {
		_, meta, err = s.client.KV().Keys(p.key, "/", options)
	} else {
		_, meta, err = s.client.KV().Get(p.key, options)
	}
	if err != nil {
		return 0, err
	}
	if err := believe(meta); err != nil {
		return 0, err
	}
	return meta.LastIndex, nil
}

// alive calls f with a context that ends, with the reason, when Consul does not answer or
// has lost its leader.
func (s *Store) alive(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel(nil)
	beating.Go(func() {
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := s.beat(ctx); err != nil {
				cancel(err)
				return
			}
		}
	})
	return f(ctx)
}

// beat asks who leads. That needs no token.
func (s *Store) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	leader, err := s.client.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	var status api.StatusError
	switch {
	case errors.As(err, &status) && status.Code < 500:
		return nil // closed to us, but somebody is there
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask who leads: nothing came within %s; is it there, and does the network let packets through?", patience)
	case err != nil:
		return fmt.Errorf("ask who leads: %w", err)
	case leader == "":
		return errNoLeader
	}
	return nil
}
