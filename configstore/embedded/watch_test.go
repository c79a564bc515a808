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

func TestAFullSetForgetsWhatWasRefusedBefore(t *testing.T) {
	w := watch{refused: map[string]configstore.Refusal{}}
	bad := configstore.Pair{Path: "isthmus/v1alpha1/Cluster/east", Value: []byte("{"), Revision: "1"}
	if c := w.full([]configstore.Pair{bad}); len(c.Refused) != 1 {
		t.Fatalf("refused: %v", c.Refused)
	}
	w.full(nil) // it was deleted while the reader fell behind
	if c := w.difference(nil, nil); len(c.Refused) != 0 {
		t.Errorf("still refused: %v", c.Refused)
	}
}

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
