package stalls

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesAreNoted(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	w := &Watch{last: begin}
	for _, ms := range []int{5, 54, 1054, 1060, 1400} {
		w.look(at(ms))
	}
	if len(w.pauses) != 2 {
		t.Errorf("noted %v; want what lasted 1 s, and 340 ms", w.pauses)
	}
	w.last = time.Now().Add(time.Hour) // nothing more
	for since, want := range map[int]time.Duration{0: time.Second, 500: time.Second, 1054: 340 * time.Millisecond, 1400: 0} {
		if got := w.Longest(at(since)); got != want {
			t.Errorf("since %d ms: %s, want %s", since, got, want)
		}
	}
}

// TestWhereEverythingRunsThereIsNoPause, and one that goes on is seen as well.
func TestWhereEverythingRunsThereIsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := Begin(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.Longest(begin); got != 0 {
			t.Errorf("stood still for %s", got)
		}
		w.mu.Lock()
		w.last = w.last.Add(-3 * time.Second) // as if it had not looked since
		w.mu.Unlock()
		if got := w.Longest(begin); got != 3*time.Second {
			t.Errorf("stands still for %s, want 3 s", got)
		}
	})
}
