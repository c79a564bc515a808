// Package live has a value that one goroutine publishes and many read without a lock, wait for,
// follow and save; and the pauses between attempts.
package live

import (
	"context"
	"sync/atomic"
)

// Value is a value that can be read without a lock, awaited and followed.
//
// The zero Value is ready to use and holds nothing yet. One goroutine at a time calls Store; any
// number call the other methods. A stored value must not be changed afterwards: readers keep it.
//
// Store publishes first and notifies after, so a reader that is told of a value never reads an
// older one. A slow follower skips values; it holds up nobody, and nothing is queued for it.
type Value[T any] struct {
	state atomic.Pointer[state[T]]
}

type state[T any] struct {
	value   T
	set     bool
	changed chan struct{} // closed when a newer state stands
}

// Load returns the value that stands, and whether there is one. It takes no
// lock and allocates nothing.
func (v *Value[T]) Load() (value T, ok bool) {
	s := v.state.Load()
	if s == nil {
		return value, false
	}
	return s.value, s.set
}

// Store publishes value, then wakes those who wait for a change.
func (v *Value[T]) Store(value T) {
	old := v.state.Swap(&state[T]{value: value, set: true, changed: make(chan struct{})})
	if old != nil {
		close(old.changed)
	}
}

// Follow returns the value that stands, whether there is one, and a channel that
// is closed once a newer one does. To follow a value, call Follow again after each
// closing.
func (v *Value[T]) Follow() (value T, ok bool, changed <-chan struct{}) {
	s := v.state.Load()
	for s == nil {
		empty := &state[T]{changed: make(chan struct{})}
		if v.state.CompareAndSwap(nil, empty) {
			s = empty
			break
		}
		s = v.state.Load()
	}
	return s.value, s.set, s.changed
}

// Wait returns the value as soon as there is one, or the context's error.
func (v *Value[T]) Wait(ctx context.Context) (T, error) {
	for {
		value, ok, changed := v.Follow()
		if ok {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return value, ctx.Err()
		}
	}
}
