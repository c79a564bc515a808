package consulapi

import "time"

// holdTime is how long a query that does not block waits for the service to settle, as
// one waits for a leader in Consul.
const holdTime = 7 * time.Second

// settled tells whether views have all that they had before the service started.
func (s *Server) settled() bool {
	if s.cfg.Settled == nil {
		return true
	}
	select {
	case <-s.cfg.Settled:
		return true
	default:
		return false
	}
}

// settled waits until the caller's view is there, with all that it had before the service
// started. What is missing earlier may not have been heard of yet, and an answer without it
// would say that it was withdrawn. Who has waited for long enough is answered as by a Consul
// without a leader; what is registered, and how checks are, is taken in meanwhile.
//
// A blocking query is held as long as it would block: Dapr's component keeps what it knows
// while it waits, forgets all of it with an error, and asks again seconds later.
func (q *request) settled() error {
	if q.caller.sub == nil {
		return nil // who sees nothing misses nothing
	}
	var timer <-chan time.Time
	for {
		news := follow(&q.caller.news)
		_, seen := q.caller.look()
		pending := q.s.cfg.Settled
		if q.s.settled() {
			if seen {
				return nil
			}
			pending = nil
		}
		if timer == nil {
			t := time.NewTimer(q.hold())
			defer t.Stop()
			timer = t.C
		}
		over, err := q.blocked(news, pending, timer)
		switch {
		case err != nil:
			return err
		case over:
			return errNoLeader
		}
	}
}

// hold is how long the query waits for the service to settle.
func (q *request) hold() time.Duration {
	if q.blocks() {
		return q.limit()
	}
	return holdTime
}
