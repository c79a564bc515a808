package relay

import (
	"log/slog"
	"slices"
	"testing"
	"time"
)

// TestOnlyAReceiverThatTakesNothingHasStalled: not one that takes a little now and then, nor a
// backend that the loop has yet to connect to.
func TestOnlyAReceiverThatTakesNothingHasStalled(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	l, err := newLoop(Config{Stall: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.closeAll()
	// A side with bytes to write and no descriptor would fail at once; these only wait.
	pairOf := func() (*pair, *owner) {
		o := newOwner()
		return &pair{client: side{fd: -1, shut: true}, backend: side{fd: -1}, owner: o, traffic: o.Traffic()}, o
	}
	slow, slowOwner := pairOf()
	dead, deadOwner := pairOf()
	free, _ := pairOf()
	dialed, _ := pairOf()
	dialed.dialing = &dialing{}
	slow.backend.blocked, dead.client.blocked, dialed.backend.blocked = start, start, start
	for _, p := range []*pair{slow, dead} {
		l.pairs = append(l.pairs, p)
		p.slot = int32(len(l.pairs) - 1)
	}
	s := &l.timeouts.stalled
	if s.wait() != Never {
		t.Errorf("with no pair listed it waits %v", s.wait())
	}
	for range 2 {
		for _, p := range []*pair{slow, dead, free, dialed} {
			l.timeouts.noteStalled(p)
		}
	}
	if !slices.Equal(s.pairs, []*pair{slow, dead}) || s.wait() != 125*time.Millisecond {
		t.Fatalf("%d are listed, and it waits %v", len(s.pairs), s.wait())
	}
	s.checked = start
	for ms := 200; ms < 2000; ms += 200 {
		slow.backend.blocked = at(ms - ms%500)
		l.endLate(at(ms))
		if got, want := deadOwner.over(), ms >= 1000; got != want {
			t.Errorf("after %d ms the pair has ended: %v, want %v", ms, got, want)
		}
	}
	if slowOwner.over() {
		t.Error("a slow pair has ended")
	}
	slow.backend.blocked = time.Time{}
	if l.endLate(at(3000)); len(s.pairs) != 0 || slow.stalled || s.wait() != Never {
		t.Errorf("%d are listed when none is blocked", len(s.pairs))
	}
	s.Limit = 0
	slow.backend.blocked = start
	if l.timeouts.noteStalled(slow); len(s.pairs) != 0 {
		t.Error("without a limit a pair is listed")
	}
}
