package peering

import (
	"context"
	"time"

	"github.com/isthmus-mesh/isthmus/live"
)

// pace holds a stream to so much in a while. Who sends more is read no faster, and slowed
// down by that. It belongs to one goroutine.
type pace struct {
	began time.Time // the while
	spent float64   // of what is read in it, 1 for all
}

// How much of one stream is read in how long: so many messages, exports or bytes. A server
// of ours sends a fraction of that, but for a first set, which is read as fast as it is
// applied.
const (
	paceWithin   = 100 * time.Millisecond
	paceMessages = 20
	paceExports  = int(maxChange * paceWithin / applyPause)
	paceBytes    = 1 << 20
)

// keep counts a message, and waits where there was enough.
func (p *pace) keep(ctx context.Context, exports, bytes int) {
	if time.Since(p.began) >= paceWithin {
		*p = pace{began: time.Now()}
	}
	p.spent += max(1.0/paceMessages, float64(exports)/float64(paceExports), float64(bytes)/paceBytes)
	if p.spent >= 1 {
		live.Sleep(ctx, time.Duration(p.spent*float64(paceWithin))-time.Since(p.began))
	}
}
