package demo

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stream calls an app at a steady pace and keeps what came of it.
type stream struct {
	call func(context.Context) (answeredBy string, err error)
	pace time.Duration

	mu       sync.Mutex
	made     int
	failed   int
	lastErr  error
	by       map[string]int       // answers, by who gave them
	first    map[string]time.Time // who has answered since it was expected, and when first
	lastGood time.Time
	gap      time.Duration // the longest time between two answers
}

// run calls until ctx ends; a call that is under way then does not count.
func (s *stream) run(ctx context.Context) {
	tick := time.NewTicker(s.pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		by, err := s.call(ctx)
		if ctx.Err() != nil {
			return
		}
		s.note(by, err)
	}
}

func (s *stream) note(by string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	if err != nil {
		s.failed++
		s.lastErr = err
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
	return fmt.Sprintf("%d calls, %d failed; answered %v; longest time without an answer %s", s.made, s.failed, s.by, s.gap.Round(time.Millisecond))
}

// failures are how many calls failed, and the last error.
func (s *stream) failures() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed, s.lastErr
}
