package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// Watch is that of configstore.Store.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	w := watch{store: s, refused: map[string]configstore.Refusal{}}
	w.at, w.resumed = parseVersion(from)
	for first := true; ; first = false {
		_, _, changed := s.head.Follow()
		change, news, err := w.next()
		if err != nil {
			return fmt.Errorf("store embedded: read %s: %w", s.path, err)
		}
		if first || news {
			if err := deliver(change); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return configstore.ErrClosed
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// watch is how far one Watch has come.
type watch struct {
	store   *Store
	at      head
	resumed bool // at is a version of this file, and what it refuses is not known yet
	synced  bool // refused is complete
	refused map[string]configstore.Refusal
}

// next reads what has changed since the last call. The transaction is over before
// anything is decoded.
func (w *watch) next() (change configstore.Change, news bool, err error) {
	var pairs []configstore.Pair
	var paths []string
	var at head
	full := false
	err = w.store.view(func(tx *bbolt.Tx) error {
		at = parseHead(tx.Bucket(metaBucket).Get(headKey))
		if w.resumed {
			paths, w.resumed = touched(tx, w.at)
		}
		if full = !w.resumed; full || !w.synced {
			pairs = all(tx)
			return nil
		}
		pairs = some(tx, paths)
		return nil
	})
	if err != nil {
		return change, false, err
	}
	if full {
		change = w.full(pairs)
	} else {
		change = w.difference(pairs, paths)
	}
	news = full || at != w.at
	w.at, w.resumed, w.synced = at, true, true
	change.Version = at.version()
	return change, news, nil
}

func (w *watch) full(pairs []configstore.Pair) configstore.Change {
	objects, refused := configstore.Decode(pairs)
	clear(w.refused)
	w.refuse(refused)
	return configstore.Change{Full: true, Objects: objects, Refused: refused}
}

func (w *watch) refuse(refused []configstore.Refusal) {
	for _, r := range refused {
		w.refused[r.Where] = r
	}
}

// difference takes pairs that hold at least those of the paths that are there.
func (w *watch) difference(pairs []configstore.Pair, paths []string) configstore.Change {
	var change configstore.Change
	missing := make(map[string]bool, len(paths))
	for _, path := range paths {
		missing[path] = true
		delete(w.refused, path)
	}
	wanted := make(map[string]bool, len(paths))
	for _, p := range pairs {
		wanted[p.Path] = missing[p.Path]
		delete(missing, p.Path)
	}
	objects, refused := configstore.Decode(pairs)
	w.refuse(refused)
	for _, o := range objects {
		if wanted[api.KeyPath(o.Object.Key())] {
			change.Objects = append(change.Objects, o)
		}
	}
	for _, path := range paths {
		if key, err := api.ParseKeyPath(path); missing[path] && err == nil {
			change.Deleted = append(change.Deleted, key)
		}
	}
	change.Refused = w.allRefused()
	return change
}

func (w *watch) allRefused() []configstore.Refusal {
	var all []configstore.Refusal
	for _, r := range w.refused {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b configstore.Refusal) int {
		if a.Where < b.Where {
			return -1
		}
		return 1
	})
	return all
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

// pair copies a value, whose memory is the file's and goes with the transaction.
func pair(path string, value []byte) configstore.Pair {
	if len(value) < 8 {
		return configstore.Pair{Path: path, Revision: "0"}
	}
	return configstore.Pair{
		Path: path, Value: append([]byte(nil), value[8:]...), Revision: formatRevision(binary.BigEndian.Uint64(value)),
	}
}
