package stream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TurnAwayFor is for how long a client that comes back is turned away: enough to find another
// replica. After that it has found none, so it is served.
const TurnAwayFor = 15 * time.Second

// Bounds of what is known of clients that were turned away.
const (
	forgetTurnedAway = time.Minute
	maxTurnedAway    = 10_000 // others are served
)

// turnAway sends clients to other replicas.
type turnAway struct {
	mu    sync.Mutex
	cause error // nil: clients are served
	until context.Context
	end   context.CancelCauseFunc // ends the streams that began before now
	came  map[appSource]time.Time // first turned away
}

func newTurnAway() *turnAway {
	a := &turnAway{}
	a.until, a.end = context.WithCancelCause(context.Background())
	return a
}

// TurnAway ends all streams and has clients go to other replicas, for a reason. Their instances
// stay until they have registered elsewhere, or had the time for it. An empty reason lifts that.
func (s *Server) TurnAway(why string) {
	a := s.away
	a.mu.Lock()
	defer a.mu.Unlock()
	if why == "" {
		a.cause, a.came = nil, nil
		return
	}
	before := a.cause
	a.cause = status.Errorf(codes.Unavailable, "%s; another replica of the resolver service is better now", why)
	if before == nil {
		a.came = map[appSource]time.Time{}
		a.end(a.cause)
		a.until, a.end = context.WithCancelCause(context.Background())
	}
}

// admit returns the context that ends, with a cause, when a new stream of a client must end, or why
// it can't begin.
func (a *turnAway) admit(client appSource, now time.Time) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		return a.until, nil
	}
	first, known := a.came[client]
	if since := now.Sub(first); known && since >= TurnAwayFor && since < forgetTurnedAway {
		return a.until, nil
	}
	if known && now.Sub(first) < TurnAwayFor {
		return nil, a.cause
	}
	if len(a.came) >= maxTurnedAway {
		return a.until, nil
	}
	a.came[client] = now
	return nil, a.cause
}
