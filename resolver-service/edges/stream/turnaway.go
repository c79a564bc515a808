package stream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// TurnAwayFor is for how long a client that comes back is turned away: enough to find another
// replica. After that it has found none, so it is served.
const TurnAwayFor = 15 * time.Second

// TurnAwayEvery is how often a client is turned away at most, by all replicas together, where it is
// not known whether another one is better.
const TurnAwayEvery = 10 * time.Minute

// Bounds of the list of clients that were turned away.
const (
	forgetTurnedAway = time.Minute
	maxTurnedAway    = 10_000 // others are served
)

// turnAway sends clients to other replicas.
type turnAway struct {
	mu     sync.Mutex
	cause  error // nil: clients are served
	sure   bool  // another replica is known to be better
	visits map[*visit]struct{}
	came   map[appSource]time.Time // first turned away, while sure
}

// visit is a stream that was admitted. Its context ends, with a cause, when the stream must end.
type visit struct {
	context.Context
	end    context.CancelCauseFunc
	others bool      // its client knows another replica
	turned time.Time // when a replica turned its client away last; zero for none
}

// mayTry tells whether a client that another replica may serve better should go and see.
func (v *visit) mayTry(now time.Time) bool {
	return v.others && now.Sub(v.turned) >= TurnAwayEvery
}

func newTurnAway() *turnAway { return &turnAway{visits: map[*visit]struct{}{}} }

// TurnAway ends streams and has their clients go to other replicas, for a reason. Their instances
// stay until they have registered elsewhere, or had the time for it. An empty reason lifts that.
//
// Only clients that know another replica are sent away. If it is sure that another replica is
// better, it ends their streams and refuses new ones. Otherwise it sends each away once in
// [TurnAwayEvery]: a client says when it was turned away, so the replica that it goes to keeps it,
// even if that one hears no more.
func (s *Server) TurnAway(why string, sure bool) {
	a := s.away
	a.mu.Lock()
	defer a.mu.Unlock()
	if why == "" {
		a.cause, a.came = nil, nil
		return
	}
	before, now := a.cause, time.Now()
	a.sure, a.cause = sure, turnedAway(why, sure)
	if before != nil {
		return
	}
	a.came = map[appSource]time.Time{}
	for v := range a.visits {
		if v.others && (sure || v.mayTry(now)) {
			v.end(a.cause)
		}
	}
}

// turnedAway is the error that clients get.
func turnedAway(why string, sure bool) error {
	other := "another replica of the resolver service may be better"
	if sure {
		other = "another replica of the resolver service is better now"
	}
	text := status.New(codes.Unavailable, why+"; "+other)
	if marked, err := text.WithDetails(&pb.TurnedAway{}); err == nil {
		text = marked
	}
	return text.Err()
}

// admit lets a new stream of a client in, until leave, or says why it can't begin.
func (a *turnAway) admit(client appSource, h *hello, now time.Time) (v *visit, leave func(), err error) {
	v = &visit{others: h.others, turned: h.turnedAway}
	v.Context, v.end = context.WithCancelCause(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuses(client, v, now) {
		return nil, nil, a.cause
	}
	a.visits[v] = struct{}{}
	return v, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.visits, v)
	}, nil
}

// refuses tells whether a client must go to another replica first; mu is held.
func (a *turnAway) refuses(client appSource, v *visit, now time.Time) bool {
	switch {
	case a.cause == nil || !v.others:
		return false
	case !a.sure:
		return v.mayTry(now)
	}
	first, known := a.came[client]
	since := now.Sub(first)
	switch {
	case known && since < TurnAwayFor:
		return true
	case known && since < forgetTurnedAway, len(a.came) >= maxTurnedAway:
		return false
	}
	a.came[client] = now
	return true
}
