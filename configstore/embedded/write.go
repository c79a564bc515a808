package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

// Get is that of configstore.Reader.
func (s *Store) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return configstore.Stored{}, err
	}
	defer leave()
	var pairs []configstore.Pair
	err = s.view(func(tx *bbolt.Tx) error {
		pairs = some(tx, []string{api.KeyPath(key)})
		return nil
	})
	if err != nil {
		return configstore.Stored{}, fmt.Errorf("store embedded: get %s: %w", key, err)
	}
	got := configstore.GotOf("embedded", key, pairs)
	return got.Stored, got.Err
}

// GetMany is that of configstore.ManyGetter: all of it is of one moment.
func (s *Store) GetMany(ctx context.Context, keys []catalog.Key) ([]configstore.Got, error) {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	pairs := make([][]configstore.Pair, len(keys))
	err = s.view(func(tx *bbolt.Tx) error {
		for i, key := range keys {
			pairs[i] = some(tx, []string{api.KeyPath(key)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store embedded: get %d objects: %w", len(keys), err)
	}
	got := make([]configstore.Got, len(keys))
	for i, key := range keys {
		got[i] = configstore.GotOf("embedded", key, pairs[i])
	}
	return got, nil
}

// List is that of configstore.Reader.
func (s *Store) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	var pairs []configstore.Pair
	err = s.view(func(tx *bbolt.Tx) error {
		pairs = all(tx)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store embedded: list: %w", err)
	}
	objects, refused := configstore.Decode(pairs)
	return objects, refused, nil
}

// Write is that of configstore.Writer. The writes are on disk when it returns.
func (s *Store) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(writes) == 0 {
		return nil, nil
	}
	if err := configstore.CheckWrites(writes); err != nil {
		return nil, fmt.Errorf("store embedded: write: %w", err)
	}
	edits, err := encode(writes)
	if err != nil {
		return nil, fmt.Errorf("store embedded: write: %w", err)
	}
	revisions := make([]string, len(writes))
	err = s.commit(edits, func(tx *bbolt.Tx, at head) error {
		for i, w := range writes {
			if err := w.CheckIf(heldRevision(tx, edits[i].path)); err != nil {
				return err
			}
			if w.Object != nil {
				revisions[i] = formatRevision(at.revision)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return revisions, nil
}

// edit is one key's new value; nil deletes it.
type edit struct {
	path  string
	value []byte
}

func encode(writes []configstore.Write) ([]edit, error) {
	edits := make([]edit, len(writes))
	for i, w := range writes {
		edits[i].path = api.KeyPath(w.Key())
		if w.Object == nil {
			continue
		}
		value, err := configstore.Encode(w.Object, api.MaxObjectBytes)
		if err != nil {
			return nil, err
		}
		edits[i].value = value
	}
	return edits, nil
}

// commit makes the edits in one transaction if check agrees, then tells the watchers.
func (s *Store) commit(edits []edit, check func(*bbolt.Tx, head) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var at head
	var refused error
	err := s.update(func(tx *bbolt.Tx) error {
		at = parseHead(tx.Bucket(metaBucket).Get(headKey))
		at.revision, at.nonce = at.revision+1, newNonce()
		if refused = check(tx, at); refused != nil {
			return refused
		}
		paths := make([]string, len(edits))
		history, err := openHistory(tx)
		if err != nil {
			return err
		}
		now := time.Now()
		for i, e := range edits {
			paths[i] = e.path
			if err := history.replace(e, at.revision, now); err != nil {
				return err
			}
			if err := put(tx.Bucket(objectsBucket), e, at.revision); err != nil {
				return err
			}
		}
		if err := history.trim(s.historyBytes); err != nil {
			return err
		}
		return record(tx, at, paths)
	})
	if refused == nil {
		atomicfile.Note(s.path, err)
	}
	switch {
	case refused != nil:
		return fmt.Errorf("store embedded: write: %w", refused)
	case err != nil:
		return fmt.Errorf("store embedded: write %s: %w; nothing was written and what was there stands: make room or mend the disk, then write again", s.path, bare(err))
	}
	s.head.Store(at)
	return nil
}

func put(objects *bbolt.Bucket, e edit, revision uint64) error {
	if e.value == nil {
		return objects.Delete([]byte(e.path))
	}
	return objects.Put([]byte(e.path), append(revisionKey(revision), e.value...))
}

func heldRevision(tx *bbolt.Tx, path string) string {
	value := tx.Bucket(objectsBucket).Get([]byte(path))
	if value == nil {
		return configstore.Absent
	}
	if len(value) < 8 {
		return "0"
	}
	return formatRevision(binary.BigEndian.Uint64(value))
}
