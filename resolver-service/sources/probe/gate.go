package probe

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// limit bounds the checks of one app, of one host, or all.
type limit struct {
	rate   int // that begin per second
	burst  int // that may begin at once, after a pause
	atOnce int // that run at a time
}

// The limits. An unverified check may connect to a host that has nothing to do with its app, so
// those limits are far tighter. The others fit an app with 1,000 instances that are checked each
// second, and a host that has 400 of them.
var (
	ofApp            = limit{rate: 1000, burst: 1000, atOnce: 256}
	ofHost           = limit{rate: 200, burst: 200, atOnce: 1024}
	ofAppUnverified  = limit{rate: 10, burst: 20, atOnce: 8}
	ofHostUnverified = limit{rate: 10, burst: 20, atOnce: 16}
	ofAll            = limit{rate: 4000, burst: 40, atOnce: 2048}
)

// key identifies a gate. Checks that failed the last time have gates of their own, except for
// hosts, so that many silent instances don't delay those that answer.
type key struct {
	app                 catalog.App
	host                netip.Addr
	failing, unverified bool
	all                 bool // of all apps and hosts
}

// gateKey is a key with its limit.
type gateKey struct {
	key
	limit limit
}

// gates returns the gates of a check, in order. The app's own gate comes first, so that an app
// with thousands of checks never takes more places at a host than it may run.
func (s Subject) gates() [3]gateKey {
	app, host := ofApp, ofHost
	if s.Unverified {
		app, host = ofAppUnverified, ofHostUnverified
	}
	return [3]gateKey{
		{key{app: s.App, failing: s.Failing, unverified: s.Unverified}, app},
		{key{host: s.Host.Unmap(), unverified: s.Unverified}, host},
		{key{all: true, failing: s.Failing}, ofAll},
	}
}

// gate admits checks in the order in which they arrive. gates.mu guards it.
type gate struct {
	users   int // waiting and running checks
	running int
	waiting []chan struct{} // each is closed when its check may run
	// full is when the token bucket will be full again.
	full time.Time
}

// gates are the gates in use, and those whose buckets fill up.
type gates struct {
	mu    sync.Mutex
	all   map[key]*gate
	sweep int // number of gates that triggers prune
}

const sweepFrom = 1024

// enter returns once a gate admits a check. It fails if ctx ends before.
func (g *gates) enter(ctx context.Context, k gateKey) error {
	place := g.queue(k)
	if place != nil {
		select {
		case <-place:
		case <-ctx.Done():
			g.giveUp(k, place)
			return context.Cause(ctx)
		}
	}
	wait := g.take(k)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		g.putBack(k)
		g.leave(k.key)
		return context.Cause(ctx)
	}
}

// queue takes a place at a gate. If none is free, it returns a channel that is closed once there
// is one.
func (g *gates) queue(k gateKey) (place chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[k.key]
	if at == nil {
		g.prune()
		at = &gate{}
		g.all[k.key] = at
	}
	at.users++
	if at.running < k.limit.atOnce {
		at.running++
		return nil
	}
	place = make(chan struct{})
	at.waiting = append(at.waiting, place)
	return place
}

// giveUp leaves a queue. The place may have become free in the meantime.
func (g *gates) giveUp(k gateKey, place chan struct{}) {
	g.mu.Lock()
	at := g.all[k.key]
	for i, p := range at.waiting {
		if p == place {
			at.waiting = append(at.waiting[:i], at.waiting[i+1:]...)
			at.users--
			g.mu.Unlock()
			return
		}
	}
	g.mu.Unlock()
	g.leave(k.key)
}

// leave passes a place to the next check, or frees it.
func (g *gates) leave(k key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[k]
	at.users--
	if len(at.waiting) > 0 {
		close(at.waiting[0])
		at.waiting[0] = nil
		at.waiting = at.waiting[1:]
		return
	}
	at.running--
	if at.users == 0 && !at.full.After(time.Now()) {
		delete(g.all, k)
	}
}

// take takes a token, and returns how long to wait for it.
func (g *gates) take(k gateKey) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, now, token := g.all[k.key], time.Now(), k.limit.token()
	if at == nil { // the check has ended
		return 0
	}
	if at.full.Before(now) {
		at.full = now
	}
	at.full = at.full.Add(token)
	return at.full.Sub(now) - time.Duration(k.limit.burst)*token
}

// putBack returns an unused token.
func (g *gates) putBack(k gateKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[k.key]
	at.full = at.full.Add(-k.limit.token())
}

// token is the time between two tokens.
func (l limit) token() time.Duration { return time.Second / time.Duration(l.rate) }

// prune removes idle gates with full buckets once there are many. So memory is bounded by the
// checks that run or began within seconds. mu is held.
func (g *gates) prune() {
	if len(g.all) < g.sweep {
		return
	}
	now := time.Now()
	for k, at := range g.all {
		if at.users == 0 && !at.full.After(now) {
			delete(g.all, k)
		}
	}
	g.sweep = max(sweepFrom, 2*len(g.all))
}
