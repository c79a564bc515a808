package topology

import (
	"sync"
	"time"
)

// Clock gives registrations their times, [catalog.Instance.Since]. All live sources of one
// service share one Clock. The zero Clock works; any goroutine may use it.
type Clock struct {
	mu     sync.Mutex
	latest int64
}

// latestSince bounds the times that are believed: no service gives out later ones, and a Clock
// must not count on from them.
const latestSince = 1 << 53

// Next is the time of a registration that comes now, in milliseconds of Unix time. It is later
// than every time that this Clock has given out or heard, whatever the clocks of machines say.
func (c *Clock) Next() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = max(time.Now().UnixMilli(), c.latest+1)
	return c.latest
}

// Heard notes the time of a registration with another replica, or before a restart, and returns
// what of it is believed.
func (c *Clock) Heard(since int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	since = min(since, latestSince)
	c.latest = max(c.latest, since)
	return since
}
