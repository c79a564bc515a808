package configstore

import "sync"

// Kept is what the last Watch of a store knew when it ended, for a reader that goes on from there.
// The zero Kept has nothing.
type Kept[T any] struct {
	mu   sync.Mutex
	at   Version // empty for nothing
	what T
}

// Keep keeps what a Watch knew at a version.
func (k *Kept[T]) Keep(at Version, what T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.what = at, what
}

// Take returns the value kept at a version, once.
func (k *Kept[T]) Take(at Version) (what T, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at == "" || at != k.at {
		return what, false
	}
	what, k.what = k.what, what
	k.at = ""
	return what, true
}
