package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
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
	serial, parallel []float64 // nanoseconds for each look-up; wall time over all goroutines' look-ups
	allocations      []float64
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

// round measures each subject once, in another order each time.
func (b *bench) round(ctx context.Context, slice time.Duration) error {
	runtime.GC() // so that no subject collects the garbage of another
	for _, i := range rand.Perm(len(b.subjects)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.subjects[i].measure(ctx, slice); err != nil {
			return fmt.Errorf("%s: %w", b.subjects[i].name, err)
		}
	}
	return nil
}

func (s *subject) measure(ctx context.Context, slice time.Duration) error {
	if s.n == 0 {
		if err := s.calibrate(ctx, slice); err != nil {
			return err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took, err := timed(ctx, s.loop, s.n, 1)
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	s.serial = append(s.serial, float64(took)/float64(s.n))
	// Rounded to a tenth, since something in the background always allocates a little.
	s.allocations = append(s.allocations, float64((10*(after.Mallocs-before.Mallocs)+uint64(s.n)/2)/uint64(s.n))/10)
	procs := runtime.GOMAXPROCS(0)
	took, err = timed(ctx, s.loop, s.n, procs)
	s.parallel = append(s.parallel, float64(took)/float64(s.n*procs))
	return err
}

// calibrate finds how many look-ups take a slice of time.
func (s *subject) calibrate(ctx context.Context, slice time.Duration) error {
	for s.n = 64; ; s.n *= 2 {
		took, err := timed(ctx, s.loop, s.n, 1)
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
func timed(ctx context.Context, loop func(context.Context, int) error, n, goroutines int) (time.Duration, error) {
	errs := make([]error, goroutines)
	var group sync.WaitGroup
	start := time.Now()
	for i := range goroutines {
		group.Go(func() { errs[i] = loop(ctx, n) })
	}
	group.Wait()
	return time.Since(start), errors.Join(errs...)
}
