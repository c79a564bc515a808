package catalog

import (
	"iter"
	"math/bits"
	"math/rand/v2"
)

// Table is an immutable map from apps to values. [Table.With] makes a new table that shares all
// unchanged buckets with the old one. So a change costs what it touches and not the size of the
// table. Comparing two tables costs in proportion to their differences.
//
// A lookup hashes the app once, takes no lock and allocates nothing. The zero Table is empty.
type Table[V any] struct {
	buckets buckets[V]
	count   int
}

// A bucket is an open-addressed hash table with linear probing. Its slots are a power of two and
// never full.
type bucket[V any] struct {
	slots []slot[V]
	count int
}

type slot[V any] struct {
	hash  uint64 // 0: the slot is free
	app   App
	value V
}

// bucketFill is the average number of apps in a bucket before a table of so many apps gets more
// buckets. A change copies a bucket. In small tables buckets are smaller, since there are many such
// tables, the views of apps, and one change may reach all of them. A large table with such buckets
// would have too many to list.
func bucketFill(apps int) int {
	if apps <= 128 {
		return 4
	}
	return 16
}

// seed is random for each process, so that nobody outside can choose colliding names.
var seed = rand.Uint64()

// Odd constants with as many bits set as not, as in wyhash.
const k0, k1 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db

// hashApp is never 0. It costs one multiplication for up to sixteen bytes of a name, which fits
// most names, and another one to mix both names so that they can't be swapped. For such names it
// takes a third of the time of hash/maphash. It calls nothing, not even for each name, so it
// needs no stack of its own.
func hashApp(a App) uint64 {
	var namespace uint64
	for s, both := a.Namespace, false; ; s, both = a.ID, true {
		n := len(s)
		h := seed ^ uint64(n)*k0
		var first, last uint64
		switch {
		case n >= 8:
			for i := 0; i < n-16; i += 16 {
				h = fold(word(s[i:])^k0, word(s[i+8:])^h)
			}
			first, last = word(s[max(n-16, 0):]), word(s[n-8:])
		case n >= 4:
			first, last = uint64(half(s)), uint64(half(s[n-4:]))
		case n > 0:
			first = uint64(s[0]) | uint64(s[n/2])<<8 | uint64(s[n-1])<<16
		}
		h = fold(first^k1, last^h)
		if both {
			return fold(namespace^k0, h^seed) | 1
		}
		namespace = h
	}
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// word is the first eight bytes of s, which must have them; half is the first four. The compiler
// makes one load of each.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func half(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// Get returns the value of an app.
func (t *Table[V]) Get(a App) (value V, ok bool) {
	if t.count == 0 {
		return value, false
	}
	h := hashApp(a)
	s := t.buckets.of(h)
	if s == nil {
		return value, false
	}
	mask := uint64(len(s.slots) - 1)
	for i := h >> 1 & mask; ; i = (i + 1) & mask {
		e := &s.slots[i]
		if e.hash == h && e.app.ID == a.ID && e.app.Namespace == a.Namespace {
			return e.value, true
		}
		if e.hash == 0 {
			return value, false
		}
	}
}

// Len is the number of apps.
func (t *Table[V]) Len() int { return t.count }

// All yields every app and its value, in no particular order.
func (t *Table[V]) All() iter.Seq2[App, V] {
	return func(yield func(App, V) bool) {
		for _, s := range t.buckets.all() {
			if !s.each(yield) {
				return
			}
		}
	}
}

func (s *bucket[V]) each(yield func(App, V) bool) bool {
	if s == nil {
		return true
	}
	for i := range s.slots {
		if e := &s.slots[i]; e.hash != 0 && !yield(e.app, e.value) {
			return false
		}
	}
	return true
}

// Edit is one change of a table: a new value, or the removal of an app.
type Edit[V any] struct {
	App    App
	Value  V
	Remove bool
}

// With returns a table with the edits made, in order. The old table does not change.
func (t Table[V]) With(edits ...Edit[V]) Table[V] {
	if len(edits) == 0 {
		return t
	}
	next := Table[V]{t.buckets.copy(), t.count}
	if len(edits) > t.count && len(edits) > 2*bucketFill(len(edits))*t.buckets.len() {
		next.resize(t.count + len(edits)) // once, in advance
	}
	for i := range edits {
		next.edit(&edits[i], &t)
	}
	if size, fill := next.buckets.len(), bucketFill(next.count); next.count > 2*fill*size || (size > 1 && next.count < fill*size/4) {
		next.resize(next.count)
	}
	return next
}

// edit makes one edit in a table that began as a copy of old. It first copies a bucket that
// belongs to old as well.
func (t *Table[V]) edit(e *Edit[V], old *Table[V]) {
	h := hashApp(e.App)
	s := t.buckets.of(h)
	shared := old.buckets.len() == t.buckets.len() && s == old.buckets.of(h)
	t.count -= s.len()
	switch {
	case e.Remove:
		s = s.without(h, e.App) // always a copy
	case shared || s.full():
		s = s.grown()
		s.put(h, e.App, e.Value)
	default:
		s.put(h, e.App, e.Value)
	}
	t.count += s.len()
	t.buckets.set(h, s, &old.buckets)
}

func (s *bucket[V]) len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// full tells whether one more app would fill more than three quarters of the bucket.
func (s *bucket[V]) full() bool { return s == nil || 4*(s.count+1) > 3*len(s.slots) }

// grown returns a copy with room for one more app, at most three quarters full.
func (s *bucket[V]) grown() *bucket[V] {
	if s == nil {
		return &bucket[V]{slots: make([]slot[V], 2)}
	}
	size := len(s.slots)
	for 4*(s.count+1) > 3*size {
		size *= 2
	}
	next := &bucket[V]{slots: make([]slot[V], size)}
	if size == len(s.slots) {
		copy(next.slots, s.slots)
		next.count = s.count
		return next
	}
	for i := range s.slots {
		if e := &s.slots[i]; e.hash != 0 {
			next.put(e.hash, e.app, e.value)
		}
	}
	return next
}

// without returns a copy without an app, or nil if nothing is left.
func (s *bucket[V]) without(h uint64, a App) *bucket[V] {
	if s == nil {
		return nil
	}
	next := &bucket[V]{slots: make([]slot[V], len(s.slots))}
	for i := range s.slots {
		if e := &s.slots[i]; e.hash != 0 && (e.hash != h || e.app != a) {
			next.put(e.hash, e.app, e.value)
		}
	}
	if next.count == 0 {
		return nil
	}
	return next
}

func (s *bucket[V]) put(h uint64, a App, v V) {
	mask := uint64(len(s.slots) - 1)
	i := h >> 1 & mask
	for s.slots[i].hash != 0 && (s.slots[i].hash != h || s.slots[i].app != a) {
		i = (i + 1) & mask
	}
	if s.slots[i].hash == 0 {
		s.count++
	}
	s.slots[i] = slot[V]{h, a, v}
}

// resize moves the apps to as many buckets as the given number of apps needs.
func (t *Table[V]) resize(apps int) {
	next := sized[V](apps)
	for _, s := range t.buckets.all() {
		for i := range s.slots {
			if e := &s.slots[i]; e.hash != 0 {
				next.insert(e.hash, e.app, e.value)
			}
		}
	}
	*t = next
}

// sized returns an empty table with buckets for the given number of apps.
func sized[V any](apps int) Table[V] {
	size := 1
	for size*bucketFill(apps) < apps {
		size *= 2
	}
	return Table[V]{buckets: newBuckets[V](size)}
}

// insert adds an app to a table that nobody else has seen yet.
func (t *Table[V]) insert(h uint64, a App, v V) {
	s := t.buckets.of(h)
	if s.full() {
		s = s.grown()
		t.buckets.set(h, s, nil)
	}
	t.count -= s.count
	s.put(h, a, v)
	t.count += s.count
}

// NewTable makes a table of many apps at once; of two edits of one app, the later counts.
func NewTable[V any](edits []Edit[V]) Table[V] {
	t := sized[V](len(edits))
	for i := range edits {
		if e := &edits[i]; !e.Remove {
			t.insert(hashApp(e.App), e.App, e.Value)
		}
	}
	return t
}

// Diff yields the edits that turn old into t: an Edit for each app whose value is new or, by
// same, not the same, and a removal for each app that t lacks. It skips buckets that both tables
// share.
func (t *Table[V]) Diff(old *Table[V], same func(a, b V) bool) iter.Seq[Edit[V]] {
	return func(yield func(Edit[V]) bool) {
		for i, s := range t.buckets.notIn(&old.buckets) {
			for j := range s.slots {
				e := &s.slots[j]
				if e.hash == 0 {
					continue
				}
				was, ok := old.likely(i, j, e)
				if (!ok || !same(was, e.value)) && !yield(Edit[V]{App: e.app, Value: e.value}) {
					return
				}
			}
		}
		for _, s := range old.buckets.notIn(&t.buckets) {
			for app := range s.all() {
				if _, ok := t.Get(app); !ok && !yield(Edit[V]{App: app, Remove: true}) {
					return
				}
			}
		}
	}
}

// likely is Get for the app of another table's slot. A table made from this one has most apps at
// the same place, so that place is checked first.
func (t *Table[V]) likely(i, j int, e *slot[V]) (value V, ok bool) {
	if s := t.buckets.at(i); s != nil && j < len(s.slots) {
		if mine := &s.slots[j]; mine.hash == e.hash && mine.app == e.app {
			return mine.value, true
		}
	}
	return t.Get(e.app)
}

func (s *bucket[V]) all() iter.Seq2[App, V] {
	return func(yield func(App, V) bool) { s.each(yield) }
}
