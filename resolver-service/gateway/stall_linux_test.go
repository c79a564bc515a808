package gateway

import (
	"slices"
	"testing"
	"time"
)

// TestOnlyWhoTakesNothingHasStalled: not who takes a little now and then, nor a backend that is
// still to be connected to.
func TestOnlyWhoTakesNothingHasStalled(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := stalls{sweep: sweep{after: time.Second}}
	slow, dead, free, dialed := &pair{}, &pair{}, &pair{}, &pair{dialing: &dialing{}}
	slow.backend.blocked, dead.client.blocked, dialed.backend.blocked = start, start, start
	if s.wait(len(s.behind)) != -1 {
		t.Errorf("with nobody behind it waits %d ms", s.wait(len(s.behind)))
	}
	for range 2 {
		for _, p := range []*pair{slow, dead, free, dialed} {
			s.note(p)
		}
	}
	if !slices.Equal(s.behind, []*pair{slow, dead}) || s.wait(len(s.behind)) != 125 {
		t.Fatalf("%d are behind, and it waits %d ms", len(s.behind), s.wait(len(s.behind)))
	}
	s.looked = start
	for ms := 100; ms < 2000; ms += 100 {
		slow.backend.blocked = at(ms - ms%500)
		want := []*pair(nil)
		if ms >= 1000 {
			want = []*pair{dead}
		}
		if got := s.due(at(ms)); ms%200 == 0 && !slices.Equal(got, want) {
			t.Errorf("after %d ms %d have stalled", ms, len(got))
		}
	}
	slow.backend.blocked = time.Time{}
	dead.ended = true
	if got := s.due(at(3000)); len(got) != 0 || len(s.behind) != 0 || slow.behind || s.wait(len(s.behind)) != -1 {
		t.Errorf("%d have stalled and %d are behind when nobody is", len(got), len(s.behind))
	}
	s.after = 0
	slow.backend.blocked = start
	if s.note(slow); len(s.behind) != 0 {
		t.Error("without a limit somebody is behind")
	}
}
