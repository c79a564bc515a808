package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// random is a text that nobody can guess: 256 bits in base64url.
func random() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// forever is longer than any process runs.
const forever = 100 * 365 * 24 * time.Hour

// sessions holds a bounded number of values, each for a while, under ids that nobody can guess.
// Libraries of sessions bound no number, and tell no stream that its session ended. It knows only the ids' hashes, so neither its memory nor the time of a search gives one away. It has
// no goroutine: what has lapsed goes when somebody asks for it, or with a later add.
type sessions[T any] struct {
	most int           // values; when there are more, the one that was idle the longest goes
	life time.Duration // of a value
	idle time.Duration // since a value was used

	mu  sync.Mutex
	all *simplelru.LRU[hash, *entry[T]] // the one that was used last is the newest; nil before the first add
}

type hash [sha256.Size]byte

type entry[T any] struct {
	value      T
	born, seen time.Time
	gone       context.Context // done when the value is no longer kept
	end        context.CancelFunc
}

// add keeps a value under a new id.
func (k *sessions[T]) add(value T) (id string) {
	id = random()
	now := time.Now()
	e := &entry[T]{value: value, born: now, seen: now}
	e.gone, e.end = context.WithCancel(context.Background())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil { // an error would be a size below 1
		k.all, _ = simplelru.NewLRU(k.most, func(_ hash, e *entry[T]) { e.end() })
	}
	for _, first, ok := k.all.GetOldest(); ok && k.lapsed(first, now); _, first, ok = k.all.GetOldest() {
		k.all.RemoveOldest()
	}
	k.all.Add(sha256.Sum256([]byte(id)), e)
	return id
}

// until is when a value lapses, unless it is used again before.
func (k *sessions[T]) until(e *entry[T]) time.Time {
	life, idle := e.born.Add(k.life), e.seen.Add(k.idle)
	if idle.Before(life) {
		return idle
	}
	return life
}

func (k *sessions[T]) lapsed(e *entry[T], now time.Time) bool { return !now.Before(k.until(e)) }

// get is a value, a context that is done once the value is dropped, and when it lapses unless it is
// used again. Where use is false, to ask for the value does not count as using it.
func (k *sessions[T]) get(id string, use bool) (value T, gone context.Context, until time.Time, ok bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	at, e := k.find(id, now)
	if e == nil {
		return value, nil, until, false
	}
	if use {
		e.seen = now
		k.all.Get(at)
	}
	return e.value, e.gone, k.until(e), true
}

// find is a value that has not lapsed, and its place; nil where there is none.
func (k *sessions[T]) find(id string, now time.Time) (at hash, e *entry[T]) {
	if k.all == nil {
		return at, nil
	}
	at = sha256.Sum256([]byte(id))
	e, ok := k.all.Peek(at)
	if ok && k.lapsed(e, now) {
		k.all.Remove(at)
		return at, nil
	}
	return at, e
}

// take is a value that is not kept any longer. Of two that take it at once, one gets it.
func (k *sessions[T]) take(id string) (value T, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, e := k.find(id, time.Now())
	if e == nil {
		return value, false
	}
	k.all.Remove(at)
	return e.value, true
}
