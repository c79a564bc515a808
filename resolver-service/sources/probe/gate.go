package probe

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
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

// gate admits checks in the order in which they arrive.
type gate struct {
	running *semaphore.Weighted
	// gates.mu guards the rest.
	users int // waiting and running checks
	// full is when the token bucket will be full again. A rate.Limiter takes back no token of a check
	// that gives up while others wait.
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
	at := g.use(k)
	if at.running.Acquire(ctx, 1) != nil {
		g.unuse(k.key, at)
		return context.Cause(ctx)
	}
	if wait := g.take(k); wait > 0 && !live.Sleep(ctx, wait) {
		g.putBack(k)
		g.leave(k.key)
		return context.Cause(ctx)
	}
	return nil
}

func (g *gates) use(k gateKey) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.all[k.key]
	if at == nil {
		g.prune()
		at = &gate{running: semaphore.NewWeighted(int64(k.limit.atOnce))}
		g.all[k.key] = at
	}
	at.users++
	return at
}

func (g *gates) unuse(k key, at *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.users--; at.idle() {
		delete(g.all, k)
	}
}

// leave passes a place to the next check, or frees it.
func (g *gates) leave(k key) {
	g.mu.Lock()
	at := g.all[k]
	g.mu.Unlock()
	at.running.Release(1)
	g.unuse(k, at)
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

// idle tells whether nothing is lost with a gate.
func (a *gate) idle() bool { return a.users == 0 && !a.full.After(time.Now()) }

// prune removes idle gates once there are many. So memory is bounded by the checks that run or
// began within seconds. mu is held.
func (g *gates) prune() {
	if len(g.all) < g.sweep {
		return
	}
	maps.DeleteFunc(g.all, func(_ key, at *gate) bool { return at.idle() })
	g.sweep = max(sweepFrom, 2*len(g.all))
}
