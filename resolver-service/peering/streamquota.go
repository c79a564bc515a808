package peering

import (
	"sync"
	"time"
)

// What a cluster may have this one do by the streams that it makes: so many at once, and
// then so many a second. Replicas that come back all at once, over all their gateways, make
// maxStreams. One whose first word needs a look at many exports costs more: 100,000 take
// about 0.2 s.
const (
	streamBurst   = 64
	streamRate    = 8      // a second
	streamExports = 10_000 // cost as much as one more stream
)

// budget is what is left of that: a bucket of tokens, one for each stream. What is found out
// to cost more is owed, and nothing is given until that has come back. Any goroutine may use
// it; the zero value is full.
type streamQuota struct {
	mu    sync.Mutex
	spent float64 // of streamBurst
	at    time.Time
}

// take takes one stream's token, and tells whether there was some of one.
func (b *streamQuota) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if b.spent >= streamBurst {
		return false
	}
	b.spent++
	return true
}

// owe notes that so many exports had to be looked at.
func (b *streamQuota) charge(exports int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	b.spent += float64(exports) / streamExports
}

// refill gives what has come back; with mu held.
func (b *streamQuota) refill() {
	now := time.Now()
	b.spent = max(0, b.spent-now.Sub(b.at).Seconds()*streamRate)
	b.at = now
}
