package settings

import (
	"sync"
	"time"
)

// Followed is a value made of files, such as a client with its certificates, that is made again
// when they change. It looks at them when the value is asked for, and compares their bytes. That
// works for renames, for the symlink swaps of Kubernetes mounts, for writes in place and for
// network file systems. While the files are unusable, the value of before stays in use.
type Followed[T any] struct {
	every time.Duration
	load  func(old T) (T, error)

	mu     sync.Mutex
	looked time.Time
	value  T
}

// Follow makes the value for the first time. It looks at the files once in so long at most, with 0
// each time. load returns the value of the files as they are, or the old one if they are the same.
// Its calls never overlap.
func Follow[T any](every time.Duration, load func(old T) (T, error)) (*Followed[T], error) {
	var none T
	value, err := load(none)
	if err != nil {
		return nil, err
	}
	return &Followed[T]{every: every, load: load, looked: time.Now(), value: value}, nil
}

// Get returns the value of the newest files that can be used.
func (f *Followed[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) >= f.every {
		f.looked = time.Now()
		if value, err := f.load(f.value); err == nil {
			f.value = value
		}
	}
	return f.value
}
