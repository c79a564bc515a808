package embedded

import (
	"context"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// History is that of configstore.Historian. It goes back ObjectHistory versions of an
// object, unless those of all objects together are more than HistoryBytes.
func (s *Store) History(ctx context.Context, key catalog.Key, most int) ([]configstore.Past, error) {
	path := api.KeyPath(key)
	var all []pastVersion
	err := s.Do(ctx, "history of "+key.String(), func(context.Context) error {
		err := s.view(func(tx *bbolt.Tx) error {
			if now, ok := current(tx, path); ok && most > 0 {
				all = append(all, now)
			}
			all = append(all, pastVersions(tx, path, most-len(all))...)
			return nil
		})
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("%w, nor is one of before remembered", configstore.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	past := make([]configstore.Past, len(all))
	for i, v := range all {
		past[i] = configstore.Past{Revision: formatRevision(v.revision), Deleted: v.deleted, At: v.at}
		if !v.deleted {
			past[i].Object, past[i].Err = api.DecodeJSON(path, v.value)
		}
	}
	return past, nil
}

// current is the version of an object that stands.
func current(tx *bbolt.Tx, path string) (pastVersion, bool) {
	value := tx.Bucket(objectsBucket).Get([]byte(path))
	if value == nil {
		return pastVersion{}, false
	}
	v := pastVersion{}
	if len(value) >= 8 {
		v.revision, v.value = binary.BigEndian.Uint64(value), append([]byte(nil), value[8:]...)
	}
	v.at = writtenAt(tx, path, v.revision)
	return v, true
}
