package embedded

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

// commit makes the edits in one transaction, then tells the watchers.
// The writes are on disk when it returns.
func (s *Store) commit(edits []configstore.Edit) ([]string, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	var at head
	var refused error
	revisions := make([]string, len(edits))
	err := s.update(func(tx *bbolt.Tx) error {
		at = parseHead(tx.Bucket(metaBucket).Get(headKey))
		at.revision, at.nonce = at.revision+1, newNonce()
		history, err := openHistory(tx)
		if err != nil {
			return err
		}
		now := time.Now()
		for i, e := range edits {
			if refused = e.CheckIf(heldRevision(tx, e.Path)); refused != nil {
				return refused
			}
			if e.Object != nil {
				revisions[i] = formatRevision(at.revision)
			}
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
		return record(tx, at, configstore.Paths(edits))
	})
	if refused == nil {
		atomicfile.Note(s.path, err)
	}
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, fmt.Errorf("%w; nothing was written and what was there stands: make room or mend the disk, then write again", bare(err))
	}
	s.head.Store(at)
	return revisions, nil
}

func put(objects *bbolt.Bucket, e configstore.Edit, revision uint64) error {
	if e.Value == nil {
		return objects.Delete([]byte(e.Path))
	}
	return objects.Put([]byte(e.Path), append(revisionKey(revision), e.Value...))
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
