package configstore

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-mesh/isthmus/live"
)

// How long the pauses after failures are: twice as long after each, within these bounds,
// less up to a quarter.
//
// A server that is away costs next to nothing to ask for again, and whoever waits for its
// return waits for the rest of a pause: so pauses stay short. One that refuses our
// credentials is there, has work with each try, may count them and lock us out, and is
// mended by a person: so those pauses are long. And one that has told everything and then
// failed, again and again, as when it has more to do than it can, is made to read and send
// everything by each try: so those pauses become longer than those for one that is away.
const (
	firstPause  = 50 * time.Millisecond
	lastPause   = 250 * time.Millisecond
	lastFailing = 5 * time.Second
	firstDenied = time.Second
	lastDenied  = 10 * time.Second
)

// settled is how long a Watch must last for the next failure to be a new one.
const settled = time.Second

// Pauses says how long to wait after each failure of a server that is followed. The zero
// value is that of one that has not failed yet.
type Pauses struct{ away, failing, denied int } // how many there were

// Wait waits after one more failure, until ctx ends, and tells whether it waited to the
// end. heard is when the server said something before it failed; zero if it did not.
func (p *Pauses) Wait(ctx context.Context, err error, heard time.Time) bool {
	if !heard.IsZero() && time.Since(heard) >= settled {
		*p = Pauses{}
	}
	return live.Sleep(ctx, live.Jitter(p.next(err, !heard.IsZero())))
}

// next is the pause after one more failure, of a server that was heard before it or not.
func (p *Pauses) next(err error, heard bool) time.Duration {
	switch {
	case errors.Is(err, ErrDenied):
		p.denied++
		return live.Backoff(firstDenied, lastDenied, p.denied-1)
	case heard:
		p.denied = 0
		p.failing++
		return live.Backoff(firstPause, lastFailing, p.failing-1)
	}
	p.denied = 0
	p.away++
	return live.Backoff(firstPause, lastPause, p.away-1)
}
