package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// Follower is a configstore.Follower at work, and a Reader of the changes that it handed on.
type Follower struct {
	*configstore.Follower
	Reader
	tap *tap
}

// tap notes what a store delivers a second time though it is no full set.
type tap struct {
	configstore.Store

	mu    sync.Mutex
	held  map[catalog.Key]string // its revision
	twice []string
}

// Watch is that of configstore.Store.
func (p *tap) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return p.Store.Watch(ctx, from, func(c configstore.Change) error {
		p.note(c)
		return deliver(c)
	})
}

func (p *tap) note(c configstore.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Full {
		clear(p.held)
	}
	for _, key := range c.Deleted {
		delete(p.held, key)
	}
	for _, o := range c.Objects {
		key := o.Object.Key()
		if p.held[key] == o.Revision {
			p.twice = append(p.twice, fmt.Sprintf("%s at revision %s", key, o.Revision))
		}
		p.held[key] = o.Revision
	}
}

// Follow runs a Follower until the test ends.
func Follow(t testing.TB, s configstore.Store) *Follower {
	t.Helper()
	f := &Follower{
		Reader: Reader{t: t, done: make(chan struct{}), news: make(chan struct{})},
		tap:    &tap{Store: s, held: map[catalog.Key]string{}},
	}
	f.Follower = configstore.NewFollower(f.tap, f.deliver, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { f.err = f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	return f
}

// AwaitStatus waits for a status.
func (f *Follower) AwaitStatus(what string, is func(configstore.Status) bool) configstore.Status {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		status, ok, changed := f.Status().Follow()
		if ok && is(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("status %+v after %s: not %s", status, patience, what)
		}
	}
}

// neverLost holds that objects were never taken away.
func (f *Follower) neverLost(keys ...catalog.Key) {
	f.t.Helper()
	for i, c := range f.All() {
		for _, gone := range c.Deleted {
			if slices.Contains(keys, gone) {
				f.t.Errorf("change %d took %s away, which nobody had deleted", i, gone)
			}
		}
	}
}

// neverTwice holds that no change came a second time.
func (f *Follower) neverTwice() {
	f.t.Helper()
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	for _, what := range f.tap.twice {
		f.t.Errorf("the store delivered %s twice", what)
	}
}
