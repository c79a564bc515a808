package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
)

// Watch is that of configstore.Store.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Watch(ctx, deliver, func(ctx context.Context, deliver func(configstore.Change) error) error {
		s.client.Retry()
		w := watch{store: s, deliver: deliver}
		err := w.run(ctx, from)
		if w.at != "" && w.ledger != nil {
			s.kept.Keep(w.at, w.ledger)
		}
		return s.fail(ctx, "watch "+s.spansText(), err)
	})
}

// watch is one Watch. It is for one goroutine.
type watch struct {
	store   *Store
	deliver func(configstore.Change) error
	ledger  *configstore.Ledger
	at      configstore.Version // that the reader has; empty for none
	heard   bool                // something was delivered
}

// run goes on where a version was, if it can, and reads everything if not: at first, and
// again where the server has compacted what the reader has not had yet.
func (w *watch) run(ctx context.Context, from configstore.Version) error {
	if begin, ok := parseVersion(from); ok {
		head, err := w.resume(ctx, from, begin)
		if err == nil {
			w.at = from
			err = w.follow(ctx, begin, head, nil)
		}
		if !errors.Is(err, etcdclient.ErrAnew) {
			return err
		}
	}
	for {
		begin, change, err := w.full(ctx)
		if err != nil {
			return err
		}
		if err := w.follow(ctx, begin, begin.revision, &change); !errors.Is(err, etcdclient.ErrAnew) {
			return err
		}
	}
}

// full reads everything at one revision.
func (w *watch) full(ctx context.Context) (place, configstore.Change, error) {
	kvs, header, err := w.store.everything(ctx, 0)
	if err != nil {
		return place{}, configstore.Change{}, err
	}
	begin := at(header, header.Revision, newest(kvs))
	w.ledger = w.newLedger()
	return begin, w.ledger.Reset(w.store.pairs(kvs), begin.version()), nil
}

func (w *watch) newLedger() *configstore.Ledger {
	return &configstore.Ledger{Prefix: w.store.config.Prefix}
}

// resume tells whether the server still is what it was at a place, or etcdclient.ErrAnew, and learns
// what was refused then. The head is the server's revision now. It is one request, where
// the Watch before was of this Store.
func (w *watch) resume(ctx context.Context, from configstore.Version, begin place) (head int64, err error) {
	key := begin.witness.key
	if key == "" {
		key = w.store.spans()[0].begin
	}
	answer, err := w.store.get(ctx, key, clientv3.WithRev(begin.revision))
	if err != nil {
		return 0, anew(err)
	}
	found := witness{key: begin.witness.key}
	if len(answer.Kvs) > 0 && begin.witness.key != "" {
		found = testify(answer.Kvs[0])
	}
	if now := at(answer.Header, begin.revision, found); now != begin {
		return 0, etcdclient.ErrAnew
	}
	var kept bool
	if w.ledger, kept = w.store.kept.Take(from); kept {
		return answer.Header.Revision, nil
	}
	kvs, _, err := w.store.everything(ctx, begin.revision)
	if err != nil {
		return 0, anew(err)
	}
	w.ledger = w.newLedger()
	w.ledger.Resume(w.store.pairs(kvs))
	return answer.Header.Revision, nil
}

// anew makes etcdclient.ErrAnew of what a server says that does not have a revision, or that does
// not let us read the key that was of another scope.
func anew(err error) error {
	switch rpctypes.Error(err) {
	case rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrPermissionDenied:
		return fmt.Errorf("%w: %w", etcdclient.ErrAnew, err)
	}
	return err
}

// follow delivers the first change, and then what comes on a stream of what happened after
// a place. With no first change, that is what there is up to the head.
func (w *watch) follow(ctx context.Context, begin place, head int64, first *configstore.Change) error {
	ctx, cancel := context.WithCancel(ctx)
	pending := configstore.NewPending()
	r := newReceiver(w.store, pending, begin, head)
	ended := make(chan error, 1)
	var wait sync.WaitGroup
	wait.Go(func() { ended <- r.run(ctx) })
	defer wait.Wait()
	defer cancel()
	if first != nil {
		if err := w.hand(*first); err != nil {
			return err
		}
	}
	for {
		select {
		case <-pending.News():
			if err := w.hand(w.ledger.Apply(pending.Take())); err != nil {
				return err
			}
		case err := <-ended:
			w.store.client.Forget()
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// hand hands a change to the reader, unless it says nothing new.
func (w *watch) hand(c configstore.Change) error {
	if w.heard && c.Version == w.at && len(c.Objects)+len(c.Deleted) == 0 {
		return nil
	}
	if err := w.deliver(c); err != nil {
		w.ledger = nil // it knows more than the reader
		return err
	}
	w.at, w.heard = c.Version, true
	return nil
}
