package peering

import (
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// A peer that rests does not hear what changes. So it is nudged when the names that this cluster exports
// to it change, or who may call them: by a word on this cluster's own link or, if that rests as well, by
// a poll that comes early. The peer then polls soon. Each side spaces this out for each peer.

// nudgePause is the least time between two nudges of one peer, and between two polls that one causes. It
// doubles while they go on, up to pollPause.
const nudgePause = 10 * time.Second

// pace spaces out what happens again and again.
type pace struct {
	last time.Time // or the next, which is planned; zero: there was none
	run  int       // that followed each other
}

// next is how long to wait until it may happen again, which is planned with that.
func (p *pace) next(now time.Time) time.Duration {
	if p.last.After(now) {
		return p.last.Sub(now)
	}
	if now.Sub(p.last) > 2*pollPause {
		p.run = 0
	}
	at := now
	if p.run > 0 {
		if soonest := p.last.Add(live.Backoff(nudgePause, pollPause, p.run-1)); soonest.After(now) {
			at = soonest
		}
	}
	p.last = at
	p.run++
	return at.Sub(now)
}

// nudging is what a link knows of the nudges of its peer.
type nudging struct {
	offers uint64                    // Need.Offers that the peer knows of
	pace   pace                      // of the nudges
	at     atomic.Pointer[time.Time] // when the next one is due, by the monotonic clock; nil: none is
}

// offer nudges the peer if it rests and what it may call here has changed.
func (l *link) offer(need *topology.Need) {
	if need == nil || need.Offers == l.nudging.offers {
		return
	}
	l.nudging.offers = need.Offers
	if streams, _, rests := l.subscriptions(l.cluster); streams > 0 || rests == 0 {
		return // it hears by itself, or never asks
	}
	pause := l.nudging.pace.next(time.Now())
	due := time.Now().Add(pause)
	l.nudging.at.Store(&due)
	if l.rest.phase == resting {
		l.rest.hasten(pause, tellWithin)
	}
}

// take tells whether the peer is to be nudged with a request that is about to be sent: the first of
// a stream, or one that comes late enough.
func (n *nudging) take(first bool) bool {
	at := n.at.Load()
	return at != nil && (first || !time.Now().Before(*at)) && n.at.CompareAndSwap(at, nil)
}

// nudged notes that a cluster has nudged this one.
func (l *Links) nudged(cluster string) {
	l.mu.Lock()
	r := l.links[cluster]
	l.mu.Unlock()
	if r == nil {
		return
	}
	select {
	case r.nudges <- struct{}{}:
	default:
	}
}

// pollWhenTold polls a peer that has nudged this cluster, unless there is a stream that tells all.
func (l *link) pollWhenTold() {
	switch l.rest.phase {
	case resting:
		l.rest.hasten(l.nudgedPace.next(time.Now()), newsWithin)
	case polling:
		l.rest.again = true
	}
}
