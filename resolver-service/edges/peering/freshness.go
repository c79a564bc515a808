package peering

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// freshness tells whether the applied exports are what the peer has now. Only then does a
// renewal, which names no exports, renew the lease. It is safe for concurrent use.
type freshness struct {
	mu          sync.Mutex
	digest      uint64    // of all applied exports
	synced      bool      // an initial set was applied
	partial     bool      // a change has arrived in part
	behindSince time.Time // first renewal with another digest without exports; zero: none
	patience    time.Duration
	end         context.CancelCauseFunc // of the stream of exports
}

// received records a message. whole tells whether a change is complete with it.
func (c *freshness) received(whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = !whole
}

// whole tells whether the latest change has arrived completely.
func (c *freshness) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.partial
}

// applied records that the topology has all exports of a digest. While a change is partial, no
// digest describes them.
func (c *freshness) applied(digest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partial {
		return
	}
	if c.digest != digest {
		c.behindSince = time.Time{}
	}
	c.digest, c.synced = digest, true
}

// progress records that the stream of exports still delivers.
func (c *freshness) progress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.behindSince.IsZero() {
		c.behindSince = time.Now()
	}
}

func (c *freshness) isSynced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

// streamStarted records how to end the current stream of exports.
func (c *freshness) streamStarted(end context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
}

// rest records that the link rests, and so falls behind by no fault of a stream.
func (c *freshness) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behindSince = time.Time{}
}

// acceptRenewal tells whether a renewal with a digest renews the lease.
//
// If the digest is not that of the applied exports, these are on their way, or their stream is
// stuck. A stuck stream is ended and opened again, less and less often while that does not help.
// After that time, renewals no longer count, since the exports may be long out of date. The
// stream of exports renews the lease by itself.
func (c *freshness) acceptRenewal(digest uint64, lease leaseState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.synced:
		return false
	case !c.partial && c.digest == digest:
		c.behindSince, c.patience = time.Time{}, stuckAfter
		return true
	case c.behindSince.IsZero():
		c.behindSince = time.Now()
	}
	c.patience = max(c.patience, stuckAfter)
	late := time.Since(c.behindSince)
	if late > c.patience && c.end != nil {
		c.end(errStuck)
		c.end, c.patience = nil, min(2*c.patience, stuckMost)
	}
	return lease.fresh && late < max(stuckAfter, lease.after)
}

var errStuck = status.Error(codes.Unavailable, "the stream of exports lags behind the peer's exports; opening it again")
