package dapr

import (
	"context"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// subscription keeps a Watch told. Where nobody can be subscribed to, the Watch goes on by
// looking, and it is tried again ever more seldom.
type subscription struct {
	watch    *watch
	hints    *hints
	stop     func() // of what is subscribed to; nil where nothing is
	pending  bool
	ready    chan func() // brings the stop of what was begun; nil when nothing was
	since    time.Time   // of the last beginning
	failures int         // in a row
	untold   int         // changes that were found by looking, since something was last told
}

func newSubscription(w *watch) *subscription {
	return &subscription{watch: w, hints: newHints(), ready: make(chan func())}
}

// begin subscribes, unless that is so already. It may take longer than a Watch may wait,
// so its doing is told by ready. The context is that of the Watch.
func (s *subscription) begin(ctx context.Context) {
	if s.stop != nil || s.pending {
		return
	}
	s.pending = true
	store, l := s.watch.store, s.watch.lease
	store.hold(l) // until it has been stopped
	store.background.Go(func() {
		stop, err := l.listen(ctx, s.hints)
		if err != nil {
			store.release(l)
		}
		if err != nil && ctx.Err() == nil {
			l.settings.once.say(l.settings.log, "subscribe", "the store can't be subscribed to; changes are found by looking",
				"every", store.config.Heartbeat, "store", l.settings.where(), "err", l.settings.scrub.err(err))
		}
		if stop != nil {
			inner := stop
			stop = func() {
				inner()
				store.release(l)
			}
		}
		select {
		case s.ready <- stop:
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
		}
	})
}

// begun takes what ready has brought, and tells whether anything is subscribed to.
func (s *subscription) begun(stop func()) bool {
	s.stop, s.pending, s.since = stop, false, time.Now()
	return stop != nil
}

// told notes that somebody was told.
func (s *subscription) told() {
	s.untold = 0
	s.watch.store.untold.Store(false)
}

// missed notes a change that nobody told of, and warns where that is no exception.
func (s *subscription) missed() {
	const exceptions = 2
	if s.untold++; s.stop == nil || s.untold <= exceptions {
		return
	}
	set := s.watch.lease.settings
	need := notifies[set.component.kind]
	if need == "" {
		return // looking is how changes are found there
	}
	s.watch.store.untold.Store(true)
	set.once.say(set.log, "untold", "the store tells nobody of changes; they are found by looking, late", "every", s.watch.store.config.Heartbeat, "store", set.where(), "do", need)
}

// failed gives a subscription up that has ended by itself, or may have, and says when to
// try another: at once, but ever later where subscriptions end as soon as they have begun,
// since everything is read each time.
func (s *subscription) failed(why string) time.Duration {
	set := s.watch.lease.settings
	set.log.Debug("subscription given up", "store", set.where(), "err", why)
	if time.Since(s.since) > lasting {
		s.failures = 0
	}
	s.end()
	return s.again()
}

// again is when to try after one more failure.
func (s *subscription) again() time.Duration {
	s.failures++
	return live.Backoff(firstPause, longestPause, s.failures-1)
}

// How soon a subscription is tried again, after the first failure and after many, and how
// long one must have lasted for its end to be nothing out of the ordinary.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 30 * time.Second
	lasting      = 5 * time.Second
)

// end stops what is subscribed to, without waiting for that.
func (s *subscription) end() {
	if stop := s.stop; stop != nil {
		s.stop = nil
		s.watch.store.background.Go(stop)
	}
}
