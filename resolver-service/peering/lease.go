package peering

import (
	"sync"
	"time"
)

// A lease says how long a peer's word holds: from each word on, or from when it counts, for
// a fixed time. Times
// are monotonic, so a clock that jumps does not end a lease. One shorter than minLease
// lasts that long, or it would run out between two renewals.
//
// Any goroutine may tell of a word. One waits for [lease.timer] and then calls tick.
type lease struct {
	timer *time.Timer

	mu          sync.Mutex
	after       time.Duration
	last        time.Time // of the latest word; zero before the first
	due         time.Time // when the lease runs out
	heldUntil   time.Time // until when it does not end, as the peer has asked for
	graceGiven  bool      // a timer that came late has been given a moment already
	lapsed      bool
	ended       time.Time // when it lapsed
	reason      string    // it ended early; empty when it ran out
	unreachable bool      // callers don't reach the peer, whatever is heard from it
	lapses      []time.Time
	count       uint32
	damping     damping
}

// A timer that fires so late tells that this process was held up, and not the peer.
// Words may wait to be read: they are given a moment.
const (
	lateTimer      = 100 * time.Millisecond
	lateTimerGrace = 250 * time.Millisecond
)

// keptLapses is how many lapses are remembered, for people.
const maxLapses = 16

func newLease(after time.Duration) *lease {
	l := &lease{after: max(after, minLease), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// heard notes a word of the peer that counts as of a moment, and tells whether the lease
// is fresh by it and was not before.
func (l *lease) renew(at time.Time) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at.IsZero() || at.Before(l.last) || !now.Before(at.Add(l.after)) {
		return false
	}
	news = l.lapsed || l.last.IsZero()
	l.last, l.due, l.lapsed, l.graceGiven, l.heldUntil = at, at.Add(l.after), false, false, time.Time{}
	l.schedule(now)
	return news
}

// patience is how long the first word may take after a lease was made shorter: the peer
// has to be told, which may need a new connection.
const shortenGrace = 5 * time.Second

// extend changes how long a word holds, also the latest one. A shorter lease does not
// end before a word that was asked for by it could have come.
func (l *lease) setStaleAfter(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after = max(after, minLease)
	if after == l.after {
		return
	}
	l.after = after
	if l.last.IsZero() || l.lapsed {
		return
	}
	now, due := time.Now(), l.last.Add(after)
	if soonest := now.Add(max(after, shortenGrace)); due.Before(l.due) && due.Before(soonest) {
		due = earlier(l.due, soonest)
	}
	l.due = due
	l.schedule(now)
}

// mostHold is how long a peer that says goodbye may be waited for.
const mostHold = time.Minute

// hold has the latest word hold for so long at least: the peer is stopped, to be started again.
// A new word ends that.
func (l *lease) hold(wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fresh() || wait <= 0 {
		return
	}
	now := time.Now()
	if l.heldUntil = now.Add(min(wait, mostHold)); l.due.Before(l.heldUntil) {
		l.due = l.heldUntil
		l.schedule(now)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tick is called when the timer has fired, and tells whether the lease can be relied on
// as little or as much as before.
func (l *lease) tick() (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.usable(), time.Now()
	if l.fresh() && !now.Before(l.due) {
		if now.Sub(l.due) > lateTimer && !l.graceGiven {
			l.graceGiven, l.due = true, now.Add(lateTimerGrace)
		} else {
			l.lapse(now, "")
		}
	}
	l.damping.release(now)
	l.schedule(now)
	return before != l.usable()
}

// end ends the lease before it runs out, and tells whether that is news.
func (l *lease) end(why string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.fresh() || now.Before(l.heldUntil) {
		return false
	}
	l.lapse(now, why)
	l.schedule(now)
	return true
}

// refute has the lease count as ended while callers agree, in words, that they don't reach the
// peer; without words they do no more. It tells whether that is news.
func (l *lease) setUnreachable(why string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.fresh(), time.Now()
	if why != "" && before {
		l.lapse(now, why)
	}
	if l.unreachable = why != ""; !l.unreachable && !l.last.IsZero() {
		l.lapsed = !now.Before(l.due)
	}
	l.schedule(now)
	return before != l.fresh()
}

// lapse ends the lease; with mu held.
func (l *lease) lapse(now time.Time, why string) {
	l.lapsed, l.ended, l.reason = true, now, why
	l.count++
	if l.lapses = append(l.lapses, now); len(l.lapses) > maxLapses {
		l.lapses = l.lapses[1:]
	}
	l.damping.lapse(now)
}

// fresh tells whether the peer's latest word holds; with mu held.
func (l *lease) fresh() bool { return !l.last.IsZero() && !l.lapsed && !l.unreachable }

// holds tells whether the peer can be relied on; with mu held.
func (l *lease) usable() bool { return l.fresh() && !l.damping.suppressed }

// schedule sets the timer for what comes next; with mu held.
func (l *lease) schedule(now time.Time) {
	l.timer.Stop()
	var next time.Time
	if l.fresh() {
		next = l.due
	}
	if until := l.damping.until(); !until.IsZero() && (next.IsZero() || until.Before(next)) {
		next = until
	}
	if !next.IsZero() {
		l.timer.Reset(max(0, next.Sub(now)))
	}
}

func (l *lease) stop() { l.timer.Stop() }

// leaseState is a lease at one moment.
type leaseState struct {
	after      time.Duration
	last       time.Time // zero before the first word
	fresh      bool      // the latest word holds
	usable     bool      // and the peer is relied on
	left       time.Duration
	restarting bool // the peer has said that it stops to be started again
	lapses     uint32
	recent     int       // lapses in the last minute
	ended      time.Time // when it lapsed; while it is not fresh
	reason     string
	damped     time.Time // until when; zero while it is not
}

func (l *lease) state() leaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := leaseState{
		after: l.after, last: l.last, fresh: l.fresh(), usable: l.usable(), lapses: l.count,
		ended: l.ended, reason: l.reason, damped: l.damping.until(),
	}
	now := time.Now()
	if s.fresh {
		s.left, s.restarting = max(0, l.due.Sub(now)), now.Before(l.heldUntil)
	}
	for _, at := range l.lapses {
		if now.Sub(at) < time.Minute {
			s.recent++
		}
	}
	return s
}
