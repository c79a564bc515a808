package peering

import (
	"slices"
	"sync"
	"time"
)

// A lease says how long a peer's state is valid: for a fixed time after each message. Times are
// monotonic, so a clock that jumps ends no lease. A lease shorter than minLease lasts minLease;
// otherwise it would end between two renewals.
//
// Any goroutine may renew a lease. One goroutine waits for [lease.timer] and then calls tick.
type lease struct {
	timer *time.Timer

	mu          sync.Mutex
	after       time.Duration
	last        time.Time // the latest message; zero before the first
	due         time.Time // when the lease ends
	heldUntil   time.Time // the lease does not end before, since the peer restarts
	graceGiven  bool      // a late timer has been given its grace
	lapsed      bool
	resting     bool      // it does not run: see link.turn
	ended       time.Time // when it lapsed
	reason      string    // why it ended early; empty when it ran out
	unreachable bool      // callers don't reach the peer, even if this service does
	lapses      []lapse
	count       uint32
	damping     damping
}

// A timer that fires this late shows that this process was held up, not the peer. Messages may
// wait to be read, so the lease gets a short grace.
const (
	lateTimer      = 100 * time.Millisecond
	lateTimerGrace = 250 * time.Millisecond
)

// lapse is one time that a lease ended.
type lapse struct {
	at, back time.Time // back is zero until it is fresh again
	why      string    // it ended early; empty when it ran out
}

// maxLapses is how many lapses are kept for status.
const maxLapses = 16

func newLease(after time.Duration) *lease {
	l := &lease{after: max(after, minLease), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// renew records a message of the peer as of a moment. It returns true if the lease becomes fresh
// by it.
func (l *lease) renew(at time.Time) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at.IsZero() || at.Before(l.last) || !now.Before(at.Add(l.after)) {
		return false
	}
	news = l.lapsed || l.resting || l.last.IsZero()
	l.resting = false
	l.last, l.due, l.lapsed, l.graceGiven, l.heldUntil = at, at.Add(l.after), false, false, time.Time{}
	l.noteBack(now)
	l.schedule(now)
	return news
}

// noteBack records that the lease is fresh again, if it is; mu is held.
func (l *lease) noteBack(now time.Time) {
	if n := len(l.lapses); n > 0 && l.fresh() && l.lapses[n-1].back.IsZero() {
		l.lapses[n-1].back = now
	}
}

// shortenGrace is how long the first message may take after a lease was made shorter. The peer
// has to learn the new interval, which may need a new connection.
const shortenGrace = 5 * time.Second

// setStaleAfter changes how long a message is valid, including the latest one. A shorter lease
// does not end before a message at the new interval could have arrived.
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

// mostHold bounds how long a restarting peer is waited for.
const mostHold = time.Minute

// hold keeps a fresh lease for at least the given time, since the peer restarts. A new message
// ends that.
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

// tick processes the timer. It returns true if the peer became usable, or stopped being usable.
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

// end ends the lease early. It returns false if the lease was not fresh.
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

// setUnreachable ends the lease while callers agree that they don't reach the peer. An empty
// reason lifts that. It returns true if the lease changed.
func (l *lease) setUnreachable(why string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.fresh(), time.Now()
	if why != "" && before {
		l.lapse(now, why)
	}
	if l.unreachable = why != ""; !l.unreachable && !l.last.IsZero() {
		l.lapsed = !now.Before(l.due)
		l.noteBack(now)
	}
	l.schedule(now)
	return before != l.fresh()
}

// lapse ends the lease; mu is held.
func (l *lease) lapse(now time.Time, why string) {
	l.lapsed, l.ended, l.reason = true, now, why
	l.count++
	if l.lapses = append(l.lapses, lapse{at: now, why: why}); len(l.lapses) > maxLapses {
		l.lapses = l.lapses[1:]
	}
	l.damping.lapse(now)
}

// fresh tells whether the peer's latest message is still valid; mu is held.
func (l *lease) fresh() bool { return !l.last.IsZero() && !l.lapsed && !l.unreachable && !l.resting }

// usable tells whether the lease is fresh and not damped; mu is held.
func (l *lease) usable() bool { return l.fresh() && !l.damping.suppressed }

// schedule sets the timer to the next event; mu is held.
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

// rest stops the lease without an end, until the next message.
func (l *lease) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resting = true
	l.schedule(time.Now())
}

// wake has a lease at rest begin anew with the next message, as with the first.
func (l *lease) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting {
		l.resting, l.last = false, time.Time{}
	}
}

// leaseState is a copy of a lease at one moment.
type leaseState struct {
	after      time.Duration
	last       time.Time // zero before the first message
	fresh      bool      // the latest message is valid
	usable     bool      // fresh and not damped
	left       time.Duration
	restarting bool // the peer said that it restarts
	lapses     uint32
	recent     int       // lapses in the last minute
	log        []lapse   // the newest, the oldest first
	ended      time.Time // when it lapsed; valid while it is not fresh
	reason     string
	damped     time.Time // until when; zero while it is not damped
}

func (l *lease) state() leaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := leaseState{
		after: l.after, last: l.last, fresh: l.fresh(), usable: l.usable(), lapses: l.count,
		ended: l.ended, reason: l.reason, damped: l.damping.until(), log: slices.Clone(l.lapses),
	}
	now := time.Now()
	if s.fresh {
		s.left, s.restarting = max(0, l.due.Sub(now)), now.Before(l.heldUntil)
	}
	for _, lapse := range l.lapses {
		if now.Sub(lapse.at) < time.Minute {
			s.recent++
		}
	}
	return s
}
