package live

import (
	"context"
	"time"
)

// Saving says how often [Value.Save] writes.
type Saving struct {
	Delay  time.Duration // after a change, for more changes to come along
	Factor int           // of how long a write took: the pause after it, so that large writes are rare
	Most   time.Duration // bounds that pause; 0: nothing does
	Retry  time.Duration // after a write that failed, if nothing changes before
}

// Save calls write with the value soon after each change until ctx ends, and then with the last
// one. It repeats a write that failed, and leaves it to write to report that.
func (v *Value[T]) Save(ctx context.Context, s Saving, write func(T) error) {
	var written <-chan struct{} // identifies the state that was written
	for pause := s.Delay; ; {
		last := ctx.Err() != nil // asked before Follow, so that the last change is not missed
		now, ok, changed := v.Follow()
		var retry <-chan time.Time
		if ok && changed != written {
			start := time.Now()
			if write(now) == nil {
				written = changed
			} else {
				retry = time.After(s.Retry)
			}
			pause = time.Duration(s.Factor) * time.Since(start)
			if s.Most > 0 {
				pause = min(pause, s.Most)
			}
			pause = max(pause, s.Delay)
		}
		if last {
			return
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
		Sleep(ctx, pause)
	}
}
