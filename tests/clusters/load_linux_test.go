package clusters

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// load is steady calls from both clusters, each to an app of its own and to one of the other.
type load struct {
	stop func()

	mu      sync.Mutex
	calls   map[string]int // answered, by caller, app, and cluster that answered
	failed  int
	first   string        // that failed
	longest time.Duration // of a call that was answered
}

// rate is how many calls a second each cluster makes.
const rate = 50

// steadily calls until the test ends, or stop.
func steadily(t *testing.T, callers map[string]*caller) *load {
	l := &load{calls: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for name, c := range callers {
		running.Go(func() {
			tick := time.NewTicker(time.Second / rate)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					running.Go(func() { l.one(name, c, []string{"orders", "invoices"}[i%2]) })
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(l.stop)
	return l
}

// one call is not ended with the load: its answer counts.
func (l *load) one(from string, c *caller, id string) {
	began := time.Now()
	in, _, err := c.call(context.Background(), id)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.failed++; l.first == "" {
			l.first = fmt.Sprintf("%s: from %s to %s, after %s: %v", time.Now().Format(time.TimeOnly), from, id, took, err)
		}
		return
	}
	l.calls[from+" to "+id+" in "+in]++
	l.longest = max(l.longest, took)
}

// lossless ends the load, and fails the test if any call failed.
func (l *load) lossless(t *testing.T) {
	t.Helper()
	l.stop()
	t.Logf("calls: %v; %d failed; the longest took %s", l.calls, l.failed, l.longest.Round(time.Millisecond))
	if l.failed > 0 {
		t.Errorf("%d calls failed, the first: %s", l.failed, l.first)
	}
	if len(l.calls) < 4 {
		t.Error("not every way was gone")
	}
}
