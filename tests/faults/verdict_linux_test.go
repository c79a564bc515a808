package faults

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/sandbox/stillness"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// A machine that stands still for seconds makes everybody wait and ends leases by itself. What
// is wrong meanwhile says nothing of the fault. One that is busy makes now this process wait
// and now that: so what takes too long once is not yet a fault's doing either.
const (
	// disturbing is how long everything was without an answer where that can have been the
	// machine: callers leave what is silent for twice that.
	disturbing = 150 * time.Millisecond
	// decisive is the same where it may well have been the machine each time: a quarter of
	// the leases.
	decisive = 1500 * time.Millisecond
	// tries is how often a fault is made at most, unless the machine stood still for as long
	// as that each time: then it is stillness.Tries.
	tries = 3
	// damped is how long a cluster may not be relied on that came and went by the machine's
	// doing, and more.
	damped = 2 * meshtest.Patience
)

// make makes a fault once all is well, and fails the test where something was wrong. Where the
// machine stood still at that time, or the fault did no more than take too long, it is made
// again, and some times more where that was for long each time. What is wrong each time fails
// the test.
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
		wrongs, slow, still := m.verdict(made, begun)
		said := fmt.Sprintf("%s; the machine stood still for %s", strings.Join(append(wrongs, slow...), "; "), round(still))
		switch {
		case len(wrongs)+len(slow) == 0:
			return
		case *exact, still < disturbing && len(wrongs) > 0, try >= tries && min(calmest, still) < decisive, try == stillness.Tries:
			t.Errorf("at try %d: %s", try, said)
			return
		}
		calmest = min(calmest, still)
		t.Logf("once more: %s", said)
		for _, x := range made {
			x.void = true
		}
	}
}

// verdict is what was wrong and what was slow in trials, and for how long everything stood
// still meanwhile: by itself, and by those whom the faults did not concern.
func (m *mesh) verdict(made []*trial, begun time.Time) (wrongs, slow []string, still time.Duration) {
	still = m.watch.Longest(begun)
	for _, x := range made {
		wrongs, slow = append(wrongs, x.wrongs...), append(slow, x.slow...)
		still = max(still, x.figures.still)
	}
	return wrongs, slow, still
}
