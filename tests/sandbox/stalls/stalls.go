// Package stalls tells for how long a machine did not run a process that wanted to run.
// Leases and limits of time end while it stands still, whatever the code does: who tests what
// must not happen while time passes asks here whether time passed for everybody.
package stalls

import (
	"sync"
	"testing"
	"time"
)

// every is how often a Watch looks, and worthNoting the shortest pause that it notes.
const (
	every       = 5 * time.Millisecond
	worthNoting = 50 * time.Millisecond
)

// Watch notes pauses of this process.
type Watch struct {
	mu     sync.Mutex
	last   time.Time // it looked
	pauses []pause
}

type pause struct {
	ended  time.Time
	lasted time.Duration
}

// Begin watches until the test ends.
func Begin(t testing.TB) *Watch {
	w, end := &Watch{last: time.Now()}, make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { w.run(end) })
	t.Cleanup(func() {
		close(end)
		running.Wait()
	})
	return w
}

func (w *Watch) run(end <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(time.Now())
		case <-end:
			return
		}
	}
}

func (w *Watch) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lasted := now.Sub(w.last); lasted >= worthNoting {
		w.pauses = append(w.pauses, pause{now, lasted})
	}
	w.last = now
}

// Longest is the longest pause that ended after a moment, also one that lasts until now; 0
// without one.
func (w *Watch) Longest(moment time.Time) (longest time.Duration) {
	w.look(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pauses {
		if p.ended.After(moment) {
			longest = max(longest, p.lasted)
		}
	}
	return longest.Round(time.Millisecond)
}

// Tries is how often a test is made at most that was wrong while this machine stood still. The
// last one fails it: a fault of the code is wrong each time, and no machine stands still at the
// wrong moment each time.
const Tries = 5
