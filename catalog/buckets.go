package catalog

import (
	"iter"
	"slices"
)

// buckets are the buckets of a table: a power of two of them, nil if empty, indexed by an app's
// hash. A copy with a few changed buckets has the same cost for any number of buckets. Many
// buckets are in groups, and only the list of groups and the changed group are copied.
type buckets[V any] struct {
	flat   []*bucket[V] // all buckets, or
	groups []*group[V]  // if there are more than maxFlat
}

type group[V any] [groupSize]*bucket[V]

const (
	groupSize = 256
	// maxFlat bounds the buckets that are copied in one list: for some 16,000 apps and more.
	maxFlat = 1024
)

// newBuckets makes empty buckets.
func newBuckets[V any](size int) buckets[V] {
	if size <= maxFlat {
		return buckets[V]{flat: make([]*bucket[V], size)}
	}
	s := buckets[V]{groups: make([]*group[V], size/groupSize)}
	for i := range s.groups {
		s.groups[i] = new(group[V])
	}
	return s
}

func (s *buckets[V]) len() int { return len(s.flat) + groupSize*len(s.groups) }

// of returns the bucket of a hash. There must be buckets.
func (s *buckets[V]) of(h uint64) *bucket[V] {
	n := h >> 32
	if s.groups == nil {
		return s.flat[n&uint64(len(s.flat)-1)]
	}
	return s.groups[n/groupSize&uint64(len(s.groups)-1)][n%groupSize]
}

// at returns the n-th bucket, or nil.
func (s *buckets[V]) at(n int) *bucket[V] {
	switch {
	case n >= s.len():
		return nil
	case s.groups == nil:
		return s.flat[n]
	}
	return s.groups[n/groupSize][n%groupSize]
}

// copy returns a copy with at least one bucket, for set. Groups are shared until then.
func (s *buckets[V]) copy() (next buckets[V]) {
	if s.groups != nil {
		return buckets[V]{groups: slices.Clone(s.groups)}
	}
	next.flat = make([]*bucket[V], max(len(s.flat), 1))
	copy(next.flat, s.flat)
	return next
}

// set replaces the bucket of a hash in a copy of old. If old is nil or has another number of
// buckets, nobody else may have seen these buckets.
func (s *buckets[V]) set(h uint64, to *bucket[V], old *buckets[V]) {
	n := h >> 32
	if s.groups == nil {
		s.flat[n&uint64(len(s.flat)-1)] = to
		return
	}
	i := n / groupSize & uint64(len(s.groups)-1)
	if old != nil && len(s.groups) == len(old.groups) && s.groups[i] == old.groups[i] {
		mine := *s.groups[i]
		s.groups[i] = &mine
	}
	s.groups[i][n%groupSize] = to
}

// all yields every bucket that is not empty, and its index.
func (s *buckets[V]) all() iter.Seq2[int, *bucket[V]] { return s.notIn(&buckets[V]{}) }

// notIn yields every bucket that is not empty, and its index, except those that other has at the
// same index.
func (s *buckets[V]) notIn(other *buckets[V]) iter.Seq2[int, *bucket[V]] {
	return func(yield func(int, *bucket[V]) bool) {
		aligned := s.len() == other.len()
		for n := 0; n < s.len(); n++ {
			if aligned && s.groups != nil && n%groupSize == 0 && s.groups[n/groupSize] == other.groups[n/groupSize] {
				n += groupSize - 1
				continue
			}
			if mine := s.at(n); mine != nil && (!aligned || mine != other.at(n)) && !yield(n, mine) {
				return
			}
		}
	}
}
