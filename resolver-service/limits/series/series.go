// Package series bounds the series of a metric whose labels name something that others choose, such
// as callers. So many names have a series each, and all others share one.
package series

import "sync"

// Bounded has a value for each of a bounded number of names, and one for all others together. The
// zero value needs Most set. Its methods may be called from any goroutine.
type Bounded[K comparable, V any] struct {
	Most int // names with a value of their own

	mu    sync.Mutex
	own   map[K]*V
	other V
}

// Use calls f with the value of a name, while nothing else uses or removes one. f must not block.
func (b *Bounded[K, V]) Use(name K, f func(*V)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.of(name))
}

func (b *Bounded[K, V]) of(name K) *V {
	v := b.own[name]
	switch {
	case v != nil:
		return v
	case len(b.own) >= b.Most:
		return &b.other
	case b.own == nil:
		b.own = map[K]*V{}
	}
	v = new(V)
	b.own[name] = v
	return v
}

// Full tells whether a name without a value would get none of its own.
func (b *Bounded[K, V]) Full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.own) >= b.Most
}

// Remove removes the values of names that are gone. fold adds what each has counted to the value of
// the others, so that no sum falls.
func (b *Bounded[K, V]) Remove(gone func(K, *V) bool, fold func(other, from *V)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, v := range b.own {
		if gone(name, v) {
			delete(b.own, name)
			fold(&b.other, v)
		}
	}
}

// Each calls f with each name and its value, and last with that of the others. f must not block.
func (b *Bounded[K, V]) Each(f func(name K, other bool, v *V)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, v := range b.own {
		f(name, false, v)
	}
	var none K
	f(none, true, &b.other)
}
