package faults

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// A machine that stands still for seconds makes everybody wait and ends leases by itself. What
// is wrong meanwhile says nothing of the fault. One that is busy makes now this process wait
// and now that: so what takes too long once is not yet a fault's doing either.
const (
	// disturbing is how long everything was without an answer where that can have been the
	// machine: ten times what a machine does that has nothing else to do.
	disturbing = 300 * time.Millisecond
	// decisive is the same where it may well have been the machine each time: a quarter of
	// the leases.
	decisive = 1500 * time.Millisecond
	// tries is how often a fault is made at most.
	tries = 3
	// damped is how long a cluster may not be relied on that came and went by the machine's
	// doing, and more.
	damped = 2 * meshtest.Patience
)

// make makes a fault once all is well, and fails the test where something was wrong. Where the
// machine stood still at that time, or the fault did no more than take too long, it is made
// again. What is wrong each time fails the test, unless the machine stood still for long each
// time: then there is nothing to be told, and the test is left out.
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
		case *exact, still < disturbing && len(wrongs) > 0, try == tries && min(calmest, still) < decisive:
			t.Error(said)
			return
		case try == tries:
			t.Skipf("also at the last of %d tries: %s, which may be why", tries, said)
		}
		calmest = min(calmest, still)
		t.Logf("once more: %s", said)
		for _, x := range made {
			x.void = true
		}
	}
}

// verdict is what was wrong and what was slow in trials, and for how long everything stood
// still meanwhile: by the sentinel, and by those whom the faults did not concern.
func (m *mesh) verdict(made []*trial, begun time.Time) (wrongs, slow []string, still time.Duration) {
	still = m.sentinel.longest(begun)
	for _, x := range made {
		wrongs, slow = append(wrongs, x.wrongs...), append(slow, x.slow...)
		still = max(still, x.figures.still)
	}
	return wrongs, slow, still
}

// sentinel notes when this process did not run though it wanted to.
type sentinel struct {
	mu     sync.Mutex
	pauses []pause
}

type pause struct {
	ended  time.Time
	lasted time.Duration
}

// watchful is how often the sentinel looks, and worthNoting the shortest pause that it notes.
const (
	watchful    = 5 * time.Millisecond
	worthNoting = 50 * time.Millisecond
)

func startSentinel(t *testing.T) *sentinel {
	s, end := &sentinel{}, make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { s.run(end) })
	t.Cleanup(func() {
		close(end)
		running.Wait()
	})
	return s
}

func (s *sentinel) run(end <-chan struct{}) {
	tick := time.NewTicker(watchful)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-end:
			return
		}
		now := time.Now()
		if lasted := now.Sub(last); lasted >= worthNoting {
			s.mu.Lock()
			s.pauses = append(s.pauses, pause{now, lasted})
			s.mu.Unlock()
		}
		last = now
	}
}

// longest is the longest pause that ended after a moment; 0 without one.
func (s *sentinel) longest(moment time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pauses {
		if p.ended.After(moment) {
			longest = max(longest, p.lasted)
		}
	}
	return longest
}
