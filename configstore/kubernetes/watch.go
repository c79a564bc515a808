package kubernetes

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/derived"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// settled is how long the streams of a reader that comes back must be silent for it to
// know what it has missed. A watch does not say when it is done with the past.
const settled = 50 * time.Millisecond

// longEnough is how long what was just read must have been remembered for it to be read
// anew at once when it is forgotten. A server that forgets faster than it can be read is
// asked again when the reader comes back, with its pauses.
const longEnough = time.Second

// Watch is that of configstore.Store.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Do(ctx, func(inside context.Context) error {
		if s.status != nil {
			s.status.start(s)
		}
		w, _ := s.kept.Take(from)
		for {
			if w == nil {
				w = &watch{store: s, revisions: map[catalog.Key]string{}, ledger: newLedger(), derived: derived.New(s.log), failed: map[string]error{}}
			}
			w.deliver = deliver
			anew, began := w.at == nil, time.Now()
			err := w.run(inside)
			if w.deliverErr != nil {
				return w.deliverErr
			}
			if w.at != nil {
				s.kept.Keep(formatVersion(w.at), w)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !apiserver.Expired(err) || anew && time.Since(began) < longEnough {
				return failed(inside, err)
			}
			w = nil // what happened since is forgotten: everything is read anew
		}
	})
}

// watch is how far a Watch has come: what its reader has been told.
type watch struct {
	store      *Store
	deliver    func(configstore.Change) error
	deliverErr error    // of deliver
	at         []string // resourceVersion of each resource; nil before the full set
	revisions  map[catalog.Key]string
	ledger     configstore.Ledger
	documents  []*documents
	derived    *derived.Objects
	failed     map[string]error // why documents can't be read
}

func (w *watch) run(ctx context.Context) error {
	if w.at != nil {
		now, err := w.store.now(ctx)
		if err != nil {
			return err
		}
		// A server that is behind what its reader knew has been put back from a backup.
		if !slices.ContainsFunc(zip(w.at, now), func(p [2]string) bool { return newer(p[0], p[1]) }) {
			return w.follow(ctx, newNews(w.at), func(ctx context.Context, n *news) error { return w.catchUp(ctx, n, now) })
		}
	}
	items, at, err := w.store.listAll(ctx)
	if err != nil {
		return err
	}
	w.documents, w.derived = w.store.documentsOf(), derived.New(w.store.log)
	documents, err := listDocuments(ctx, w.documents)
	if err != nil {
		return err
	}
	clear(w.revisions)
	clear(w.failed)
	full, _ := w.change(put(items), documents, true)
	return w.follow(ctx, newNews(at), func(context.Context, *news) error { return w.say(full, at) })
}

func zip(a, b []string) [][2]string {
	pairs := make([][2]string, len(a))
	for i := range a {
		pairs[i] = [2]string{a[i], b[i]}
	}
	return pairs
}

func put(items []item) map[catalog.Key]event {
	events := make(map[catalog.Key]event, len(items))
	for _, i := range items {
		events[i.key] = event{item: i}
	}
	return events
}

// follow starts the streams, lets begin say the first change, and delivers news.
func (w *watch) follow(ctx context.Context, n *news, begin func(context.Context, *news) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel(nil)
	begun := n.take()
	for i, r := range w.store.resources {
		s := &stream{api: w.store.api, r: r, index: i, from: begun.at[i], news: n}
		streams.Go(func() { cancel(s.run(ctx)) })
	}
	for _, d := range w.documents {
		streams.Go(func() { d.run(ctx, n.tell) })
	}
	if err := begin(ctx, n); err != nil {
		return err
	}
	for {
		select {
		case <-n.News():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := n.take()
		if change, news := w.change(now.pending, now.documentNews, false); now.moved || news {
			if err := w.say(change, now.at); err != nil {
				return err
			}
		}
	}
}

// catchUp tells a reader that comes back at once what it has missed, if only that it is
// nothing.
func (w *watch) catchUp(ctx context.Context, n *news, now []string) error {
	if !n.catchUp(ctx, now) {
		return context.Cause(ctx)
	}
	all := n.take()
	change, _ := w.change(all.pending, all.documentNews, false)
	return w.say(change, all.at)
}

// catchUp waits until the streams have come to where the server was, or say nothing more.
func (n *news) catchUp(ctx context.Context, now []string) bool {
	for {
		var open, there bool
		var left time.Duration
		n.Look(func(h *noted) {
			open = !slices.Contains(h.open, false)
			there = !slices.ContainsFunc(zip(now, h.at), func(p [2]string) bool { return newer(p[0], p[1]) })
			left = settled - time.Since(h.last)
		})
		if open && (there || left <= 0) {
			return true
		}
		if !open {
			left = time.Hour // the wake comes
		}
		timer := time.NewTimer(left)
		select {
		case <-n.News():
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// change makes a change of events, and tells whether there is any: what only touched a
// status or a label is no news.
func (w *watch) change(events map[catalog.Key]event, documents documentNews, full bool) (c configstore.Change, news bool) {
	var items []item
	var deleted []string
	for key, e := range events {
		was, there := w.revisions[key]
		switch {
		case e.deleted && there:
			delete(w.revisions, key)
			if w.store.status != nil {
				w.store.status.forget(key)
			}
			deleted = append(deleted, e.item.path())
		case !e.deleted && was != e.item.meta.revision():
			w.revisions[key] = e.item.meta.revision()
			items = append(items, e.item)
		}
	}
	if full {
		c = w.ledger.Reset(pairs(items), "")
	} else {
		c = w.ledger.Apply(pairs(items), deleted, "")
	}
	for _, i := range items {
		if w.store.status != nil {
			w.store.status.report(i, w.ledger.Why(i.path()))
		}
	}
	news = len(items)+len(deleted) > 0
	if len(w.documents) > 0 {
		w.derive(&c, events, documents)
		news = news || len(documents.documents)+len(documents.failed) > 0
	}
	slices.SortFunc(c.Deleted, catalog.Key.Compare)
	return c, news
}

// derive adds to a change what derives from documents.
func (w *watch) derive(c *configstore.Change, events map[catalog.Key]event, n documentNews) {
	for id, document := range n.documents {
		w.derived.Take(id, document)
	}
	for name, err := range n.failed {
		if w.failed[name] = err; err == nil {
			delete(w.failed, name)
		}
	}
	w.derived.Add(c, maps.Keys(events), func(key catalog.Key) bool { return w.revisions[key] != "" })
}

func (w *watch) allRefused() []configstore.Refusal {
	all := append(w.ledger.Refused(), w.derived.Refused()...)
	for name, err := range w.failed {
		all = append(all, configstore.Refusal{Where: name, Err: err})
	}
	slices.SortFunc(all, func(a, b configstore.Refusal) int { return strings.Compare(a.Where, b.Where) })
	return all
}

func (w *watch) say(c configstore.Change, at []string) error {
	c.Version, c.Refused = formatVersion(at), w.allRefused()
	if err := w.deliver(c); err != nil {
		w.deliverErr = err
		return err
	}
	w.at = at
	return nil
}
