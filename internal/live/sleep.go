package live

import (
	"context"
	"time"
)

// Sleep returns after a while, or when ctx ends, and tells whether it slept to the end.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
