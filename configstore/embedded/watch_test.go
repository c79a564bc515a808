package embedded

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// A reader that can't be told what has changed gets the full set; an error would come
// again on every try.
func TestAHistoryWithAGapLeadsToTheFullSet(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "isthmus.db"))
	defer s.Close()
	var versions []configstore.Version
	for _, name := range []string{"east", "north", "south"} {
		cluster := &catalog.Cluster{Name: name, Gateways: []string{"10.9.0.1:15443"}}
		if _, err := s.Write(t.Context(), configstore.Write{Object: cluster}); err != nil {
			t.Fatal(err)
		}
		at, _ := s.head.Load()
		versions = append(versions, at.version())
	}
	if err := s.update(func(tx *bbolt.Tx) error { return tx.Bucket(historyBucket).Delete(revisionKey(2)) }); err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithCancel(t.Context())
	var got configstore.Change
	err := s.Watch(ctx, versions[0], func(c configstore.Change) error {
		got = c
		enough()
		return nil
	})
	if !errors.Is(err, context.Canceled) || !got.Full || len(got.Objects) != 3 {
		t.Errorf("full %v, %d objects: %v", got.Full, len(got.Objects), err)
	}
}
