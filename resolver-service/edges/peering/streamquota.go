package peering

import (
	"sync"
	"time"
)

// Limits of the streams that one cluster may open: a burst, then a rate. Replicas that come back
// all at once, over all their gateways, open maxStreams. A stream that makes this service scan
// many exports costs more: 100,000 take about 0.2 s.
const (
	streamBurst   = 64
	streamRate    = 8      // per second
	streamExports = 10_000 // exports that cost as much as one more stream
)

// streamQuota is a token bucket with one token for each stream. Extra cost is charged afterwards,
// and may overdraw the bucket. It is safe for concurrent use; the zero value is full.
type streamQuota struct {
	mu    sync.Mutex
	spent float64 // of streamBurst
	at    time.Time
}

// allow takes the token of one stream. It returns false if there is none.
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

// charge takes the extra cost of a scan of so many exports.
func (b *streamQuota) charge(exports int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	b.spent += float64(exports) / streamExports
}

// refill adds the tokens of the time passed; mu is held.
func (b *streamQuota) refill() {
	now := time.Now()
	b.spent = max(0, b.spent-now.Sub(b.at).Seconds()*streamRate)
	b.at = now
}
