package faults

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// A machine that stands still for seconds makes everybody wait and ends leases by itself. One
// that is busy makes now one process wait and now another, and callers leave a gateway that the
// machine kept silent. So what is wrong once may not be the fault's doing, and what is wrong each
// time is. With -exact, on a machine with nothing else to do, once is enough.
const (
	// decisive is how long the machine stands still at least where more tries are due: a
	// quarter of the leases.
	decisive = 1500 * time.Millisecond
	// tries is how often a fault is made at most, unless the machine stood still for as long
	// as that each time: then it is stalls.Tries.
	tries = 3
	// damped is how long a cluster may not be relied on that came and went by the machine's
	// doing, and more.
	damped = 2 * meshtest.Patience
)

// make makes a fault once all is well. Where something was wrong it makes the fault again, and
// fails the test at the last try.
func (m *mesh) make(t *testing.T, fault func(*testing.T, *mesh)) {
	t.Helper()
	calmest := time.Duration(math.MaxInt64)
	for try := 1; ; try++ {
		before := len(m.trials)
		m.steady(t)
		m.Heal()
		begun := time.Now()
		fault(t, m)
		m.Heal()
		made := m.trials[before:]
		wrongs, still := m.verdict(made, begun)
		calmest = min(calmest, still)
		said := fmt.Sprintf("%s; the machine stood still for %s", strings.Join(wrongs, "; "), round(still))
		switch {
		case len(wrongs) == 0:
			return
		case *exact, try >= tries && calmest < decisive, try == stalls.Tries:
			t.Errorf("at try %d: %s", try, said)
			return
		}
		t.Logf("once more: %s", said)
		for _, x := range made {
			x.void = true
		}
	}
}

// verdict is what was wrong in trials, and for how long everything stood still meanwhile: by
// itself, and by those whom the faults did not concern.
func (m *mesh) verdict(made []*trial, begun time.Time) (wrongs []string, still time.Duration) {
	still = m.watch.Longest(begun)
	for _, x := range made {
		wrongs = append(wrongs, x.wrongs...)
		still = max(still, x.figures.still)
	}
	return wrongs, still
}
