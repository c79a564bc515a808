package dapr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/dapr/components-contrib/configuration"
	"github.com/dapr/components-contrib/metadata"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// hints is what a subscription has told since it was last asked. It holds at most
// mostHints paths, however much is told.
type hints struct{ *live.Inbox[hinted] }

type hinted struct {
	paths     map[string]bool
	told      bool // something may have changed
	many      bool // more than could be held: everything may have changed
	begun     bool // a subscription has begun
	listening bool // and has not ended
}

const mostHints = 1000

func newHints() hints { return hints{live.NewInbox(hinted{})} }

// add hints at paths, or at anything.
func (h hints) add(paths ...string) {
	h.Note(func(held *hinted) {
		held.told = true
		for _, path := range paths {
			if held.paths == nil {
				held.paths = map[string]bool{}
			}
			held.paths[path] = true
		}
		if len(held.paths) > mostHints {
			held.many, held.paths = true, nil
		}
	})
}

// begin notes that a subscription has begun.
func (h hints) begin() { h.Note(func(held *hinted) { held.begun, held.listening = true, true }) }

// end notes that none is there any more, and tells whether one had begun.
func (h hints) end() (was bool) {
	h.Look(func(held *hinted) { was, held.listening = held.listening, false })
	if was {
		h.add()
	}
	return was
}

func (h hints) take() (all hinted) {
	h.Look(func(held *hinted) { all, *held = *held, hinted{listening: held.listening} })
	return all
}

// How soon a subscription is tried again, after the first failure and after many, and how
// long one must have lasted for its end to be nothing out of the ordinary.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 30 * time.Second
	lasting      = 5 * time.Second
)

// subscribe keeps a Watch told until its context ends. Where nobody can be subscribed to, the Watch
// goes on by looking. Subscriptions that end as soon as they have begun are tried ever more
// seldom, since everything is read each time.
func (w *watch) subscribe(ctx context.Context) {
	s, l := w.store, w.lease
	s.hold(l) // it may take longer to end than a Watch may wait
	s.background.Go(func() {
		defer s.release(l)
		for failures := 0; ctx.Err() == nil; failures++ {
			began := time.Now()
			err := l.listen(ctx, w.hints)
			begun, set := w.hints.end(), l.settings
			if begun && time.Since(began) > lasting {
				failures = 0
			}
			switch {
			case ctx.Err() != nil:
				return
			case begun:
				set.log.Debug("subscription given up", "store", set.where(), "err", set.scrub.err(err))
			default:
				set.once.Warn("subscribe", "the store can't be subscribed to; changes are found by looking",
					"every", s.config.Heartbeat, "store", set.where(), "err", set.scrub.err(err))
			}
			live.Sleep(ctx, live.Backoff(firstPause, longestPause, failures))
		}
	})
}

// listener is an engine that is told by its server's own protocol.
type listener interface {
	// listen says when it begins to, and then what changes, until the context ends or it can't any
	// more. The error is never nil.
	listen(ctx context.Context, to hints) error
}

// listen subscribes: by the engine where it can, else by Dapr's interface.
func (l *lease) listen(ctx context.Context, to hints) error {
	if own, ok := l.engine.(listener); ok {
		return own.listen(ctx, to)
	}
	return listenByDapr(ctx, l.settings, to)
}

// listenByDapr subscribes with a store of Dapr of its own: to close it is the one way to be
// rid of all that belongs to a subscription.
func listenByDapr(ctx context.Context, s settings, to hints) error {
	lost := make(chan string, 1)
	b := s.logger()
	b.failed = func(text string) {
		select {
		case lost <- text:
		default:
		}
	}
	store := newStore(s.component.kind, b)
	defer closeStore(store)
	initial, done := context.WithTimeout(ctx, 2*requestTimeout)
	defer done()
	err := store.Init(initial, configuration.Metadata{Base: metadata.Base{Name: s.component.name, Properties: maps.Clone(s.component.properties)}})
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	request := &configuration.SubscribeRequest{Metadata: s.requestMetadata()}
	if s.component.kind == kindAzure {
		request.Keys = []string{s.names.key(headPath)}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = store.Subscribe(ctx, request, func(_ context.Context, e *configuration.UpdateEvent) error {
		to.add(s.changed(e)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	to.begin()
	select {
	case why := <-lost:
		return errors.New(why)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changed is the paths that an event is about. The head is none of them, but news.
func (s settings) changed(e *configuration.UpdateEvent) []string {
	var paths []string
	for key := range e.Items {
		if s.component.kind == kindKubernetes {
			key = fromPoints(key)
		}
		if path, ok := s.names.path(key); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// closeStore closes a store of Dapr's, also one that Init has left without a client, whose
// Close panics.
func closeStore(store configuration.Store) {
	defer func() { _ = recover() }()
	_ = store.Close()
}
