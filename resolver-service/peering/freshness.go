package peering

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// currency tells whether what is known of a peer is what the peer has to say by now, so
// that a renewal, which says nothing else, can be believed. Any goroutine may use it.
type freshness struct {
	mu          sync.Mutex
	digest      uint64    // of all that was applied
	synced      bool      // all that the peer exports was applied once
	partial     bool      // of what leads to another digest, a part has come, and the rest has not
	behindSince time.Time // since when renewals name another digest, and no exports come; zero while they don't
	patience    time.Duration
	end         context.CancelCauseFunc // of the stream of exports
}

// takes notes that a message has come with which all is known that its sender had to say,
// or a part of that.
func (c *freshness) received(whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = !whole
}

// whole tells whether what has come is not a part of something.
func (c *freshness) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.partial
}

// applied notes that the topology knows all that has a digest, unless that is a part of
// something: then it knows nothing that has one.
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

// moves notes that the stream of exports says something: it is not stuck.
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

// begins notes a new stream of exports.
func (c *freshness) streamStarted(end context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
}

// renews takes in a renewal that names a digest, and tells whether it renews the lease.
// Where that is another than what is known, the exports are on their way, or their stream
// is stuck: it is ended, and made anew, more and more rarely while that is no help. After
// that time nothing is renewed by it, since what is known may be long past; the stream of
// exports renews by itself.
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

var errStuck = status.Error(codes.Unavailable, "the stream of exports is behind what the peer has to say by now; asking anew")
