package gateway

import "time"

// stalls ends pairs of which a receiver takes nothing of what waits for it. The kernel does
// so too (TCP_USER_TIMEOUT), but not always: where a window is open by less than a segment, each
// probe that the receiver has no room for has it count anew, for ever (seen with Linux 6.18).
//
// While no receiver is behind there is nothing to look at, and the loop waits without limit.
type stalls struct {
	after  time.Duration // how long bytes may wait; not positive for as long as they like
	behind []*pair       // those with bytes that wait, and some that were
	looked time.Time
}

// note lists a pair if bytes wait in it.
func (s *stalls) note(p *pair) {
	if s.after <= 0 || p.behind || !p.waits() {
		return
	}
	p.behind = true
	if len(s.behind) == 0 {
		s.looked = time.Now()
	}
	s.behind = append(s.behind, p)
}

// every is how long the loop may wait for events, so that none is ended much too late.
func (s *stalls) every() time.Duration { return max(s.after/8, time.Millisecond) }

// wait is that in milliseconds, as for epoll_wait; -1 for without limit.
func (s *stalls) wait() int {
	if len(s.behind) == 0 {
		return -1
	}
	return int(s.every().Milliseconds())
}

// due returns the pairs in which bytes have waited for too long, and forgets those in which
// none wait any more. It looks at them now and then only.
func (s *stalls) due(now time.Time) (stalled []*pair) {
	if len(s.behind) == 0 || now.Sub(s.looked) < s.every() {
		return nil
	}
	s.looked = now
	kept := s.behind[:0]
	for _, p := range s.behind {
		switch {
		case p.ended:
		case !p.waits():
			p.behind = false
		default:
			kept = append(kept, p)
			if p.waitsSince(now.Add(-s.after)) {
				stalled = append(stalled, p)
			}
		}
	}
	clear(s.behind[len(kept):])
	s.behind = kept
	return stalled
}

// endStalled ends the pairs that have stalled.
func (l *loop) endStalled(now time.Time) {
	for _, p := range l.stalls.due(now) {
		if l.advance(p); !p.ended && p.waitsSince(now.Add(-l.stalls.after)) { // it may have been us who stood still
			l.release(p, closeWithReset)
		}
	}
}

// waits tells whether bytes wait for a side that can't take them. What waits for a backend
// that is still to be connected to has its own time limit.
func (p *pair) waits() bool {
	return p.dialing == nil && (!p.client.blocked.IsZero() || !p.backend.blocked.IsZero())
}

// waitsSince tells whether some have waited since a time, or for longer.
func (p *pair) waitsSince(moment time.Time) bool {
	for _, e := range []*end{&p.client, &p.backend} {
		if !e.blocked.IsZero() && !e.blocked.After(moment) {
			return true
		}
	}
	return false
}

// blocks notes that the side takes no more for now, and whether it has taken something of
// what waited.
func (e *end) blocks(took bool) {
	if took || e.blocked.IsZero() {
		e.blocked = time.Now()
	}
}
