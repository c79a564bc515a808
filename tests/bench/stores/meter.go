package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// series is what was measured of changes that were all made in one way. Each has one
// value for each change, from the moment before the write was sent.
type series struct {
	by                   string
	wrote, bare, decided []time.Duration
}

// extra is by how much each decision came after the bare watch.
func (s *series) extra() []time.Duration {
	extra := make([]time.Duration, len(s.bare))
	for i := range extra {
		extra[i] = s.decided[i] - s.bare[i]
	}
	return extra
}

func (s *series) row(store string) []string {
	row := []string{store + ", " + s.by, strconv.Itoa(len(s.decided))}
	extra := s.extra() // before anything is sorted
	for _, values := range [][]time.Duration{s.wrote, s.bare, s.decided, extra} {
		row = append(row, quantile(values, .5), quantile(values, .99))
	}
	return append(row, quantile(extra, 1))
}

func quantile(values []time.Duration, q float64) string {
	if len(values) == 0 {
		return "—"
	}
	return measure.Millis(measure.Quantile(slices.Clone(values), q))
}

// meter makes changes and times who sees them.
type meter struct {
	on       bool
	sidecars *sidecars
	bare     chan sight // nil where there is no bare watch
}

// longest bounds a series: where a change takes very long, there are fewer.
const longest = 20 * time.Second

// measure makes changes by put.
func (m *meter) measure(ctx context.Context, by string, changes int, put func(context.Context, catalog.Object) error) (*series, error) {
	s := &series{by: by}
	const warm = 20
	end := time.Now().Add(longest)
	for i := 0; i < changes+warm && (i <= warm || time.Now().Before(end)); i++ {
		time.Sleep(time.Millisecond + rand.N(3*time.Millisecond)) // in step with nothing
		if i == warm {
			*s = series{by: by}
		}
		if err := m.change(ctx, s, put); err != nil {
			return nil, fmt.Errorf("change %d %s: %w", i, by, err)
		}
	}
	return s, nil
}

func (m *meter) change(ctx context.Context, s *series, put func(context.Context, catalog.Object) error) error {
	m.on = !m.on
	began := time.Now()
	if err := put(ctx, selection(m.on)); err != nil {
		return err
	}
	s.wrote = append(s.wrote, time.Since(began))
	if m.bare != nil {
		at, err := await(ctx, m.bare, m.on)
		if err != nil {
			return fmt.Errorf("the bare watch: %w", err)
		}
		s.bare = append(s.bare, at.Sub(began))
	}
	at, err := await(ctx, m.sidecars.seen, m.on)
	if err != nil {
		return fmt.Errorf("the sidecar: %w", err)
	}
	s.decided = append(s.decided, at.Sub(began))
	return nil
}

var errUnseen = errors.New("has not seen a change")

// await waits until it is known whether the callee may be called.
func await(ctx context.Context, seen <-chan sight, on bool) (time.Time, error) {
	limit := time.NewTimer(measure.Patience)
	defer limit.Stop()
	for {
		select {
		case s := <-seen:
			if s.on == on {
				return s.at, nil
			}
		case <-limit.C:
			return time.Time{}, fmt.Errorf("%w after %s", errUnseen, measure.Patience)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// watchBare runs a subject's bare watch, and returns once it stands.
func watchBare(ctx context.Context, s *subject) (seen chan sight, end func() error, err error) {
	if s.watch == nil {
		return nil, func() error { return nil }, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	seen = make(chan sight, 16)
	var running sync.WaitGroup
	running.Go(func() {
		err = s.watch(ctx, selection(true).Key(), func(value []byte) {
			select {
			case seen <- sight{holds(value), time.Now()}:
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			err = nil
		}
	})
	end = func() error {
		cancel()
		running.Wait()
		return err
	}
	if _, unseen := await(ctx, seen, false); unseen != nil {
		return nil, nil, errors.Join(fmt.Errorf("the bare watch has not begun: %w", unseen), end())
	}
	return seen, end, nil
}
