package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// watch is one reading of everything and what follows it.
type watch struct {
	source  *Source
	emit    func(instances.Change) error
	index   *index
	emitErr error     // of emit
	told    time.Time // when the full set was
}

func (w *watch) run(ctx context.Context) error {
	all := w.source.config.collections()
	n := live.NewInbox(map[name]object{})
	at := make([]string, len(all)) // resourceVersion that each collection was read at
	objects, err := w.list(ctx, all, at)
	if err != nil {
		return err
	}
	change, _ := w.index.apply(objects)
	change.Full = true
	if err := w.say(change); err != nil {
		return err
	}
	w.told = time.Now()
	return w.follow(ctx, all, at, n)
}

// lists is how many lists are asked for at once.
const lists = 8

// list reads every collection. One that can't be read fails them all.
func (w *watch) list(ctx context.Context, all []collection, at []string) ([]object, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lists)
	each := make([][]object, len(all))
	for i, c := range all {
		group.Go(func() error {
			raw, version, err := w.source.api.List(ctx, c.Collection)
			if err != nil {
				return fmt.Errorf("list %s %w", c.resource, advise(err, "list", c))
			}
			at[i] = version
			for _, text := range raw {
				o, err := parse(text, c.pods)
				if err != nil {
					return fmt.Errorf("list %s at %s: %w", c.resource, w.source.api.Host(), err)
				}
				each[i] = append(each[i], o)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var objects []object
	for _, some := range each {
		objects = append(objects, some...)
	}
	return objects, nil
}

// follow starts the streams and says what they bring.
func (w *watch) follow(ctx context.Context, all []collection, at []string, n *live.Inbox[map[name]object]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel(nil)
	for i, c := range all {
		streams.Go(func() { cancel(w.stream(ctx, c, at[i], n)) })
	}
	for {
		select {
		case <-n.News():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var heard map[name]object // of each object the newest, so that there is never more than there are objects
		n.Look(func(held *map[name]object) { heard, *held = *held, map[name]object{} })
		if change, news := w.index.apply(slices.Collect(maps.Values(heard))); news {
			if err := w.say(change); err != nil {
				return err
			}
		}
	}
}

func (w *watch) say(c instances.Change) error {
	w.emitErr = w.emit(c)
	return w.emitErr
}

// stream follows one collection until the context ends or the server can't be watched.
func (w *watch) stream(ctx context.Context, c collection, from string, n *live.Inbox[map[name]object]) error {
	err := w.source.api.Follow(ctx, c.Collection, from, apiserver.Follower{Take: func(text json.RawMessage, deleted bool) (string, error) {
		o, err := parse(text, c.pods)
		if err != nil || o.version == "" {
			return "", err
		}
		o.deleted = deleted
		n.Note(func(held *map[name]object) { (*held)[o.name] = o })
		return o.version, nil
	}})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s %w", c.resource, advise(err, "watch", c))
}
