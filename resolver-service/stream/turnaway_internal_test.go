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
		_, err := s.away.admit(client, now)
		if err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	}
	before, err := s.away.admit(a, now)
	if err != nil {
		t.Fatal(err)
	}
	s.TurnAway("east is not heard")
	if before.Err() == nil {
		t.Fatal("streams go on")
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
	until, err := s.away.admit(b, now)
	s.TurnAway("east and north are not heard")
	if err != nil || until.Err() != nil {
		t.Error("a client that found no other replica is turned away by another reason")
	}
	if s.TurnAway(""); !admitted(appSource{}) {
		t.Error("nothing lifts it")
	}
}
