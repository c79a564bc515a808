package peering

import "time"

// A lease says how long a peer's word holds: from each word on for a fixed time. It
// belongs to one goroutine. Times are monotonic, so a clock that jumps does not end a
// lease. One shorter than minLease lasts that long, or it would run out between two
// renewals.
type lease struct {
	after  time.Duration
	last   time.Time // of the latest word; zero before the first
	timer  *time.Timer
	lapsed bool
}

func newLease(after time.Duration) *lease {
	l := &lease{after: max(after, minLease), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// heard notes a word of the peer, and tells whether the lease is fresh by it and was
// not before.
func (l *lease) heard() (renewed bool) {
	renewed = l.lapsed || l.last.IsZero()
	l.last, l.lapsed = time.Now(), false
	l.timer.Reset(l.after)
	return renewed
}

// extend changes how long a word holds, also the latest one.
func (l *lease) extend(after time.Duration) {
	after = max(after, minLease)
	if after == l.after {
		return
	}
	l.after = after
	if !l.last.IsZero() && !l.lapsed {
		l.timer.Reset(max(0, after-time.Since(l.last)))
	}
}

// out is ready once the lease has run out; the receiver then calls lapse.
func (l *lease) out() <-chan time.Time { return l.timer.C }

func (l *lease) lapse() { l.lapsed = true }

func (l *lease) stop() { l.timer.Stop() }
