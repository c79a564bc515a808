package embedded

import (
	"context"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Watch is that of configstore.Store.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Watch(ctx, deliver, func(ctx context.Context, deliver func(configstore.Change) error) error {
		w := watch{store: s}
		w.at, w.resumed = parseVersion(from)
		for first := true; ; first = false {
			_, _, changed := s.head.Follow()
			change, news, err := w.next()
			if err != nil {
				return s.failed(ctx, "watch", err)
			}
			if first || news {
				if err := deliver(change); err != nil {
					return err
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	})
}

// watch is how far one Watch has come.
type watch struct {
	store   *Store
	at      head
	resumed bool // at is a version of this file
	synced  bool // the ledger knows what is refused
	ledger  configstore.Ledger
}

// next reads what has changed since the last call. The transaction is over before
// anything is decoded.
func (w *watch) next() (change configstore.Change, news bool, err error) {
	var everything, put []configstore.Pair
	var paths []string
	var at head
	full := false
	err = w.store.view(func(tx *bbolt.Tx) error {
		at = parseHead(tx.Bucket(metaBucket).Get(headKey))
		if w.resumed {
			paths, w.resumed = touched(tx, w.at)
		}
		if full = !w.resumed; full || !w.synced {
			everything = all(tx)
		}
		if !full {
			put = some(tx, paths)
		}
		return nil
	})
	if err != nil {
		return change, false, err
	}
	if full {
		change = w.ledger.Reset(everything, at.version())
	} else {
		if !w.synced {
			w.ledger.Resume(everything)
		}
		change = w.ledger.Apply(put, missing(paths, put), at.version())
	}
	news = full || at != w.at
	w.at, w.resumed, w.synced = at, true, true
	return change, news, nil
}

// all is every pair in the file.
func (s *Store) all(context.Context) (pairs []configstore.Pair, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		pairs = all(tx)
		return nil
	})
	return pairs, err
}

// some is the paths that are in the file.
func (s *Store) some(_ context.Context, paths []string) (pairs []configstore.Pair, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		pairs = some(tx, paths)
		return nil
	})
	return pairs, err
}

// all copies every pair out of the file.
func all(tx *bbolt.Tx) []configstore.Pair {
	var pairs []configstore.Pair
	c := tx.Bucket(objectsBucket).Cursor()
	for path, value := c.First(); path != nil; path, value = c.Next() {
		pairs = append(pairs, pair(string(path), value))
	}
	return pairs
}

func some(tx *bbolt.Tx, paths []string) []configstore.Pair {
	var pairs []configstore.Pair
	for _, path := range paths {
		if value := tx.Bucket(objectsBucket).Get([]byte(path)); value != nil {
			pairs = append(pairs, pair(path, value))
		}
	}
	return pairs
}

// missing is the paths that no pair has.
func missing(paths []string, pairs []configstore.Pair) []string {
	there := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		there[p.Path] = true
	}
	return slices.DeleteFunc(paths, func(path string) bool { return there[path] })
}

// pair copies a value, whose memory is the file's and goes with the transaction.
func pair(path string, value []byte) configstore.Pair {
	if len(value) < 8 {
		return configstore.Pair{Path: path, Revision: "0"}
	}
	return configstore.Pair{
		Path: path, Value: append([]byte(nil), value[8:]...), Revision: formatRevision(binary.BigEndian.Uint64(value)),
	}
}
