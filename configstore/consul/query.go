package consul

import (
	"context"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

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
			a := w.store.question(ctx, p)
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
	a := answer{place: p}
	a.index, a.err = agent.BlockingQuery(ctx, p.key, p.index, func(options *api.QueryOptions) (meta *api.QueryMeta, err error) {
		if p.tree {
			_, meta, err = s.client.KV().Keys(p.key, "/", options)
		} else {
			a.pair, meta, err = s.client.KV().Get(p.key, options)
		}
		return meta, err
	})
	a.back = a.err == nil && a.index < p.index
	return a
}
