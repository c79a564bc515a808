package main

import (
	"context"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// sight is a decision that has changed in the watcher's view.
type sight struct {
	App   string // its ID
	Ready bool
	At    int64 // Unix time in nanoseconds
}

// sights are the changes in the watcher's view that nobody has asked for yet.
type sights struct {
	mu  sync.Mutex
	all []sight
}

// follow follows the watcher's view until ctx ends.
func (s *sights) follow(ctx context.Context, t *topology.Topology) error {
	sub := t.Subscribe(watcher)
	defer sub.Close()
	var seen *catalog.View
	for {
		view, err := sub.Next(ctx, seen)
		if err != nil {
			return nil // ctx has ended
		}
		s.note(seen, view, time.Now())
		seen = view
	}
}

func (s *sights) note(before, view *catalog.View, at time.Time) {
	if before == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for edit := range view.Entries.Diff(&before.Entries, func(a, b *catalog.Entry) bool { return a == b }) {
		if !edit.Remove {
			s.all = append(s.all, sight{edit.App.ID, edit.Value.Outcome() == catalog.OK, at.UnixNano()})
		}
	}
}

func (s *sights) take() []sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// reached is when the views of all callers had what was waited for, as Unix times in
// nanoseconds.
type reached struct {
	First int64 // the first decision
	Last  int64 // all of them
}

// await waits until a caller may call all of its callees, or none, and says when it
// could call the first so, and all.
func await(ctx context.Context, t *topology.Topology, app catalog.App, ready bool) (r reached, err error) {
	sub := t.Subscribe(app)
	defer sub.Close()
	var seen *catalog.View
	for {
		if seen, err = sub.Next(ctx, seen); err != nil {
			return r, err
		}
		at := time.Now().UnixNano()
		there := 0
		for callee, e := range seen.Entries.All() {
			if callee != app && (e.Outcome() == catalog.OK) == ready {
				there++
			}
		}
		if there > 0 && r.First == 0 {
			r.First = at
		}
		if there == callees {
			r.Last = at
			return r, nil
		}
	}
}
