// Package forward asks other resolvers for names that are not ours, and keeps what they
// answer for as long as they allow.
//
// One query's way through the package: question.go reads it, cache.go may have the
// answer, flight.go sees that the same is asked once at a time, ask.go goes from one
// upstream to the next, exchange.go talks to one, and answer.go makes of what came back
// something to keep and to send.
//
// An answer is kept under the question that we asked, whole, and gives nothing to any other
// question: what an upstream adds to it poisons nobody.
package forward

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
	"github.com/isthmus-mesh/isthmus/throttle"
)

// Config is what a forwarder needs. Upstreams must be set; every other zero value stands for
// the default named beside it.
type Config struct {
	Upstreams []netip.AddrPort // in the order in which they are asked; port 0: 53
	Own       []netip.AddrPort // where this server listens, so that no upstream is itself

	Cache int // answers kept; negative: none: 10,000
	// CacheBytes is what they may weigh together: 1 KiB for each of Cache, 64 KiB at least.
	CacheBytes int

	Timeout  time.Duration // for one query, all upstreams together: 4 s, less than stub resolvers wait
	Patience time.Duration // with one upstream, until the next is asked too: 1 s
	MaxStale time.Duration // how long after its end an answer is kept for when nobody answers: 24 h

	MaxQueries int // different questions under way: 1,000
	MaxWaiting int // queries that wait for them: 10,000
}

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, 10_000)
	c.CacheBytes = cmp.Or(c.CacheBytes, max(c.Cache<<10, 64<<10))
	c.Timeout = cmp.Or(c.Timeout, 4*time.Second)
	c.Patience = cmp.Or(c.Patience, time.Second)
	c.MaxStale = cmp.Or(c.MaxStale, 24*time.Hour)
	c.MaxQueries = cmp.Or(c.MaxQueries, 1000)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10_000)
	return c
}

// Forwarder answers from its cache or by asking upstreams. It is safe for any number of
// goroutines.
type Forwarder struct {
	cfg       Config
	log       *slog.Logger
	upstreams []*upstream
	cache     *cache
	flights   *flights
	marker    [markerSize]byte // what our own queries are known by, should they come back
	counts    counters
	waiting   atomic.Int64 // queries
	exchanges atomic.Int64 // with upstreams

	alive context.Context // of what is under way
	end   context.CancelFunc
}

// linesEvery is how often queries can cause one and the same line of the log.
const linesEvery = 10 * time.Second

// New makes a forwarder; it starts nothing, and forwards also while [Forwarder.Run] does
// not run. It fails without upstreams, or where one of them is this server.
func New(cfg Config, log *slog.Logger) (*Forwarder, error) {
	cfg = cfg.withDefaults()
	f := &Forwarder{cfg: cfg, log: log, cache: newCache(cfg.Cache, cfg.CacheBytes), flights: newFlights(cfg.MaxQueries)}
	for _, address := range cfg.Upstreams {
		if address.Port() == 0 {
			address = netip.AddrPortFrom(address.Addr(), 53)
		}
		address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
		if err := usable(address, cfg.Own); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(f.upstreams, func(u *upstream) bool { return u.address == address }) {
			f.upstreams = append(f.upstreams, &upstream{address: address, index: len(f.upstreams), log: log, often: throttle.New(log, linesEvery), wake: make(chan struct{}, 1)})
		}
	}
	if n := len(f.upstreams); n == 0 || n > maxUpstreams {
		return nil, fmt.Errorf("dns: forward has %d upstreams; give between 1 and %d", n, maxUpstreams)
	}
	rand.Read(f.marker[:])
	f.alive, f.end = context.WithCancel(context.Background())
	return f, nil
}

const maxUpstreams = 32

// usable tells why an address can't be an upstream.
func usable(address netip.AddrPort, own []netip.AddrPort) error {
	if !address.Addr().IsValid() || address.Addr().IsUnspecified() || address.Addr().IsMulticast() {
		return fmt.Errorf("dns: forward to %s: give the address of a resolver, such as 10.96.0.10 or 1.1.1.1:53", address)
	}
	for _, o := range own {
		if o.Port() != address.Port() {
			continue
		}
		a := o.Addr().Unmap()
		if a == address.Addr() || a.IsUnspecified() && isLocal(address.Addr()) {
			return fmt.Errorf("dns: forward to %s would send queries back to this server, which listens at %s; give another resolver", address, o)
		}
	}
	return nil
}

// Private tells whether an address may be forwarded for, being no stranger's: loopback, RFC
// 1918, RFC 4193, RFC 6598, link-local. To forward for all would be an open resolver, for
// others to send floods by.
func Private(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || shared.Contains(a)
}

// shared is the address space of RFC 6598, which clouds and overlay networks give to pods and
// machines. It is not routed between networks.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Cached appends the response to a query, if that is there already, and never blocks.
func (f *Forwarder) Cached(query, out []byte) (response []byte, ok bool) {
	q, code := parse(query)
	if code != 0 || q.flags&wire.FlagRD == 0 {
		return out, false
	}
	var room [maxKey]byte
	a := f.cache.get(q.key(room[:0]))
	if a == nil {
		return out, false
	}
	switch now := time.Now(); {
	case now.Before(a.expires):
		f.counts.queries.Add(1)
		f.counts.hits.Add(1)
		return a.appendTo(out, &q, now), true
	case now.UnixNano() < a.retry.Load() && f.staleUntil(a).After(now):
		f.counts.queries.Add(1)
		f.counts.stale.Add(1)
		return a.appendStale(out, &q), true
	}
	return out, false
}

func (f *Forwarder) staleUntil(a *answer) time.Time {
	if a.failure {
		return a.expires
	}
	return a.expires.Add(f.cfg.MaxStale)
}

// Forward appends the whole response to a query, as TCP would carry it, and returns it. It
// has the query's id and its question as it came; an OPT, where the query has one, is its last
// record. It returns by the time ctx ends, or [Config.Timeout] is over, at worst with SERVFAIL
// and an error of RFC 8914 that names the upstreams tried. What is below resolver.arpa it
// answers itself. To a query that is no query it
// appends nothing.
func (f *Forwarder) Forward(ctx context.Context, query, out []byte) []byte {
	if response, ok := f.Cached(query, out); ok {
		return response
	}
	f.counts.queries.Add(1)
	q, code := parse(query)
	if code == dropped {
		return out
	}
	if code != 0 {
		return q.appendRefusal(out, &refusal{code: code})
	}
	if refused := f.refusal(&q); refused != nil {
		return q.appendRefusal(out, refused)
	}
	if a := arpa(&q); a != nil {
		return a.appendTo(out, &q, a.stored)
	}
	key := string(q.key(make([]byte, 0, maxKey)))
	stale := f.cache.get([]byte(key))
	if stale != nil && !f.staleUntil(stale).After(time.Now()) {
		stale = nil
	}
	return f.wait(ctx, &q, key, stale, out)
}

// staleAfter is how long somebody waits where a stale answer is at hand (RFC 8767, 5).
const staleAfter = 1800 * time.Millisecond

// wait joins the flight for a question, and gives it up for what is stale or for nothing.
func (f *Forwarder) wait(ctx context.Context, q *question, key string, stale *answer, out []byte) []byte {
	if f.waiting.Add(1) > int64(f.cfg.MaxWaiting) {
		f.waiting.Add(-1)
		f.counts.crowded.Add(1)
		return f.giveUp(q, stale, "too many queries wait for upstreams", out)
	}
	defer f.waiting.Add(-1)
	fl := f.join(q, key, stale)
	if fl == nil {
		f.counts.crowded.Add(1)
		return f.giveUp(q, stale, "too many queries are under way to upstreams", out)
	}
	var enough <-chan time.Time // else the flight has its own end
	if stale != nil {
		patience := staleAfter
		if !f.anyUp() {
			patience = 0
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-fl.done:
		return f.landed(fl, q, stale, out)
	case <-enough:
	case <-ctx.Done():
	}
	return f.giveUp(q, stale, "upstreams have not answered in time: "+f.names(), out)
}

// landed appends what a flight brought, or what is stale rather than a failure.
func (f *Forwarder) landed(fl *flight, q *question, stale *answer, out []byte) []byte {
	if fl.answer.failure && stale != nil {
		return f.giveUp(q, stale, "", out)
	}
	if fl.answer.failure {
		f.counts.failures.Add(1)
	}
	return fl.answer.appendTo(out, q, time.Now())
}

func (f *Forwarder) giveUp(q *question, stale *answer, why string, out []byte) []byte {
	if stale != nil {
		f.counts.stale.Add(1)
		return stale.appendStale(out, q)
	}
	f.counts.failures.Add(1)
	return q.appendRefusal(out, &refusal{code: servfail, extended: noReachableAuthority, text: why})
}

// join returns the flight for a question, having started it if there was none; nil where
// there are too many.
func (f *Forwarder) join(q *question, key string, stale *answer) *flight {
	fl, started := f.flights.join(key, f.alive, f.cfg.Timeout)
	switch {
	case fl == nil:
	case !started:
		f.counts.joined.Add(1)
	default:
		f.counts.misses.Add(1)
		asked := q.clone()
		go func() {
			defer f.flights.land(fl)
			fl.answer = f.ask(fl.ctx, asked)
			f.keep(key, fl.answer, stale)
		}()
	}
	return fl
}

// keep notes what a flight brought. A failure takes no answer's place: it says when to ask
// again.
func (f *Forwarder) keep(key string, a, stale *answer) {
	if a.failure && stale != nil {
		stale.retry.Store(a.expires.UnixNano())
		return
	}
	f.cache.put(key, a)
}

// Run watches the upstreams until ctx ends, and then ends and waits for what is under way. It
// is called once.
func (f *Forwarder) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, u := range f.upstreams {
		all.Go(func() { f.watch(ctx, u) })
	}
	all.Wait()
	f.end()
	f.flights.close()
	return nil
}
