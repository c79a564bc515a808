package gateway

import "time"

// stalls ends pairs of which a receiver takes nothing of what waits for it. The kernel does
// so too (TCP_USER_TIMEOUT), but not always: where a window is open by less than a segment, each
// probe that the receiver has no room for has it count anew, for ever (seen with Linux 6.18).
//
// While no receiver is behind there is nothing to look at, and the loop waits without limit.
type stalls struct {
	sweep
	behind []*pair // those with bytes that wait, and some that were
}

// note lists a pair if bytes wait in it.
func (s *stalls) note(p *pair) {
	if s.after <= 0 || p.behind || !p.waits() {
		return
	}
	p.behind = true
	s.begin(len(s.behind))
	s.behind = append(s.behind, p)
}

// due returns the pairs in which bytes have waited for too long, and forgets those in which
// none wait any more. It looks at them now and then only.
func (s *stalls) due(now time.Time) (stalled []*pair) {
	if !s.sweep.due(len(s.behind), now) {
		return nil
	}
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
