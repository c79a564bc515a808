package dial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts/lookup"
)

// lookupTimes say when host names are looked up.
type lookupTimes struct {
	interval    time.Duration // while lookups succeed, or as soon as an answer runs out
	minInterval time.Duration // after a connection or a lookup has failed
	timeout     time.Duration // of one lookup
}

// hosts keeps the host names among gateway addresses looked up while they are used.
type hosts struct {
	log      *slog.Logger
	lookup   lookup.Func
	times    lookupTimes
	onChange func() // called when a host's addresses or its error change
	version  atomic.Uint64

	mu      sync.Mutex
	known   map[string]*host // by "host:port"
	running sync.WaitGroup
}

type host struct {
	users     int
	addresses []string // "ip:port"; none before the first lookup
	err       error    // of the last lookup
	lookedUp  bool     // a lookup has ended
	refresh   chan struct{}
	stop      context.CancelFunc
}

func newHosts(log *slog.Logger, find lookup.Func) *hosts {
	return &hosts{log: log, lookup: find, known: map[string]*host{}, onChange: func() {},
		times: lookupTimes{interval: 30 * time.Second, minInterval: time.Second, timeout: 5 * time.Second}}
}

// acquire keeps a host looked up until each of its users has released it.
func (h *hosts) acquire(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.known[address]; at != nil {
		at.users++
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	at := &host{users: 1, refresh: make(chan struct{}, 1), stop: stop}
	h.known[address] = at
	h.running.Go(func() { h.run(ctx, address, at) })
}

// release ends what acquire began.
func (h *hosts) release(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.known[address]
	if at == nil {
		return
	}
	if at.users--; at.users == 0 {
		at.stop()
		delete(h.known, address)
	}
}

// addresses returns the result of the last lookup; lookedUp is false before the first has ended.
func (h *hosts) addresses(address string) (addresses []string, err error, lookedUp bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.known[address]
	if at == nil {
		return nil, nil, false
	}
	return at.addresses, at.err, at.lookedUp
}

// refresh looks hosts up before it is due.
func (h *hosts) refresh(addresses map[string]struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for address := range addresses {
		if at := h.known[address]; at != nil {
			select {
			case at.refresh <- struct{}{}:
			default:
			}
		}
	}
}

// close ends all lookups and waits for them.
func (h *hosts) close() {
	h.mu.Lock()
	for address, at := range h.known {
		at.stop()
		delete(h.known, address)
	}
	h.mu.Unlock()
	h.running.Wait()
}

// run looks a host up again and again. If a lookup fails, the addresses stay.
func (h *hosts) run(ctx context.Context, address string, at *host) {
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		found, holds, err := h.lookupOnce(ctx, address)
		if ctx.Err() != nil {
			return
		}
		h.mu.Lock()
		differs := !at.lookedUp || (err == nil) != (at.err == nil) || err == nil && !sameSet(found, at.addresses)
		at.lookedUp, at.err = true, err
		if err == nil && !sameSet(found, at.addresses) {
			at.addresses = found
		}
		known := len(at.addresses)
		h.mu.Unlock()
		next := h.times.interval
		if holds > 0 {
			next = min(next, holds)
		}
		if err != nil {
			if failures == 0 {
				h.log.Warn("cannot look up a gateway's host name; still using the addresses of the last lookup", "gateway", address, "known", known, "err", err)
			}
			next = live.Backoff(h.times.minInterval, h.times.interval, failures)
			failures++
		} else {
			failures = 0
		}
		if differs {
			h.version.Add(1)
			h.onChange()
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		case <-at.refresh:
			select {
			case <-ctx.Done():
			case <-time.After(h.times.minInterval - time.Since(began)):
			}
		}
	}
}

// lookupOnce returns addresses and, where that is known, for how long they hold.
func (h *hosts) lookupOnce(ctx context.Context, address string) ([]string, time.Duration, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, fmt.Errorf("gateway address %q: want host:port: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.times.timeout)
	defer cancel()
	ips, holds, err := h.lookup(ctx, "ip", name)
	if err == nil && len(ips) == 0 {
		err = errors.New("the name has no address")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look up gateway %s: %w", address, err)
	}
	resolved := make([]string, len(ips))
	for i, ip := range ips {
		resolved[i] = net.JoinHostPort(ip.Unmap().String(), port)
	}
	return resolved, holds, nil
}

// sameSet reports whether a and b hold the same addresses. DNS servers shuffle their answers, which
// is no change.
func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
