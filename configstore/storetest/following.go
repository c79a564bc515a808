package storetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// follower is a configstore.Follower at work, and everything that it handed on, as a
// reader that awaitSet can be asked of.
type follower struct {
	*configstore.Follower
	reader
}

// follow runs a Follower until the test ends.
func follow(t *testing.T, s configstore.Store) *follower {
	t.Helper()
	f := &follower{reader: reader{t: t, done: make(chan struct{}), news: make(chan struct{})}}
	f.Follower = configstore.NewFollower(s, f.deliver, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { f.err = f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	return f
}

func (f *follower) awaitStatus(what string, is func(configstore.Status) bool) {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		status, ok, changed := f.Status().Follow()
		if ok && is(status) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("status %+v after %s: not %s", status, patience, what)
		}
	}
}

// neverLost holds that an object was never taken away.
func (f *follower) neverLost(key catalog.Key) {
	f.t.Helper()
	for i, c := range f.all() {
		for _, gone := range c.Deleted {
			if gone == key {
				f.t.Errorf("change %d took %s away, which nobody had deleted", i, key)
			}
		}
	}
}
