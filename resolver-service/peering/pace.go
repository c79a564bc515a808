package peering

import (
	"context"
	"time"
)

// pace holds a stream to so many messages, and so many bytes, in a while. Who sends more
// is read no faster, and slowed down by that. It belongs to one goroutine.
type pace struct {
	began    time.Time // the while
	messages int
	bytes    int
}

// How much of one stream is read in how long. A server of ours sends a tenth of it at
// most, but for a first set.
const (
	paceWithin   = 100 * time.Millisecond
	paceMessages = 20
	paceBytes    = 8 << 20
)

// keep counts a message, and waits where there were enough.
func (p *pace) keep(ctx context.Context, bytes int) {
	if time.Since(p.began) >= paceWithin {
		*p = pace{began: time.Now()}
	}
	p.messages++
	p.bytes += bytes
	if p.messages >= paceMessages || p.bytes >= paceBytes {
		sleep(ctx, paceWithin-time.Since(p.began))
	}
}
