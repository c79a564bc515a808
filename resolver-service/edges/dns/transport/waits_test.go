package transport

import (
	"net/netip"
	"testing"
	"time"
)

func TestNoClientTakesAllThatMayBeWaitedFor(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, c := range []struct{ limit, alone int }{{1, 1}, {2, 1}, {3, 2}, {10, 5}, {1000, 500}} {
		w := newWaits(t.Context(), c.limit, time.Second)
		got := 0
		for w.enter(a) {
			got++
		}
		if got != c.alone {
			t.Errorf("of room for %d one client has %d, want %d", c.limit, got, c.alone)
		}
		other := 0
		for w.enter(b) {
			other++
		}
		if got+other != c.limit {
			t.Errorf("of room for %d two clients have %d and %d", c.limit, got, other)
		}
		for range got {
			w.leave(a)
		}
		for range other {
			w.leave(b)
		}
		if w.room != c.limit || len(w.byClient) != 0 {
			t.Errorf("when all have left there is room for %d of %d, and %d clients are remembered", w.room, c.limit, len(w.byClient))
		}
	}
}
