package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// bench has the resolvers to measure, and the processes to end afterwards.
type bench struct {
	dir      string
	subjects []*subject // the others are compared with the first
	missing  []string   // resolvers left out, and why
	closers  []func() error
}

// subject is one way to look an app up.
type subject struct {
	name string
	held bool // the aims apply to it
	loop func(ctx context.Context, n int) error

	n int // how many look-ups fit into a slice

	// One value for each round.
	serial, parallel measure.Samples // nanoseconds for each look-up; wall time over all goroutines' look-ups
	allocations      measure.Samples
}

func (b *bench) add(name string, loop func(ctx context.Context, n int) error) *subject {
	s := &subject{name: name, loop: loop}
	b.subjects = append(b.subjects, s)
	return s
}

func (b *bench) leaveOut(name string, why error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %v", name, why))
}

func (b *bench) atEnd(f func() error) { b.closers = append(b.closers, f) }

// close ends everything that was started, in reverse order.
func (b *bench) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	return errors.Join(errs...)
}

func (s *subject) measure(ctx context.Context, slice time.Duration) error {
	if s.n == 0 {
		if err := s.calibrate(ctx, slice); err != nil {
			return err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took, err := s.timed(ctx, 1)
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	s.serial = append(s.serial, float64(took)/float64(s.n))
	// Rounded to a tenth, since something in the background always allocates a little.
	s.allocations = append(s.allocations, float64((10*(after.Mallocs-before.Mallocs)+uint64(s.n)/2)/uint64(s.n))/10)
	procs := runtime.GOMAXPROCS(0)
	took, err = s.timed(ctx, procs)
	s.parallel = append(s.parallel, float64(took)/float64(s.n*procs))
	return err
}

// calibrate finds how many look-ups take a slice of time.
func (s *subject) calibrate(ctx context.Context, slice time.Duration) error {
	for s.n = 64; ; s.n *= 2 {
		took, err := s.timed(ctx, 1)
		if err != nil {
			return err
		}
		if took > slice/2 {
			s.n = max(int(float64(s.n)*float64(slice)/float64(took)), 1)
			return nil
		}
	}
}

// timed makes n look-ups in each of several goroutines.
func (s *subject) timed(ctx context.Context, goroutines int) (time.Duration, error) {
	start := time.Now()
	err := measure.AtOnce(goroutines, goroutines*s.n, func(n int) error { return s.loop(ctx, n) })
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return time.Since(start), err
}
