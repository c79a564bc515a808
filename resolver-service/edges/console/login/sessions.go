package login

import (
	"container/list"
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

// sessions holds a bounded number of values, each for a while, under ids that nobody can guess. It
// knows only the ids' hashes, so neither its memory nor the time of a search gives one away. It has
// no goroutine: what has lapsed goes when somebody asks for it, or with a later add.
type sessions[T any] struct {
	most int           // values; when there are more, the one that was idle the longest goes
	life time.Duration // of a value
	idle time.Duration // since a value was used

	mu    sync.Mutex
	all   map[hash]*list.Element
	order list.List // of *entry[T], the idlest first
}

type hash [sha256.Size]byte

type entry[T any] struct {
	at         hash
	value      T
	born, seen time.Time
	gone       context.Context // done when the value is no longer kept
	end        context.CancelFunc
}

// add keeps a value under a new id.
func (k *sessions[T]) add(value T) (id string) {
	id = random()
	now := time.Now()
	e := &entry[T]{at: sha256.Sum256([]byte(id)), value: value, born: now, seen: now}
	e.gone, e.end = context.WithCancel(context.Background())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[hash]*list.Element{}
	}
	for first := k.order.Front(); first != nil && (len(k.all) >= k.most || k.lapsed(first, now)); first = k.order.Front() {
		k.drop(first)
	}
	k.all[e.at] = k.order.PushBack(e)
	return id
}

func (k *sessions[T]) drop(at *list.Element) {
	e := k.order.Remove(at).(*entry[T])
	e.end()
	delete(k.all, e.at)
}

// until is when a value lapses, unless it is used again before.
func (k *sessions[T]) until(at *list.Element) time.Time {
	e := at.Value.(*entry[T])
	life, idle := e.born.Add(k.life), e.seen.Add(k.idle)
	if idle.Before(life) {
		return idle
	}
	return life
}

func (k *sessions[T]) lapsed(at *list.Element, now time.Time) bool { return !now.Before(k.until(at)) }

// get is a value, a context that is done once the value is dropped, and when it lapses unless it is
// used again. Where use is false, to ask for the value does not count as using it.
func (k *sessions[T]) get(id string, use bool) (value T, gone context.Context, until time.Time, ok bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.find(id, now)
	if at == nil {
		return value, nil, until, false
	}
	e := at.Value.(*entry[T])
	if use {
		e.seen = now
		k.order.MoveToBack(at)
	}
	return e.value, e.gone, k.until(at), true
}

// find is the place of a value that has not lapsed; nil where there is none.
func (k *sessions[T]) find(id string, now time.Time) *list.Element {
	at := k.all[sha256.Sum256([]byte(id))]
	if at != nil && k.lapsed(at, now) {
		k.drop(at)
		return nil
	}
	return at
}

// take is a value that is not kept any longer. Of two that take it at once, one gets it.
func (k *sessions[T]) take(id string) (value T, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.find(id, time.Now())
	if at == nil {
		return value, false
	}
	defer k.drop(at)
	return at.Value.(*entry[T]).value, true
}
