package configstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
)

// oneByOne is a store that can't get many objects at once, and fails if that is said.
type oneByOne struct {
	configstore.Writer
	fails error
}

func (o oneByOne) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	if o.fails != nil {
		return configstore.Stored{}, o.fails
	}
	return o.Writer.Get(ctx, key)
}

func (o oneByOne) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	if o.fails != nil {
		return nil, nil, o.fails
	}
	return o.Writer.List(ctx)
}

func clusterNamed(n int) *catalog.Cluster {
	return &catalog.Cluster{Name: fmt.Sprint("c", n), Network: "n", StaleAfter: catalog.DefaultStaleAfter}
}

// TestManyObjectsAreGotInTheirOrder gets few and many, in every way that there is: at
// once, one by one and by a list.
func TestManyObjectsAreGotInTheirOrder(t *testing.T) {
	store, err := embedded.Open(filepath.Join(t.TempDir(), "isthmus.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var writes []configstore.Write
	for n := range 600 {
		writes = append(writes, configstore.Write{Object: clusterNamed(n)})
	}
	if _, err := store.Write(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	for _, w := range []configstore.Writer{store, oneByOne{Writer: store}} {
		for _, many := range []int{0, 1, 40, 700} {
			var keys []catalog.Key
			for n := range many {
				keys = append(keys, clusterNamed(700-1-n).Key())
			}
			got, err := configstore.GetMany(t.Context(), w, keys)
			if err != nil || len(got) != many {
				t.Fatalf("%T: %d of %d, %v", w, len(got), many, err)
			}
			for i, g := range got {
				switch there := 700-1-i < 600; {
				case there && (g.Err != nil || g.Object.Key() != keys[i] || g.Revision == ""):
					t.Fatalf("%T: place %d of %d has %+v, want %s", w, i, many, g, keys[i])
				case !there && (!errors.Is(g.Err, configstore.ErrNotFound) || g.Object != nil):
					t.Fatalf("%T: place %d of %d has %+v, want that %s is not there", w, i, many, g, keys[i])
				}
			}
		}
	}
}

func TestAStoreThatFailsIsNotOneWithoutTheObjects(t *testing.T) {
	away := errors.New("connection refused")
	for _, many := range []int{1, 40, 700} {
		keys := make([]catalog.Key, many)
		for n := range keys {
			keys[n] = clusterNamed(n).Key()
		}
		if _, err := configstore.GetMany(t.Context(), oneByOne{fails: away}, keys); !errors.Is(err, away) {
			t.Errorf("%d objects of a store that is away: %v", many, err)
		}
	}
}
