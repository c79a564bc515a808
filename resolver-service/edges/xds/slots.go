package xds

import "math/bits"

// slots is a set of numbers of streams.
type slots []uint64

func (s slots) has(n int) bool { return n>>6 < len(s) && s[n>>6]&(1<<(n&63)) != 0 }

func (s *slots) add(n int) {
	for n>>6 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[n>>6] |= 1 << (n & 63)
}

// remove returns whether any number is left.
func (s slots) remove(n int) (left bool) {
	if s.has(n) {
		s[n>>6] &^= 1 << (n & 63)
	}
	for _, word := range s {
		if word != 0 {
			return true
		}
	}
	return false
}

// each yields the numbers of two sets.
func each(a, b slots, yield func(n int)) {
	for i := range max(len(a), len(b)) {
		var word uint64
		if i < len(a) {
			word = a[i]
		}
		if i < len(b) {
			word |= b[i]
		}
		for ; word != 0; word &= word - 1 {
			yield(i<<6 + bits.TrailingZeros64(word))
		}
	}
}
