package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// History is that of configstore.Historian. It asks for one version after the other, back to where
// the server has compacted its history. etcd can't say when a key was deleted. So History looks
// ever further back for a revision that has the key. An object that was made and deleted again
// between two looks is not found.
func (s *Store) History(ctx context.Context, key catalog.Key, most int) ([]configstore.Past, error) {
	h := history{store: s, key: s.config.Prefix + api.KeyPath(key), most: most}
	err := s.Do(ctx, "history of "+h.key, func(ctx context.Context) error {
		err := h.read(ctx)
		if err == nil && !h.found {
			err = fmt.Errorf("%w, nor is one of before remembered", configstore.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return h.past, nil
}

// history is what has been found of one key.
type history struct {
	store *Store
	key   string
	most  int
	past  []configstore.Past
	found bool // the object was there once
}

func (h *history) read(ctx context.Context) error {
	now, err := h.store.get(ctx, h.key)
	if err != nil {
		return err
	}
	head := now.Header.Revision
	var kv *mvccpb.KeyValue
	if len(now.Kvs) > 0 {
		kv = now.Kvs[0]
	} else if kv, err = h.before(ctx, head); err != nil {
		return err
	}
	for kv != nil && len(h.past) < h.most {
		h.add(kv)
		if kv.Version > 1 {
			kv, err = h.at(ctx, kv.ModRevision-1)
		} else {
			kv, err = h.before(ctx, kv.CreateRevision-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *history) add(kv *mvccpb.KeyValue) {
	h.found = true
	p := configstore.Past{Revision: formatRevision(kv.ModRevision)}
	p.Object, p.Err = api.DecodeJSON(h.store.unprefixed(kv.Key), kv.Value)
	h.past = append(h.past, p)
}

// at is the key at a revision: nil where it was not there, or nobody knows any more.
func (h *history) at(ctx context.Context, revision int64) (*mvccpb.KeyValue, error) {
	kv, _, err := h.look(ctx, revision)
	return kv, err
}

// look is at, and whether the server still knows.
func (h *history) look(ctx context.Context, revision int64) (kv *mvccpb.KeyValue, known bool, err error) {
	if revision <= 0 {
		return nil, false, nil
	}
	answer, err := h.store.get(ctx, h.key, clientv3.WithRev(revision))
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case len(answer.Kvs) == 0:
		return nil, true, nil
	}
	return answer.Kvs[0], true, nil
}

// before is what the key was when it was last deleted, before a revision at which it was
// not there. The deletion is noted.
func (h *history) before(ctx context.Context, absent int64) (*mvccpb.KeyValue, error) {
	for step := int64(1); ; step *= 2 {
		kv, known, err := h.look(ctx, absent-step)
		if err != nil {
			return nil, err
		}
		if kv != nil {
			return h.deletion(ctx, kv, absent-step, absent)
		}
		if !known {
			return nil, nil
		}
	}
}

// deletion finds when a key was deleted that was there at one revision and was not at
// another, and what it was last.
func (h *history) deletion(ctx context.Context, kv *mvccpb.KeyValue, there, absent int64) (*mvccpb.KeyValue, error) {
	for absent-there > 1 {
		middle := there + (absent-there)/2
		found, known, err := h.look(ctx, middle)
		switch {
		case err != nil:
			return nil, err
		case !known:
			return nil, nil
		case found != nil:
			kv, there = found, middle
		default:
			absent = middle
		}
	}
	if len(h.past) < h.most {
		h.past = append(h.past, configstore.Past{Revision: formatRevision(absent), Deleted: true})
	}
	h.found = true
	return kv, nil
}
