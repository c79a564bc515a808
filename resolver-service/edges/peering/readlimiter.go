package peering

import (
	"context"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// readLimiter bounds how fast one stream is read. A peer that sends faster is slowed down by flow
// control. It belongs to one goroutine.
type readLimiter struct {
	start time.Time // of the current window
	spent float64   // share of the window's limit that is used
}

// Limits of one stream in each window: messages, exports and bytes. Our server sends a fraction
// of that, except for an initial set, which is read as fast as it is applied.
const (
	readWindow   = 100 * time.Millisecond
	readMessages = 20
	readExports  = int(maxApply * readWindow / applyInterval)
	readBytes    = 1 << 20
)

// wait counts a message, and sleeps when the window's limit is used up.
func (p *readLimiter) wait(ctx context.Context, exports, bytes int) {
	if time.Since(p.start) >= readWindow {
		*p = readLimiter{start: time.Now()}
	}
	p.spent += max(1.0/readMessages, float64(exports)/float64(readExports), float64(bytes)/readBytes)
	if p.spent >= 1 {
		live.Sleep(ctx, time.Duration(p.spent*float64(readWindow))-time.Since(p.start))
	}
}
