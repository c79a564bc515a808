// Package forward is a stub resolver: it asks other resolvers for names that are not ours,
// and keeps their answers for as long as they allow.
//
// The cache keeps a whole answer under the question that we asked, so added records poison nothing.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// Config is what a forwarder needs. Upstreams must be set; every other zero value stands for
// the default named beside it.
type Config struct {
	Upstreams []netip.AddrPort // in the order in which they are asked; port 0: 53
	Own       []netip.AddrPort // where this server listens, so that no upstream is itself

	Cache int // answers kept, of 1 KiB each on average; negative: none: 10,000

	Timeout  time.Duration // for one query, all upstreams together: 4 s, less than clients wait
	Patience time.Duration // with one upstream, until the next is asked too: 1 s

	MaxQueries int // questions under way, each with a socket: 1,000
}

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, 10_000)
	c.Timeout = cmp.Or(c.Timeout, 4*time.Second)
	c.Patience = cmp.Or(c.Patience, time.Second)
	c.MaxQueries = cmp.Or(c.MaxQueries, 1000)
	return c
}

// Forwarder answers from its cache or asks upstreams. Any number of goroutines may use it.
type Forwarder struct {
	cfg       Config
	upstreams []*upstream
	cache     *cache
	flights   singleflight.Group
	room      *semaphore.Weighted // of flights
	pending   atomic.Int64        // flights

	queries, hits, misses, failures atomic.Uint64

	alive context.Context // of all flights
	end   context.CancelFunc
}

// New makes a forwarder and starts nothing. The forwarder works without [Forwarder.Run] too.
// New fails without upstreams, and if an upstream is this server.
func New(cfg Config, log *slog.Logger) (*Forwarder, error) {
	cfg = cfg.withDefaults()
	f := &Forwarder{cfg: cfg, cache: newCache(cfg.Cache, max(cfg.Cache<<10, 64<<10)), room: semaphore.NewWeighted(int64(cfg.MaxQueries))}
	lines := throttle.New(log, linesEvery)
	for _, address := range cfg.Upstreams {
		address = netip.AddrPortFrom(address.Addr().Unmap(), cmp.Or(address.Port(), 53))
		if err := usable(address, cfg.Own); err != nil {
			return nil, err
		}
		f.upstreams = append(f.upstreams, &upstream{address: address, log: lines, health: Status{Address: address, Up: true}})
	}
	if len(f.upstreams) == 0 {
		return nil, errors.New("dns: forward has no upstream; give one such as 10.96.0.10")
	}
	f.alive, f.end = context.WithCancel(context.Background())
	return f, nil
}

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

// isLocal tells whether an address is one of this machine's.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addresses, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addresses, func(own net.Addr) bool {
		prefix, err := netip.ParsePrefix(own.String())
		return err == nil && prefix.Addr().Unmap() == a
	})
}

// Cached is [Forwarder.Forward] for a response that the cache holds. It never blocks.
func (f *Forwarder) Cached(query, out []byte) (response []byte, ok bool) {
	var q wire.Query
	if rcode, _ := q.Parse(query); rcode != wire.NoError || q.Flags()&wire.FlagRD == 0 {
		return out, false
	}
	return f.cached(&q, query, out)
}

func (f *Forwarder) cached(q *wire.Query, query, out []byte) (response []byte, ok bool) {
	var room [maxKey]byte
	a, now := f.cache.get(appendKey(room[:0], q)), time.Now()
	if a == nil || !now.Before(a.expires) {
		return out, false
	}
	f.queries.Add(1)
	f.hits.Add(1)
	return a.respond(out, q, query, now), true
}

// Forward writes the whole response to a query, as TCP would carry it, into out, which is
// empty. The response has the query's ID and its question as the client sent it. An OPT is its
// last record. Forward returns when ctx ends or [Config.Timeout] is over, at worst with
// SERVFAIL and an error of RFC 8914 that names the upstreams. To a packet that is no query it
// returns out.
func (f *Forwarder) Forward(ctx context.Context, query, out []byte) []byte {
	var q wire.Query
	rcode, reply := q.Parse(query)
	switch {
	case !reply:
		return out
	case rcode != wire.NoError:
		return refuse(out, &q, query, rcode, 0, "")
	case q.Flags()&wire.FlagRD == 0:
		return refuse(out, &q, query, wire.Refused, wire.ErrorNotAuthoritative, "not a name of ours, and recursion is not desired")
	case q.Bare || q.Class != wire.ClassIN || q.Type >= firstRefused && q.Type < wire.TypeANY:
		return refuse(out, &q, query, wire.Refused, wire.ErrorNotSupported, "this class or type is not forwarded")
	}
	if response, ok := f.cached(&q, query, out); ok {
		return response
	}
	a := f.join(ctx, &q)
	if a.failure != "" {
		f.failures.Add(1)
	}
	return a.respond(out, &q, query, time.Now())
}

// firstRefused begins the types of transactions and transfers: TKEY, TSIG, IXFR, AXFR, MAILB
// and MAILA. ANY comes after them.
const firstRefused wire.Type = 249

// join waits for the flight of a question. It starts that flight unless there is one.
func (f *Forwarder) join(ctx context.Context, q *wire.Query) *answer {
	key := string(appendKey(nil, q))
	asked := newLookup(q, key)
	flight := f.flights.DoChan(key, func() (any, error) {
		if !f.room.TryAcquire(1) {
			return &answer{failure: "too many queries are under way to upstreams; ask again"}, nil
		}
		defer f.room.Release(1)
		defer f.pending.Add(-1)
		f.pending.Add(1)
		f.misses.Add(1)
		a := f.ask(asked)
		f.cache.put(key, a)
		return a, nil
	})
	f.queries.Add(1)
	select {
	case landed := <-flight:
		return landed.Val.(*answer)
	case <-ctx.Done():
		return &answer{failure: "upstreams have not answered in time"}
	}
}

// Run waits until ctx ends, ends all flights and waits for them. It is called once.
func (f *Forwarder) Run(ctx context.Context) error {
	<-ctx.Done()
	f.end()
	return f.room.Acquire(context.WithoutCancel(ctx), int64(f.cfg.MaxQueries)) // it is never released
}

// Counters count the work of a forwarder since New, and its cache.
type Counters struct {
	Hits, Misses, Joined, Failures uint64 // Joined: waited for an equal question
	Entries, Bytes, Flights        int    // Flights: questions under way
}

// Counters returns them.
func (f *Forwarder) Counters() Counters {
	c := Counters{Misses: f.misses.Load(), Hits: f.hits.Load(), Failures: f.failures.Load(), Flights: int(f.pending.Load())}
	c.Joined = max(f.queries.Load(), c.Hits+c.Misses) - c.Hits - c.Misses
	c.Entries, c.Bytes = f.cache.load()
	return c
}
