package probe

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// limit bounds the checks of one app, those of one host, or all.
type limit struct {
	rate   int // how many begin in a second
	burst  int // how many may begin at once, after a pause
	atOnce int // how many are under way
}

// The limits. A check that is unverified may ask a host that has nothing to do with the one
// that asks for it, so these are far tighter. The others fit an app of 1,000 instances that
// are checked every second, and a host that has 400 of them.
var (
	ofApp            = limit{rate: 1000, burst: 1000, atOnce: 256}
	ofHost           = limit{rate: 200, burst: 200, atOnce: 1024}
	ofAppUnverified  = limit{rate: 10, burst: 20, atOnce: 8}
	ofHostUnverified = limit{rate: 10, burst: 20, atOnce: 16}
	ofAll            = limit{rate: 4000, burst: 40, atOnce: 2048}
)

// key is which gate a check passes. Checks that failed the last time have gates of their own
// besides those of hosts, so that many silent instances delay none that answer.
type key struct {
	app                 catalog.App
	host                netip.Addr
	failing, unverified bool
	all                 bool // of all apps and hosts
}

// gateKey is a key with the limit that holds there.
type gateKey struct {
	key
	limit limit
}

// gates are those that a check passes, in this order. An app waits at its own gate first, so
// one with thousands of checks never has more places at a host's than it may have under way.
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

// gate lets checks pass in the order in which they come. It is guarded by mu of its gates.
type gate struct {
	users   int // checks that wait here or are under way
	running int
	waiting []chan struct{} // each is closed when its check has a place
	// full is when the bucket has all its tokens again, if nothing takes another.
	full time.Time
}

// gates has those that are in use, and those whose bucket fills.
type gates struct {
	mu    sync.Mutex
	all   map[key]*gate
	sweep int // how many there may be before idle ones are removed
}

const sweepFrom = 1024

// enter returns once a check has a place at a gate and may begin, as far as that is for the
// gate to say. It fails if ctx ends before.
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

// queue takes a place at a gate; where none is free, it returns what is closed when there is.
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

// giveUp leaves a queue. The place may have come in the meantime.
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

// leave hands a place to the next check, or frees it.
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

// take takes a token, and tells how long to wait until there is one.
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

// putBack gives back a token that was not used.
func (g *gates) putBack(k gateKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[k.key]
	at.full = at.full.Add(-k.limit.token())
}

// token is how often there is one.
func (l limit) token() time.Duration { return time.Second / time.Duration(l.rate) }

// prune removes gates that nobody uses and whose buckets are full, once there are many. So
// memory is bounded by what is under way and what began within seconds. It is called with mu
// held.
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
