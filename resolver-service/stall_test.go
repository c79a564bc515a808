package resolverservice

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// longStall is how long this process was not run where that can have been what ended a lease:
// far more than what a busy machine does, and far less than a lease.
const longStall = 500 * time.Millisecond

// retryIfStalled runs a test of what must not happen while time passes, and fails where something
// was wrong. A machine that stands still for seconds ends leases by itself, so where it did, all
// is made again, some times.
func retryIfStalled(t *testing.T, test func(t *testing.T, wrong func(format string, args ...any))) {
	t.Helper()
	watch := stalls.Begin(t)
	for try := 1; !t.Failed(); try++ {
		var mu sync.Mutex
		var wrongs []string
		begun := time.Now()
		t.Run(fmt.Sprint("try ", try), func(t *testing.T) {
			test(t, func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				wrongs = append(wrongs, fmt.Sprintf(format, args...))
			})
		})
		if len(wrongs) == 0 {
			return
		}
		stalled := watch.Longest(begun)
		said := fmt.Sprintf("%s; this machine stood still for %s", strings.Join(wrongs, "\n"), stalled)
		if stalled < longStall || try == stalls.Tries {
			t.Errorf("at try %d: %s", try, said)
			return
		}
		t.Logf("once more: %s", said)
	}
}
