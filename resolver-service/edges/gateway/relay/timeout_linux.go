package relay

import (
	"time"

	"golang.org/x/sys/unix"
)

// Never is a wait without limit.
const Never time.Duration = -1

// Timeout says when a loop has to check things with a time limit, so that none goes much beyond
// it. A loop has no timers. It checks all things now and then, and waits without limit while
// there are none.
type Timeout struct {
	Limit   time.Duration // not positive for none
	checked time.Time
}

// Adding is called before a thing is added to n others.
func (t *Timeout) Adding(n int) {
	if n == 0 {
		t.checked = time.Now()
	}
}

func (t *Timeout) every() time.Duration { return max(t.Limit/8, time.Millisecond) }

// Wait is how long the loop may wait for events while there are n things.
func (t *Timeout) Wait(n int) time.Duration {
	if n == 0 {
		return Never
	}
	return t.every()
}

// Due tells whether to check n things now.
func (t *Timeout) Due(n int, now time.Time) bool {
	if n == 0 || now.Sub(t.checked) < t.every() {
		return false
	}
	t.checked = now
	return true
}

// sooner is the shorter of two waits, of which a negative one is without limit.
func sooner(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// timedPairs are pairs with a time limit. Some may have met it already.
type timedPairs struct {
	Timeout
	pairs []*pair
}

func (t *timedPairs) add(p *pair) {
	t.Adding(len(t.pairs))
	t.pairs = append(t.pairs, p)
}

func (t *timedPairs) wait() time.Duration { return t.Wait(len(t.pairs)) }

// check calls keep for each pair that has not ended, when that is due, and drops a pair if keep
// returns false. keep must add no pair to this list.
func (t *timedPairs) check(now time.Time, keep func(*pair) bool) {
	if !t.Due(len(t.pairs), now) {
		return
	}
	kept := t.pairs[:0]
	for _, p := range t.pairs {
		if !p.ended && keep(p) {
			kept = append(kept, p)
		}
	}
	clear(t.pairs[len(kept):])
	t.pairs = kept
}

// timeouts are the time limits of a loop's pairs.
type timeouts struct {
	// stalled are pairs of which a receiver takes nothing of the bytes that wait for it. The
	// kernel ends those too (TCP_USER_TIMEOUT), but not always. Where a window is open by less
	// than a segment, each probe that the receiver has no room for makes the kernel count anew,
	// for ever (seen with Linux 6.18).
	stalled timedPairs
	// unanswered are pairs whose backend has accepted the connection and sent nothing.
	unanswered timedPairs
	// connecting are pairs whose backend the loop has begun to connect to. The backend's socket
	// has no option but no delay until the first check: six more system calls would be spent on
	// each connection, and most that come in numbers are over by then.
	connecting timedPairs
}

func newTimeouts(cfg Config) timeouts {
	return timeouts{
		stalled:    timedPairs{Timeout: Timeout{Limit: cfg.Stall}},
		unanswered: timedPairs{Timeout: Timeout{Limit: cfg.Answer}},
		connecting: timedPairs{Timeout: Timeout{Limit: cfg.Connect}},
	}
}

func (t *timeouts) wait() time.Duration {
	return sooner(sooner(t.stalled.wait(), t.unanswered.wait()), t.connecting.wait())
}

// noteStalled lists a pair if bytes wait in it.
func (t *timeouts) noteStalled(p *pair) {
	if t.stalled.Limit > 0 && !p.stalled && p.blocked() {
		p.stalled = true
		t.stalled.add(p)
	}
}

// noteUnanswered lists a pair once, unless the backend has answered.
func (t *timeouts) noteUnanswered(p *pair) {
	if t.unanswered.Limit > 0 && !p.backend.sent && p.connected.IsZero() {
		p.connected = time.Now()
		t.unanswered.add(p)
	}
}

// endLate ends the pairs that have reached a time limit. Before, it advances them once more:
// perhaps it was the loop that stood still.
func (l *Loop) endLate(now time.Time) {
	l.timeouts.stalled.check(now, func(p *pair) bool { return l.keepStalled(p, now) })
	l.timeouts.unanswered.check(now, func(p *pair) bool { return l.keepUnanswered(p, now) })
	l.timeouts.connecting.check(now, func(p *pair) bool { return l.keepConnecting(p, now) })
}

func (l *Loop) keepStalled(p *pair, now time.Time) bool {
	since := now.Add(-l.timeouts.stalled.Limit)
	if p.blockedSince(since) {
		if l.advance(p); p.ended {
			return false
		}
		if p.blockedSince(since) {
			l.release(p, ResetFD)
			return false
		}
	}
	p.stalled = p.blocked()
	return p.stalled
}

func (l *Loop) keepUnanswered(p *pair, now time.Time) bool {
	if p.backend.sent {
		return false
	}
	if now.Sub(p.connected) < l.timeouts.unanswered.Limit {
		return true
	}
	if l.advance(p); p.ended || p.backend.sent {
		return false
	}
	unix.Write(p.client.fd, p.owner.Unanswered())
	l.release(p, closeFD)
	return false
}

// keepConnecting also sets the options of the backends that are connected.
func (l *Loop) keepConnecting(p *pair, now time.Time) bool {
	switch {
	case p.dialing == nil:
		setTimeouts(p.backend.fd, l.cfg.Stall)
		return false
	case now.Sub(p.dialing.since) >= l.timeouts.connecting.Limit:
		l.handBack(p, unix.ETIMEDOUT)
		return false
	}
	return true
}

// blocked tells whether bytes wait for a side that can't take them. The bytes that wait for a
// backend before it is connected have a time limit of their own.
func (p *pair) blocked() bool {
	return p.dialing == nil && (!p.client.blocked.IsZero() || !p.backend.blocked.IsZero())
}

// blockedSince tells whether some have waited since a time, or for longer.
func (p *pair) blockedSince(since time.Time) bool {
	return p.blocked() && (p.client.blockedSince(since) || p.backend.blockedSince(since))
}

func (s *side) blockedSince(since time.Time) bool {
	return !s.blocked.IsZero() && !s.blocked.After(since)
}

// block notes that the side takes no more for now, and whether it has taken some of the bytes
// that waited.
func (s *side) block(took bool) {
	if took || s.blocked.IsZero() {
		s.blocked = time.Now()
	}
}
