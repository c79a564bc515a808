package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// stream calls an app at a steady pace, whether or not earlier calls have been
// answered, and keeps what came of it.
type stream struct {
	call func(context.Context) (answeredBy string, err error)
	pace time.Duration

	mu       sync.Mutex
	made     int
	by       map[string]int       // answers, by who gave them
	first    map[string]time.Time // who has answered since it was expected, and when first
	failures []failure
	lastGood time.Time
	gap      time.Duration // the longest time between two answers
}

// failure is a call that failed.
type failure struct {
	began time.Time
	err   error
}

// maxUnderWay bounds the calls that are under way at one time.
const maxUnderWay = 500

// run calls until ctx ends, and waits for the calls that are under way then.
func (s *stream) run(ctx context.Context) {
	tick := time.NewTicker(s.pace)
	defer tick.Stop()
	room := make(chan struct{}, maxUnderWay)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		calls.Go(func() {
			defer func() { <-room }()
			began := time.Now()
			by, err := s.call(context.WithoutCancel(ctx))
			s.note(by, began, err)
		})
	}
}

func (s *stream) note(by string, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	if err != nil {
		s.failures = append(s.failures, failure{began, err})
		return
	}
	now := time.Now()
	if !s.lastGood.IsZero() {
		s.gap = max(s.gap, now.Sub(s.lastGood))
	}
	s.lastGood = now
	if s.by == nil {
		s.by, s.first = map[string]int{}, map[string]time.Time{}
	}
	s.by[by]++
	if _, answered := s.first[by]; !answered {
		s.first[by] = now
	}
}

// expect has answered tell only of what comes from now on.
func (s *stream) expect(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.first, by)
}

// answered tells whether somebody has answered since it was expected, and when first.
func (s *stream) answered(by string) (first time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, ok = s.first[by]
	return first, ok
}

// result is the stream in one line.
func (s *stream) result() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := make([]string, 0, len(s.by))
	for _, cluster := range slices.Sorted(maps.Keys(s.by)) {
		answered = append(answered, fmt.Sprintf("%d in %s", s.by[cluster], cluster))
	}
	return fmt.Sprintf("%d calls, %d failed; answered: %s; longest time without an answer %s",
		s.made, len(s.failures), strings.Join(answered, ", "), s.gap.Round(time.Millisecond))
}

// failed counts the calls that began after a moment and failed, and returns the last
// one's error.
func (s *stream) failed(after time.Time) (n int, last error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.failures {
		if f.began.After(after) {
			n, last = n+1, f.err
		}
	}
	return n, last
}
