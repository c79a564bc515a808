package dapr

import (
	"context"
)

// subscription keeps a listener for a Watch. Where Dapr can't subscribe, the Watch goes
// on by looking, and it is tried again with each rescan.
type subscription struct {
	watch    *watch
	hints    *hints
	listener *listener
	pending  bool
	ready    chan *listener // brings the listener that was begun; nil when there is none
}

func newSubscription(w *watch) *subscription {
	return &subscription{watch: w, hints: newHints(), ready: make(chan *listener)}
}

// begin subscribes, unless that is so already. Dapr's code may wait for the server
// longer than a Watch may, so its doing is told by ready. The context is that of the Watch.
func (s *subscription) begin(ctx context.Context) {
	if s.listener != nil || s.pending {
		return
	}
	s.pending = true
	set := s.watch.lease.settings
	s.watch.store.remains.Go(func() {
		l, err := listen(ctx, set, s.hints)
		if err != nil && ctx.Err() == nil {
			set.once.say(set.log, "subscribe", "Dapr's store can't be subscribed to; changes are found by looking",
				"every", s.watch.store.config.Heartbeat, "store", set.where(), "err", set.scrub.err(err))
		}
		select {
		case s.ready <- l:
		case <-ctx.Done():
			if l != nil {
				l.stop()
			}
		}
	})
}

// begun takes what ready has brought, and tells whether that is a listener.
func (s *subscription) begun(l *listener) bool {
	s.listener, s.pending = l, false
	return l != nil
}

// failed gives a listener up of which Dapr's code has logged an error. Another is had with
// the next rescan, which the caller brings forward.
func (s *subscription) failed(why string) {
	set := s.watch.lease.settings
	set.log.Debug("subscription given up", "store", set.where(), "err", why)
	s.end()
}

// end stops the listener, without waiting for that.
func (s *subscription) end() {
	if l := s.listener; l != nil {
		s.listener = nil
		s.watch.store.remains.Go(l.stop)
	}
}
