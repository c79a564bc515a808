package peering

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits"
)

// readLimiter bounds how fast one stream is read. A peer that sends faster is slowed down by flow
// control.
type readLimiter struct{ shares *rate.Limiter }

// Limits of one stream in each window: messages, exports and bytes. Our server sends a fraction
// of that, except for an initial set, which is read as fast as it is applied.
const (
	readWindow   = 100 * time.Millisecond
	readMessages = 20
	readExports  = int(maxApply * readWindow / applyInterval)
	readBytes    = 1 << 20
	readShares   = 1 << 20 // of a window
)

func newReadLimiter() readLimiter {
	return readLimiter{rate.NewLimiter(readShares*rate.Limit(time.Second/readWindow), readShares)}
}

// wait counts a message, and sleeps when the window's limit is used up.
func (l readLimiter) wait(ctx context.Context, exports, bytes int) {
	spent := max(1.0/readMessages, float64(exports)/float64(readExports), float64(bytes)/readBytes)
	if wait := limits.Charge(l.shares, int(spent*readShares)); wait > 0 {
		live.Sleep(ctx, wait)
	}
}

// Limits of the streams that one cluster may open: a burst, then a rate. Replicas that come back
// all at once, over all their gateways, open maxStreams. A stream that makes this service scan
// many exports costs more: 100,000 take about 0.2 s.
const (
	streamBurst   = 64
	streamRate    = 8      // per second
	streamExports = 10_000 // exports that cost as much as one more stream
)

// streamQuota bounds the streams of a cluster. It counts in exports.
type streamQuota struct{ exports *rate.Limiter }

// newStreamQuota lets streamBurst streams be opened, also after scans of less than one stream's cost.
func newStreamQuota() streamQuota {
	return streamQuota{rate.NewLimiter(streamRate*streamExports, (streamBurst+1)*streamExports-1)}
}

// allow tells whether one more stream may be opened, and counts it.
func (q streamQuota) allow() bool { return q.exports.AllowN(time.Now(), streamExports) }

// charge takes the extra cost of a scan of so many exports. wait is the time until it is paid.
func (q streamQuota) charge(exports int) (wait time.Duration) {
	return limits.Charge(q.exports, exports)
}
