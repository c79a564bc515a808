package dapr

import (
	"context"
	"time"
)

// subscription keeps a listener for a Watch. Where Dapr can't subscribe, the Watch goes
// on by looking, and it is tried again with each rescan.
type subscription struct {
	watch    *watch
	hints    *hints
	listener *listener
	begun    time.Time
}

// begin subscribes, unless that is so already.
func (s *subscription) begin(ctx context.Context) {
	if s.listener != nil {
		return
	}
	set := s.watch.lease.settings
	s.begun = time.Now()
	l, err := listen(ctx, set, s.hints)
	if err != nil && ctx.Err() == nil {
		set.once.say(set.log, "subscribe", "Dapr's store can't be subscribed to; changes are found by looking",
			"every", s.watch.store.config.Heartbeat, "store", set.where(), "err", set.scrub.err(err))
	}
	s.listener = l
}

// failed gives a listener up of which Dapr's code has logged an error. Another is had with
// the next rescan, which the caller brings forward.
func (s *subscription) failed(why string) {
	set := s.watch.lease.settings
	set.log.Debug("subscription given up", "store", set.where(), "err", why)
	s.end()
}

// end stops the listener. A server that does not answer would hold up the Watch, so only
// Close waits for that.
func (s *subscription) end() {
	if l := s.listener; l != nil {
		s.listener = nil
		s.watch.store.calls.Go(l.stop)
	}
}
