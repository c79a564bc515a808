package admin

import (
	"context"
	"sync"
	"time"
)

// RevisionAge knows when the revision last changed, to the second.
type RevisionAge struct {
	mu      sync.Mutex
	changed time.Time
}

// Since is the time since the last change.
func (a *RevisionAge) Since() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed.IsZero() {
		return 0
	}
	return time.Since(a.changed)
}

// Run looks at the revision every second until ctx ends.
func (a *RevisionAge) Run(ctx context.Context, revision func() uint64) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for last := uint64(0); ; {
		if now := revision(); now != last {
			last = now
			a.mu.Lock()
			a.changed = time.Now()
			a.mu.Unlock()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
