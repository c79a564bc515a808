package entry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

// random is a text that nobody can guess: 256 bits in base64url.
func random() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// forever is longer than any process runs.
const forever = 100 * 365 * 24 * time.Hour

// kept holds a bounded number of values, each for a while, under ids that nobody can guess. It
// knows only the ids' hashes, so neither its memory nor the time of a search gives one away. It has
// no goroutine: what has lapsed goes when somebody asks for it, and with the next add.
type kept[T any] struct {
	most int           // values; when there are more, the one that was idle the longest goes
	life time.Duration // of a value
	idle time.Duration // since a value was used

	mu  sync.Mutex
	all map[[sha256.Size]byte]*entry[T]
}

type entry[T any] struct {
	value      T
	born, seen time.Time
	gone       context.Context // done when the value is no longer kept
	end        context.CancelFunc
}

// add keeps a value under a new id.
func (k *kept[T]) add(value T) (id string) {
	id = random()
	now := time.Now()
	e := &entry[T]{value: value, born: now, seen: now}
	e.gone, e.end = context.WithCancel(context.Background())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[[sha256.Size]byte]*entry[T]{}
	}
	k.makeRoom(now)
	k.all[sha256.Sum256([]byte(id))] = e
	return id
}

// makeRoom drops what has lapsed. If that is not enough, the value that was idle the longest goes.
func (k *kept[T]) makeRoom(now time.Time) {
	var oldest [sha256.Size]byte
	var idlest *entry[T]
	for at, e := range k.all {
		if k.lapsed(e, now) {
			k.drop(at)
		} else if idlest == nil || e.seen.Before(idlest.seen) {
			oldest, idlest = at, e
		}
	}
	if len(k.all) >= k.most {
		k.drop(oldest)
	}
}

func (k *kept[T]) drop(at [sha256.Size]byte) {
	if e := k.all[at]; e != nil {
		e.end()
		delete(k.all, at)
	}
}

// until is when a value lapses, unless it is used again before.
func (k *kept[T]) until(e *entry[T]) time.Time {
	life, idle := e.born.Add(k.life), e.seen.Add(k.idle)
	if idle.Before(life) {
		return idle
	}
	return life
}

func (k *kept[T]) lapsed(e *entry[T], now time.Time) bool { return !now.Before(k.until(e)) }

// get is a value, a context that is done once the value is dropped, and when it lapses unless it is
// used again. Where use is false, to ask for the value does not count as using it.
func (k *kept[T]) get(id string, use bool) (value T, gone context.Context, until time.Time, ok bool) {
	at := sha256.Sum256([]byte(id))
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.all[at]
	if e == nil || k.lapsed(e, now) {
		k.drop(at)
		return value, nil, until, false
	}
	if use {
		e.seen = now
	}
	return e.value, e.gone, k.until(e), true
}

// take is a value that is not kept any longer.
func (k *kept[T]) take(id string) (value T, ok bool) {
	value, _, _, ok = k.get(id, false)
	k.mu.Lock()
	defer k.mu.Unlock()
	at := sha256.Sum256([]byte(id))
	ok = ok && k.all[at] != nil // of two that take at once, one gets it
	k.drop(at)
	return value, ok
}
