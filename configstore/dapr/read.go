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

// look reads at least these paths, and everything that was written together with what is read after
// a head that is known: a batch is seen whole or not yet. asked comes to have all that is read. ok is
// false when the store does not say what was written since.
func (w *watch) look(ctx context.Context, since string, asked map[string]bool) (now snapshot, ok bool, err error) {
	was, parsed := parseHead(since)
	for range mostRounds {
		now, err = w.lease.some(ctx, slices.Sorted(maps.Keys(asked)))
		if err != nil || now.head == since {
			return now, err == nil, err
		}
		is, ok := parseHead(now.head)
		touched, known := is.PathsSince(was)
		if !ok || !parsed || !known {
			return now, false, nil
		}
		if w.covers(asked, touched) {
			return now, true, nil
		}
	}
	return now, false, nil
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
	asked := map[string]bool{}
	now, ok, err := w.look(ctx, all.head, asked)
	if !ok {
		return false, err
	}
	for path := range asked {
		delete(all.pairs, path)
	}
	maps.Copy(all.pairs, now.pairs)
	all.head = now.head
	return true, nil
}
