package configstore

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// ManyGetter is a store that gets many objects for the price of one, or nearly.
type ManyGetter interface {
	// GetMany is Get of each key, in one look at the store; see [GetMany].
	GetMany(ctx context.Context, keys []catalog.Key) ([]Got, error)
}

// Got is what [Reader.Get] says of one key.
type Got struct {
	Stored
	Err error // ErrNotFound or ErrInvalid, wrapped
}

// gotOf is what a store of that name has under a key, of at most one pair.
func gotOf(store string, key catalog.Key, pairs []Pair) (got Got) {
	objects, refused := Decode(pairs)
	switch {
	case len(refused) > 0:
		got.Revision = pairs[0].Revision
		got.Err = fmt.Errorf("store %s: get %s: %w: %w", store, key, ErrInvalid, refused[0].Err)
	case len(objects) == 0:
		got.Err = fmt.Errorf("store %s: get %s: %w", store, key, ErrNotFound)
	default:
		got.Stored = objects[0]
	}
	return got
}

const (
	// getsAtOnce is how many questions a store is asked at once.
	getsAtOnce = 16
	// listFrom is for how many objects reading the whole store costs less than to ask
	// for each: 16 rounds of questions.
	listFrom = 16 * getsAtOnce
)

// GetMany gets many objects, in the order of the keys. A missing or refused object is an error of
// its own; the error is for all of them. It asks the store once if that is a [ManyGetter], and
// otherwise for a few at a time, or for all that it has.
func GetMany(ctx context.Context, from Reader, keys []catalog.Key) ([]Got, error) {
	if m, ok := from.(ManyGetter); ok {
		return m.GetMany(ctx, keys)
	}
	if len(keys) >= listFrom {
		return getByList(ctx, from, keys)
	}
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	got := make([]Got, len(keys))
	return got, getEach(ctx, from, keys, all, got)
}

// getEach gets the keys of some places.
func getEach(ctx context.Context, from Reader, keys []catalog.Key, places []int, got []Got) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(getsAtOnce)
	for _, i := range places {
		group.Go(func() error {
			stored, err := from.Get(ctx, keys[i])
			if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid) {
				return err
			}
			got[i] = Got{stored, err}
			return nil
		})
	}
	return group.Wait()
}

func getByList(ctx context.Context, from Reader, keys []catalog.Key) ([]Got, error) {
	stored, refusals, err := from.List(ctx)
	if err != nil {
		return nil, err
	}
	held := make(map[catalog.Key]Stored, len(stored))
	for _, o := range stored {
		held[o.Object.Key()] = o
	}
	invalid := make(map[catalog.Key]bool, len(refusals))
	for _, r := range refusals {
		invalid[r.Key] = true
	}
	got := make([]Got, len(keys))
	var again []int // a list has no revision of what can't be used
	for i, key := range keys {
		o, there := held[key]
		switch {
		case invalid[key]:
			again = append(again, i)
		case there:
			got[i].Stored = o
		default:
			got[i].Err = fmt.Errorf("%s: %w", key, ErrNotFound)
		}
	}
	return got, getEach(ctx, from, keys, again, got)
}
