package peering

import (
	"context"
	"time"

	"github.com/isthmus-mesh/isthmus/live"
)

// pace holds a stream to so much in a while. Who sends more is read no faster, and slowed
// down by that. It belongs to one goroutine.
type readLimiter struct {
	start time.Time // the while
	spent float64   // of what is read in it, 1 for all
}

// How much of one stream is read in how long: so many messages, exports or bytes. A server
// of ours sends a fraction of that, but for a first set, which is read as fast as it is
// applied.
const (
	readWindow   = 100 * time.Millisecond
	readMessages = 20
	readExports  = int(maxApply * readWindow / applyInterval)
	readBytes    = 1 << 20
)

// keep counts a message, and waits where there was enough.
func (p *readLimiter) wait(ctx context.Context, exports, bytes int) {
	if time.Since(p.start) >= readWindow {
		*p = readLimiter{start: time.Now()}
	}
	p.spent += max(1.0/readMessages, float64(exports)/float64(readExports), float64(bytes)/readBytes)
	if p.spent >= 1 {
		live.Sleep(ctx, time.Duration(p.spent*float64(readWindow))-time.Since(p.start))
	}
}
