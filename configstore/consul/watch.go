package consul

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
)

const (
	// longWait is how long one question waits for a change; Consul adds up to a
	// sixteenth, so that readers do not come back all at once.
	longWait = 5 * time.Minute
	// After a change that ".changes" explained, everything is read once to be sure: when
	// nothing has changed for quiet, but no later than latest.
	quiet  = 2 * time.Second
	latest = 20 * time.Second
	// attempts is how often reading starts anew because of writes meanwhile.
	attempts = 5
)

// Watch is that of configstore.Store. It begins with the full set, from whatever version:
// Consul keeps no history.
func (s *Store) Watch(ctx context.Context, _ configstore.Version, deliver func(configstore.Change) error) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	w := watch{store: s, known: map[string]string{}, ledger: configstore.Ledger{Prefix: s.config.Prefix}}
	var own errDeliver
	err = s.alive(ctx, func(ctx context.Context) error {
		err := w.run(ctx, func(c configstore.Change) error {
			own.error = deliver(c)
			return own.error
		})
		if own.error != nil {
			return own
		}
		return s.failed(ctx, err, "watch %s", s.watched())
	})
	if own.error != nil {
		return own.error
	}
	s.transport.CloseIdleConnections() // to a server that may be gone without a word
	return err
}

// errDeliver tells an error of the reader from one of Consul.
type errDeliver struct{ error }

// watched is what is watched, for errors.
func (s *Store) watched() string {
	if s.scope.All() {
		return s.base()
	}
	return s.selection() + " and " + s.clusters()
}

// watch is how far one Watch has come. It is for one goroutine.
type watch struct {
	store  *Store
	places []place
	mark   mark              // the last write by Isthmus that is in known
	known  map[string]string // the revision of each path, of what is refused too
	ledger configstore.Ledger
	synced bool
	doubt  time.Time // when the first change was believed that is not made sure of; zero for none
}

// run delivers the full set, and then changes.
func (w *watch) run(ctx context.Context, deliver func(configstore.Change) error) error {
	w.places = w.store.places()
	for {
		change, news, err := w.next(ctx)
		if err != nil {
			return err
		}
		if news {
			if err := deliver(change); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// next waits for a change, the first time not, and reads what it is.
func (w *watch) next(ctx context.Context) (change configstore.Change, news bool, err error) {
	if !w.store.scope.All() {
		if _, _, err := w.wait(ctx, longWait); err != nil {
			return change, false, err
		}
		return w.take(ctx, w.store.own)
	}
	if !w.synced {
		return w.take(ctx, w.store.everything)
	}
	most := longWait
	if !w.doubt.IsZero() {
		most = quiet
	}
	before := w.places[0].index
	index, moved, err := w.wait(ctx, most)
	if err != nil {
		return change, false, err
	}
	sure := w.doubt.IsZero() || moved && time.Since(w.doubt) < latest
	switch {
	case !moved && sure:
		return change, false, nil
	case moved && sure && index > before:
		if change, news, ok, err := w.explained(ctx, index); ok || err != nil {
			return change, news, err
		}
	}
	return w.take(ctx, w.store.everything)
}

// take reads all that is watched, and returns what is different.
func (w *watch) take(ctx context.Context, read func(context.Context) (snapshot, error)) (configstore.Change, bool, error) {
	for range attempts {
		now, err := read(ctx)
		if err != nil {
			return configstore.Change{}, false, err
		}
		gone := w.gone(now.pairs)
		still, err := w.store.areThere(ctx, gone)
		if err != nil {
			return configstore.Change{}, false, err
		}
		if still {
			continue
		}
		now.missing = gone
		if now.index > 0 {
			w.places[0].index = now.index
		}
		w.mark, w.doubt = now.head.mark(), time.Time{}
		change, news := w.learn(now)
		return change, news, nil
	}
	return configstore.Change{}, false, fmt.Errorf("%d times in a row, keys came back while others were read", attempts)
}

// gone is the paths that were known and are not among the pairs.
func (w *watch) gone(pairs []configstore.Pair) []string {
	there := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		there[p.Path] = true
	}
	var gone []string
	for path := range w.known {
		if !there[path] {
			gone = append(gone, path)
		}
	}
	slices.Sort(gone)
	return gone
}

// areThere asks for what a list does not have, by name: a list leaves out in silence
// what the token may not read, and that is not gone.
func (s *Store) areThere(ctx context.Context, paths []string) (bool, error) {
	for few := range slices.Chunk(paths, maxOps) {
		found, err := s.named(ctx, few, &api.QueryOptions{RequireConsistent: true})
		if err != nil {
			return false, err
		}
		if len(found.pairs) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// explained reads what the head says to have been changed. ok is false when it does not
// explain why the prefix is at this index.
func (w *watch) explained(ctx context.Context, index uint64) (change configstore.Change, news, ok bool, err error) {
	var paths []string
	var at uint64
	for range attempts {
		now, err := w.store.some(ctx, paths, &api.QueryOptions{})
		if err != nil {
			return change, false, false, err
		}
		if at != 0 && now.head.index == at {
			w.places[0].index, w.mark = at, now.head.mark()
			if w.doubt.IsZero() {
				w.doubt = time.Now()
			}
			change, news = w.learn(now)
			return change, news, true, nil
		}
		paths, ok = now.head.since(w.mark)
		if at = now.head.index; !ok || at < index || len(paths) >= maxOps {
			return change, false, false, nil
		}
	}
	return change, false, false, nil
}

// learn takes what was read into what is known, and returns what is different.
func (w *watch) learn(now snapshot) (change configstore.Change, news bool) {
	put := slices.DeleteFunc(now.pairs, func(p configstore.Pair) bool { return w.known[p.Path] == p.Revision })
	deleted := slices.DeleteFunc(now.missing, func(path string) bool { return w.known[path] == "" })
	for _, p := range put {
		w.known[p.Path] = p.Revision
	}
	for _, path := range deleted {
		delete(w.known, path)
	}
	if !w.synced {
		w.synced = true
		return w.ledger.Reset(put, w.version()), true
	}
	return w.ledger.Apply(put, deleted, w.version()), len(put) > 0 || len(deleted) > 0
}

func (w *watch) version() configstore.Version {
	var indexes []string
	for _, p := range w.places {
		indexes = append(indexes, strconv.FormatUint(p.index, 10))
	}
	return configstore.Version(strings.Join(indexes, "-"))
}
