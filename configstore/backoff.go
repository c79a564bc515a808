package configstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// How long the pauses after failures are. Each is twice as long as the one before, within these
// bounds, less up to a quarter.
//
// A server that is away costs next to nothing to ask again, and callers wait for its return. So its
// pauses stay short. A server that refuses our credentials has work with each attempt, may lock us
// out, and is mended by a person. So its pauses are long. A server that sends everything and then
// fails may be overloaded, and each attempt makes it send everything again. So its pauses grow
// longer than those of a server that is away.
const (
	firstPause  = 50 * time.Millisecond
	lastPause   = 250 * time.Millisecond
	lastFailing = 5 * time.Second
	firstDenied = time.Second
	lastDenied  = 10 * time.Second
)

// stable is how long a Watch must last for the next failure to count as the first.
const stable = time.Second

// ErrRaced is the error of an attempt to write before which somebody else wrote.
var ErrRaced = errors.New("others wrote each time in between")

// rewrites is how often a write is tried, with pauses between these.
const (
	rewrites     = 100
	firstRewrite = time.Millisecond
	lastRewrite  = 50 * time.Millisecond
)

// Rewrite makes attempts to write until one is not ErrRaced. Each reads the store and writes on
// condition that nothing has changed since.
func Rewrite(ctx context.Context, attempt func(context.Context) error) error {
	for try := range rewrites {
		if err := attempt(ctx); !errors.Is(err, ErrRaced) {
			return err
		}
		if !live.Sleep(ctx, live.Jitter(live.Backoff(firstRewrite, lastRewrite, try))) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%w, %d times: %w", ErrRaced, rewrites, ErrConflict)
}

// Backoff says how long to wait after each failure of a server that is followed. The zero Backoff
// is that of a server that has not failed yet.
type Backoff struct{ away, failing, denied int } // failures in a row, of each sort

// Wait pauses after one more failure, until ctx ends, and tells whether it waited to the end.
// heard is when the server sent something before it failed; zero if it did not.
func (b *Backoff) Wait(ctx context.Context, err error, heard time.Time) bool {
	if !heard.IsZero() && time.Since(heard) >= stable {
		*b = Backoff{}
	}
	return live.Sleep(ctx, live.Jitter(b.next(err, !heard.IsZero())))
}

// next is the pause after one more failure, of a server that was heard before it or not.
func (b *Backoff) next(err error, heard bool) time.Duration {
	switch {
	case errors.Is(err, ErrDenied):
		b.denied++
		return live.Backoff(firstDenied, lastDenied, b.denied-1)
	case heard:
		b.denied = 0
		b.failing++
		return live.Backoff(firstPause, lastFailing, b.failing-1)
	}
	b.denied = 0
	b.away++
	return live.Backoff(firstPause, lastPause, b.away-1)
}
