package resolverservice

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// disturbing is how long this process was not run where that can have been what ended a lease:
// far more than what a busy machine does, and far less than a lease.
const disturbing = 500 * time.Millisecond

// unlessHeldUp runs a test of what must not happen while time passes, and fails where something
// was wrong. A machine that stands still for seconds ends leases by itself, so where it did, all
// is made again; where it does so each time there is nothing to be told.
func unlessHeldUp(t *testing.T, test func(t *testing.T, wrong func(format string, args ...any))) {
	t.Helper()
	const tries = 3
	for try := 1; !t.Failed(); try++ {
		var mu sync.Mutex
		var wrongs []string
		stop := watchStillness()
		t.Run(fmt.Sprint("try ", try), func(t *testing.T) {
			test(t, func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				wrongs = append(wrongs, fmt.Sprintf(format, args...))
			})
		})
		still := stop()
		said := fmt.Sprintf("%s; this machine stood still for %s", strings.Join(wrongs, "\n"), still)
		switch {
		case len(wrongs) == 0:
			return
		case still < disturbing:
			t.Error(said)
		case try == tries:
			t.Skipf("also at the last of %d tries: %s, which may be why", tries, said)
		default:
			t.Logf("once more: %s", said)
		}
	}
}

// watchStillness watches for how long at most nothing is run here, until it is told to stop.
func watchStillness() (stop func() (longest time.Duration)) {
	end, ended := make(chan struct{}), make(chan time.Duration)
	go func() {
		const every = 10 * time.Millisecond
		var longest time.Duration
		for last := time.Now(); ; {
			select {
			case <-end:
				ended <- longest
				return
			case <-time.After(every):
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)-every), now
		}
	}()
	return func() time.Duration { close(end); return (<-ended).Round(time.Millisecond) }
}
