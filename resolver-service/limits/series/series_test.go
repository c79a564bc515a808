package series

import (
	"fmt"
	"maps"
	"testing"
)

func read(b *Bounded[string, int]) map[string]int {
	all := map[string]int{}
	b.Each(func(name string, other bool, v *int) {
		if other {
			name = "other"
		}
		all[name] = *v
	})
	return all
}

func add(b *Bounded[string, int], names ...string) {
	for _, name := range names {
		b.Use(name, func(v *int) { *v++ })
	}
}

func TestNamesBeyondTheBoundShareOneValue(t *testing.T) {
	b := &Bounded[string, int]{Most: 2}
	add(b, "a", "b", "c", "d", "a", "c")
	if want := map[string]int{"a": 2, "b": 1, "other": 3}; !maps.Equal(read(b), want) {
		t.Errorf("%v, want %v", read(b), want)
	}
	for i := range 10_000 {
		add(b, fmt.Sprint("stranger-", i))
	}
	if n := len(read(b)); n != 3 || !b.Full() {
		t.Errorf("%d values, full: %v", n, b.Full())
	}
}

func TestWhatIsRemovedCountsWithTheOthers(t *testing.T) {
	b := &Bounded[string, int]{Most: 2}
	add(b, "a", "b", "c", "b")
	b.Remove(func(name string, _ *int) bool { return name == "b" }, func(other, from *int) { *other += *from })
	add(b, "c") // has room now
	if want := map[string]int{"a": 1, "c": 1, "other": 3}; !maps.Equal(read(b), want) {
		t.Errorf("%v, want %v", read(b), want)
	}
}
