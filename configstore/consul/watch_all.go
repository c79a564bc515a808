package consul

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// After a change that ".changes" explained, everything is read once to be sure: when
	// nothing has changed for recheckAfter, but no later than recheckWithin.
	recheckAfter  = 2 * time.Second
	recheckWithin = time.Minute
	// attempts is how often the few keys that have changed are read anew because of
	// writes meanwhile, before everything is read.
	attempts = 5
)

// followAll follows all objects.
func (w *watch) followAll(ctx context.Context) error {
	if err := w.take(ctx, w.store.readAll); err != nil {
		return err
	}
	w.ask(ctx, place{key: w.store.base(), tree: true, index: w.read})
	w.ask(ctx, place{key: w.store.headKey(), index: w.head.index})
	result := make(chan recheckResult)
	rechecking := false
	for {
		due := w.unchecked.due()
		if rechecking { // one at a time, however slow the link is
			due = nil
		}
		var err error
		select {
		case a := <-w.answers:
			err = w.heard(ctx, a)
		case s := <-result:
			rechecking = false
			err = w.rechecked(ctx, s)
		case <-due:
			rechecking = true
			w.unchecked.settle()
			w.recheck(ctx, result)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// heard reads what an answer is about, unless it is known.
func (w *watch) heard(ctx context.Context, a answer) error {
	if a.err != nil {
		return a.err
	}
	h := head{}
	switch {
	case a.tree && !a.back && w.covers(a.index), !a.tree && a.index == w.head.index:
		return nil
	case !a.tree && a.pair == nil && w.head.index == 0:
		return nil // there is none still
	case a.back: // Consul was put back from a snapshot, or has forgotten a deletion
		return w.take(ctx, w.store.readAll)
	case a.tree:
		now, err := w.store.some(ctx, nil, &api.QueryOptions{})
		if err != nil {
			return err
		}
		h = now.head
	case a.pair != nil:
		h = parseHead(a.index, a.pair.Value)
	}
	explained, err := w.explained(ctx, h)
	if err != nil || explained && (!a.tree || w.covers(a.index)) {
		return err
	}
	if a.tree && a.index > w.read {
		if found, err := w.searched(ctx, a.index); found || err != nil {
			return err
		}
	}
	return w.take(ctx, w.store.readAll)
}

// covers tells whether it is known what the prefix was like at an index that it has had.
// Those of writes by Isthmus are in the head; other hands' are not.
func (w *watch) covers(index uint64) bool {
	for _, b := range w.head.Batches {
		if b.Revision == index {
			return true
		}
	}
	return index <= w.read
}

// explained takes what has changed since the head that is known, and tells whether a head
// says what that is. Where it only says which keys, it reads them.
func (w *watch) explained(ctx context.Context, h head) (bool, error) {
	for range attempts {
		batches, ok := h.Since(w.head.Head)
		if !ok || len(h.Batches) == 0 {
			return false, nil
		}
		if len(batches) == 0 {
			return true, nil
		}
		if now, ok := carried(batches, w.known); ok {
			now.head, w.head = h, h
			w.unchecked.note()
			return true, w.learn(now)
		}
		paths, ok := h.PathsSince(w.head.Head)
		if !ok || len(paths) >= maxOps {
			return false, nil
		}
		now, err := w.store.some(ctx, paths, &api.QueryOptions{})
		if err != nil {
			return false, err
		}
		if now.head.index == h.index {
			w.head = h
			w.unchecked.note()
			return true, w.learn(now)
		}
		h = now.head
	}
	return false, nil
}

// recheckResult is everything, read while changes went on.
type recheckResult struct {
	now snapshot
	err error
}

// recheck begins to read everything. Nobody waits for it.
func (w *watch) recheck(ctx context.Context, result chan<- recheckResult) {
	w.asking.Go(func() {
		now, err := w.store.readAll(ctx)
		select {
		case result <- recheckResult{now, err}:
		case <-ctx.Done():
		}
	})
}

// rechecked compares what was read with what is known. What is different and not newer
// here has been missed, or is being told just now: then everything is read again, and
// waited for.
func (w *watch) rechecked(ctx context.Context, s recheckResult) error {
	if s.err != nil {
		return s.err
	}
	different := len(w.gone(s.now.pairs)) > 0
	for _, p := range s.now.pairs {
		known := w.known[p.Path]
		different = different || known != p.Revision && (known == "" || !later(known, s.now.index))
	}
	if !different {
		w.read = max(w.read, s.now.index)
		return nil
	}
	w.store.log.Debug("what was known of Consul differs from what was read to be sure; reading it again", "index", s.now.index)
	return w.take(ctx, w.store.readAll)
}
