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

// longWait is how long one question waits for a change; Consul adds up to a sixteenth, so
// that readers do not come back all at once.
const longWait = 5 * time.Minute

// longestWait is after how long a question is given up: what is between us and Consul may
// have forgotten it, and answer the heartbeat all the same.
const longestWait = longWait + longWait/16 + callTimeout

var errForgotten = fmt.Errorf("a question that waits %s for a change was not answered within %s; does something in between drop connections that are silent?", longWait, longestWait)

// tooSoon is when an answer that says nothing new can't have waited.
const tooSoon = time.Second

// place is something that is waited for: one key, or a prefix.
type place struct {
	key   string
	tree  bool
	index uint64 // of the last answer; 0 to be answered at once
}

// answer is what was heard of a place.
type answer struct {
	place
	back bool        // the index is lower than it was
	pair *api.KVPair // of one key: nil where it is not there
	err  error       // the last answer: nothing is asked after it
}

// ask asks for a place, again and again, and answers when its index is another one. The
// next question is asked when the answer has been taken: a reader that is busy is asked
// nothing.
func (w *watch) ask(ctx context.Context, p place) {
	w.asking.Go(func() {
		for {
			begin := time.Now()
			a := w.store.question(ctx, p)
			if a.err == nil && a.index == p.index { // nothing for a long time
				if time.Since(begin) < tooSoon {
					a.err = fmt.Errorf("a question that waits %s for a change of %s was answered at once, with no change; does something in between cache answers?", longWait, p.key)
				} else {
					continue
				}
			}
			select {
			case w.answers <- a:
			case <-ctx.Done():
				return
			}
			if a.err != nil {
				return
			}
			p = a.place
		}
	})
}

// question waits for a place to be at another index, and returns the one that it is at. Of
// a prefix it asks for the names of the first level only: Consul watches all that is below,
// and answers with a few bytes.
func (s *Store) question(ctx context.Context, p place) answer {
	ctx, cancel := context.WithTimeoutCause(ctx, longestWait, errForgotten)
	defer cancel()
	options := (&api.QueryOptions{WaitIndex: p.index, WaitTime: longWait}).WithContext(ctx)
	a := answer{place: p}
	var meta *api.QueryMeta
	if p.tree {
		_, meta, a.err = s.client.KV().Keys(p.key, "/", options)
	} else {
		a.pair, meta, a.err = s.client.KV().Get(p.key, options)
	}
	if a.err != nil && errors.Is(context.Cause(ctx), errForgotten) {
		a.err = errForgotten
	}
	if a.err == nil {
		a.err = believe(meta)
	}
	if a.err == nil {
		a.index, a.back = meta.LastIndex, meta.LastIndex < p.index
	}
	return a
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
