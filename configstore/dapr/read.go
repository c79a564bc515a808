package dapr

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// mostRounds is how often a reader begins again because the store has changed by more
// than the head says, before it gives up for the moment.
const mostRounds = 20

var errRestless = errors.New("so much is written that no state of it can be read; write in fewer and larger batches")

// read reads at least these paths, and everything that was written together with what is
// read: a batch is seen whole or not yet. asked is what the answer is about; nil for all.
func (w *watch) read(ctx context.Context, paths map[string]bool, all bool) (now snapshot, asked map[string]bool, err error) {
	was, parsed := parseHead(w.head)
	asked = maps.Clone(paths)
	if asked == nil {
		asked = map[string]bool{}
	}
	for range mostRounds {
		if all {
			now, err = w.readAll(ctx)
			return now, nil, err
		}
		now, err = w.lease.some(ctx, slices.Sorted(maps.Keys(asked)))
		if err != nil {
			return snapshot{}, nil, err
		}
		if now.head == w.head {
			return now, asked, nil
		}
		is, ok := parseHead(now.head)
		touched, known := is.PathsSince(was)
		if !ok || !parsed || !known {
			all = true
			continue
		}
		if w.covers(asked, touched) {
			return now, asked, nil
		}
	}
	return snapshot{}, nil, errRestless
}

// covers tells whether all paths in scope have been asked for, and adds those that have
// not.
func (w *watch) covers(asked map[string]bool, touched []string) bool {
	covered := true
	for _, path := range touched {
		if w.lease.settings.names.has(path) && !asked[path] {
			asked[path], covered = true, false
		}
	}
	return covered
}

// readAll reads everything in scope. Where that takes several requests, what was written
// meanwhile is read again until all of it is of one moment.
func (w *watch) readAll(ctx context.Context) (snapshot, error) {
	for range mostRounds {
		all, err := w.lease.list(ctx)
		if err != nil {
			return snapshot{}, err
		}
		settled := all.whole
		if !settled {
			if err := w.seek(ctx, &all); err != nil {
				return snapshot{}, err
			}
			if settled, err = w.settle(ctx, &all); err != nil {
				return snapshot{}, err
			}
		}
		if settled {
			return all, w.checkGone(all)
		}
	}
	return snapshot{}, errRestless
}

// seek asks for what was known and is not in a list: the list may be that of an index, and
// what an index has lost is not deleted.
func (w *watch) seek(ctx context.Context, all *snapshot) error {
	var missing []string
	for path := range w.known {
		_, there := all.pairs[path]
		if _, denied := all.denied[path]; !there && !denied {
			missing = append(missing, path)
		}
	}
	slices.Sort(missing)
	for paths := range slices.Chunk(missing, redisChunk) {
		got, err := w.lease.some(ctx, paths)
		if err != nil {
			return err
		}
		maps.Copy(all.pairs, got.pairs)
		if len(got.denied) > 0 {
			maps.Copy(all.denied, got.denied)
		}
	}
	return nil
}

// settle brings a list, whose head is that of its beginning, to the end of it.
func (w *watch) settle(ctx context.Context, all *snapshot) (bool, error) {
	was, parsed := parseHead(all.head)
	asked := map[string]bool{}
	for range mostRounds {
		paths := slices.Sorted(maps.Keys(asked))
		now, err := w.lease.some(ctx, paths)
		if err != nil {
			return false, err
		}
		if now.head != all.head {
			is, ok := parseHead(now.head)
			touched, known := is.PathsSince(was)
			if !ok || !parsed || !known {
				return false, nil
			}
			if !w.covers(asked, touched) {
				continue
			}
		}
		for _, path := range paths {
			delete(all.pairs, path)
			if h, ok := now.pairs[path]; ok {
				all.pairs[path] = h
			}
		}
		all.head = now.head
		return true, nil
	}
	return false, nil
}
