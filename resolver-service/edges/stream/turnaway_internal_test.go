package stream

import (
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestWhoIsTurnedAway(t *testing.T) {
	a := appSource{catalog.App{Namespace: "shop", ID: "orders"}, netip.MustParseAddr("10.0.0.1")}
	b := appSource{a.app, netip.MustParseAddr("10.0.0.2")}
	s := &Server{away: newTurnAway()}
	now := time.Now()
	admitted := func(client appSource) bool {
		_, _, err := s.away.admit(client, &hello{others: true}, now)
		if err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	}
	before, _, err := s.away.admit(a, &hello{others: true}, now)
	alone, _, other := s.away.admit(b, &hello{}, now)
	if err != nil || other != nil {
		t.Fatal(err, other)
	}
	s.TurnAway("east is not heard", true)
	if before.Err() == nil || alone.Err() != nil {
		t.Fatalf("streams end: %v; of a client that knows no other replica: %v", before.Err(), alone.Err())
	}
	if _, _, err := s.away.admit(b, &hello{}, now); err != nil {
		t.Fatalf("a client that knows no other replica is turned away: %v", err)
	}
	for _, step := range []struct {
		after  time.Duration
		client appSource
		want   bool
	}{
		{0, a, false},
		{TurnAwayFor - time.Second, a, false},
		{TurnAwayFor - time.Second, b, false},
		{TurnAwayFor, a, true}, // it has found no other
		{TurnAwayFor, b, false},
		{2 * TurnAwayFor, b, true},
		{forgetTurnedAway, a, false}, // another time
		{forgetTurnedAway + TurnAwayFor, a, true},
	} {
		began := now
		now = now.Add(step.after)
		if got := admitted(step.client); got != step.want {
			t.Errorf("%s after %s: admitted %t", step.client.source, step.after, got)
		}
		now = began
	}
	now = now.Add(2 * TurnAwayFor)
	until, _, err := s.away.admit(b, &hello{others: true}, now)
	s.TurnAway("east and north are not heard", true)
	if err != nil || until.Err() != nil {
		t.Error("a client that found no other replica is turned away by another reason")
	}
	if s.TurnAway("", true); !admitted(appSource{}) {
		t.Error("nothing lifts it")
	}
}

// Where it is not known whether another replica is better.
func TestWhoIsTurnedAwayOnceOnly(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what   string
		client hello
		want   bool // it goes
	}{
		{"knows no other replica", hello{}, false},
		{"knows another", hello{others: true}, true},
		{"was turned away just now", hello{others: true, turnedAway: now}, false},
		{"was turned away a while ago", hello{others: true, turnedAway: now.Add(-TurnAwayEvery + time.Minute)}, false},
		{"was turned away long ago", hello{others: true, turnedAway: now.Add(-TurnAwayEvery)}, true},
	} {
		s := &Server{away: newTurnAway()}
		there, leave, err := s.away.admit(appSource{}, &c.client, now)
		if err != nil {
			t.Fatal(err)
		}
		s.TurnAway("east is not heard", false)
		_, _, err = s.away.admit(appSource{}, &c.client, now)
		if left := there.Err() != nil; left != c.want || (err != nil) != c.want {
			t.Errorf("one that %s: its stream ends: %t, and a new one is refused: %v; want %t", c.what, left, err, c.want)
		}
		if s.TurnAway("", false); len(s.away.visits) == 0 {
			t.Errorf("one that %s: its stream is not known", c.what)
		}
		leave()
		if _, _, err := s.away.admit(appSource{}, &c.client, now); err != nil {
			t.Errorf("one that %s: nothing lifts it: %v", c.what, err)
		}
	}
}
