package peering

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// many is the number of links above which they cost only what those in use cost: peers are told the
// interest of this cluster, and links rest. With fewer, all of everything is known at once.
const many = 32

// A link rests while nothing here leads to its peer, if there are many links. It has no connection
// then, and polls: it connects now and then, and hears of what has changed. It wakes once something
// leads there.
const (
	restAfter  = time.Minute      // after the last use
	pollPause  = 5 * time.Minute  // between two polls of a peer, at least
	pollEach   = time.Second      // between two polls of any: where many peers rest, each is polled less often
	retryPause = 30 * time.Second // after the first poll in which nothing was heard, of a peer that never was; then twice as long each
	pollWithin = 15 * time.Second // a poll ends at the latest
	pollTries  = 2                // or once so many attempts have failed, and one at each gateway
	newsWithin = 5 * time.Second  // of this cluster, that a peer at rest is told at all
	tellWithin = 8 * time.Second  // that a peer which rests is told that it is to poll
)

// crowd is all links of this cluster.
type crowd struct {
	links atomic.Int64
	many  int
}

// crowded tells whether there are many.
func (c *crowd) crowded() bool { return c.links.Load() > int64(c.many) }

// pollPause is between two polls of a peer.
func (c *crowd) pollPause() time.Duration {
	return max(pollPause, time.Duration(c.links.Load())*pollEach)
}

// restsMs is for how long a link rests that rests.
func (c *crowd) restsMs() uint32 { return uint32((c.pollPause() + pollWithin) / time.Millisecond) }

type phase uint8

const (
	awake   phase = iota
	resting       // without a connection
	polling       // connected for a moment
)

// rest is how far a link rests. It belongs to the run goroutine.
type rest struct {
	phase    phase
	used     time.Time // when the peer was last of use; zero: never
	timer    *time.Timer
	poll     time.Time // when the next poll begins, of one that rests
	began    time.Time // when the latest poll began
	due      bool      // the timer has fired: a poll is to begin or, of one, to end
	complete bool      // the peer has told all since the link last connected
	again    bool      // the peer has said, during a poll, that it exports something else
}

// used tells whether the link is to be up.
func (l *link) used(need *topology.Need, object *catalog.Cluster) bool {
	return need == nil || need.Used || introducer(object) || !l.crowd.crowded()
}

// letOthersFirst holds up a link that is of no use while others connect, where there are many. So a start
// has the routes in use ready as soon as with few.
func (l *link) letOthersFirst(ctx context.Context) {
	var turns chan<- struct{}
	for first := l.starts.first.done; l.crowd.crowded(); {
		need, _, changed := l.need.Follow()
		object, _, objectChanged := l.object.Follow()
		if need != nil && l.used(need, object) {
			return
		}
		if need != nil {
			l.setPhase(polling) // it rests, for who asks
			l.starts.first.heard(l.cluster)
		}
		select {
		case <-first:
			first, turns = nil, l.starts.turns
		case turns <- struct{}{}:
			end := sync.OnceFunc(func() { <-l.starts.turns })
			time.AfterFunc(turnWithin, end)
			time.AfterFunc(reachWithin, func() {
				if !l.reached.Load() {
					end()
				}
			})
			l.endTurn = end
			return
		case <-changed:
		case <-objectChanged:
		case <-ctx.Done():
			return
		}
	}
}

// turn takes the link to its next phase, where it is time for that.
func (l *link) turn(ctx context.Context, object *catalog.Cluster, chans *channels) *channels {
	need, _ := l.need.View()
	l.offer(need)
	r, now := &l.rest, time.Now()
	used := l.used(need, object)
	if used {
		r.used = now
		l.restsMs.Store(0)
	}
	switch {
	case used && r.phase == resting:
		l.setPhase(awake)
		l.lease.wake()
		return l.startChannels(ctx, object)
	case used && r.phase == polling:
		l.setPhase(awake)
		l.lease.wake()
		chans.startRenewers(object)
		l.reportLease(ctx)
	case used:
	case r.phase == resting && r.due:
		l.setPhase(polling)
		l.failures.Store(0)
		r.began = now
		r.timer.Reset(pollWithin)
		return l.startChannels(ctx, object)
	case r.phase == polling && (r.complete || r.due || l.failures.Load() >= pollTries && l.status.lostSince(r.began)):
		l.beginRest(ctx, chans)
	case r.phase == awake && (r.complete && l.reported == topology.Fresh || l.status.fails()):
		if left := restAfter - now.Sub(r.used); !r.used.IsZero() && left > 0 {
			r.timer.Reset(left)
			l.restsMs.Store(l.crowd.restsMs()) // which the peer hears before the link rests
		} else {
			l.beginRest(ctx, chans)
		}
	}
	return chans
}

func (l *link) setPhase(next phase) {
	l.rest.phase, l.rest.due = next, false
	l.rest.timer.Stop()
	if next == awake {
		l.restsMs.Store(0)
		l.polled.Store(0)
	} else {
		l.restsMs.Store(l.crowd.restsMs())
	}
	l.status.setResting(next != awake)
}

func (l *link) beginRest(ctx context.Context, chans *channels) {
	chans.stop()
	l.endTurn()
	l.lease.rest()
	l.setPhase(resting)
	pause := live.Backoff(retryPause, l.crowd.pollPause(), int(l.polled.Load()))
	if l.rest.complete {
		l.polled.Store(0)
	} else {
		l.polled.Add(1)
		l.tellSilent(ctx)
	}
	if l.mirror.synced {
		pause = l.crowd.pollPause()
		if (l.reported != topology.Resting || l.silent && l.rest.complete) && l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Lease: topology.Resting}) {
			l.reported, l.silent = topology.Resting, false
		}
		l.starts.heard(l.cluster)
	}
	l.freshness.rest()
	l.rest.pollIn(live.Jitter(pause))
	if at := l.nudging.at.Load(); at != nil && l.rest.complete { // a nudge that no request took along
		l.rest.hasten(max(0, time.Until(*at)), tellWithin)
	}
	if l.rest.again {
		l.rest.again = false
		l.pollWhenTold()
	}
}

// attemptFailed logs that of an attempt to connect, unless the link rests and its last poll failed, too.
func (l *link) attemptFailed(text string, args ...any) {
	if l.polled.Load() == 0 {
		l.warn(text, args...)
	}
}

// pollIn has the next poll begin after a pause.
func (r *rest) pollIn(pause time.Duration) {
	r.poll = time.Now().Add(pause)
	r.timer.Reset(pause)
}

// hasten has the next poll begin within a time after a pause, unless it begins sooner anyway.
func (r *rest) hasten(pause, within time.Duration) {
	if pause += rand.N(within); time.Until(r.poll) > pause {
		r.pollIn(pause)
	}
}

// tell has a peer at rest polled soon, since there is something to tell it.
func (l *link) tell() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// pollSoon polls a peer at rest soon. All of them together are spread over a while.
func (l *link) pollSoon() {
	if l.rest.phase == resting {
		l.rest.hasten(0, newsWithin)
	}
}
